package traffic

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/headgate-io/headgate/rollout"
)

// A condition is one on the value of a header.
type condition struct {
	header string
	holds  func(value string) bool
}

// A matcher holds conditions: all of one list, of any list. Without lists it
// holds for every request.
type matcher [][]condition

func newMatcher(matches []rollout.Match) (matcher, error) {
	var m matcher
	for i, match := range matches {
		if len(match.Headers) == 0 {
			return nil, fmt.Errorf("match[%d]: no headers", i)
		}
		var all []condition
		for name, want := range match.Headers {
			holds, err := newCondition(want)
			if err != nil {
				return nil, fmt.Errorf("match[%d].headers[%q]: %w", i, name, err)
			}
			all = append(all, condition{http.CanonicalHeaderKey(name), holds})
		}
		m = append(m, all)
	}
	return m, nil
}

// newCondition returns the one condition of want. A regular expression has to
// match all of the value.
func newCondition(want rollout.StringMatch) (func(string) bool, error) {
	var all []func(string) bool
	if want.Exact != "" {
		all = append(all, func(s string) bool { return s == want.Exact })
	}
	if want.Prefix != "" {
		all = append(all, func(s string) bool { return strings.HasPrefix(s, want.Prefix) })
	}
	if want.Suffix != "" {
		all = append(all, func(s string) bool { return strings.HasSuffix(s, want.Suffix) })
	}
	if want.Regex != "" {
		re, err := regexp.Compile(want.Regex)
		if err != nil {
			return nil, fmt.Errorf("regex: %w", err)
		}
		re.Longest()
		all = append(all, func(s string) bool {
			at := re.FindStringIndex(s)
			return at != nil && at[0] == 0 && at[1] == len(s)
		})
	}
	if len(all) != 1 {
		return nil, errors.New("set one of exact, prefix, suffix and regex")
	}
	return all[0], nil
}

// holds reports whether the weights are for req. A header that is there several
// times has its values joined by commas, cookies by semicolons.
func (m matcher) holds(req *http.Request) bool {
	if len(m) == 0 {
		return true
	}
	for _, all := range m {
		if every(all, req) {
			return true
		}
	}
	return false
}

func every(all []condition, req *http.Request) bool {
	for _, c := range all {
		value, ok := header(req, c.header)
		if !ok || !c.holds(value) {
			return false
		}
	}
	return true
}

func header(req *http.Request, name string) (string, bool) {
	values := req.Header[name]
	switch {
	case name == "Host":
		return req.Host, true
	case len(values) == 0:
		return "", false
	case len(values) == 1:
		return values[0], true
	case name == "Cookie":
		return strings.Join(values, "; "), true
	}
	return strings.Join(values, ","), true
}
