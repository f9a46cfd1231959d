package traffic

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/headgate-io/headgate/rollout"
)

// A matcher has conditions on headers: all of one map hold, of any map. Without
// maps it holds for every request.
type matcher []map[string]*regexp.Regexp

func newMatcher(matches []rollout.Match) (matcher, error) {
	var m matcher
	for i, match := range matches {
		if len(match.Headers) == 0 {
			return nil, fmt.Errorf("match[%d]: no headers", i)
		}
		conditions := map[string]*regexp.Regexp{}
		for name, want := range match.Headers {
			condition, err := compile(want)
			if err != nil {
				return nil, fmt.Errorf("match[%d].headers[%q]: %w", i, name, err)
			}
			conditions[http.CanonicalHeaderKey(name)] = condition
		}
		m = append(m, conditions)
	}
	return m, nil
}

// compile returns what matches the whole of a value.
func compile(want rollout.StringMatch) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(want.Regex); err != nil { // alone, for it may close a bracket that it did not open
		return nil, fmt.Errorf("regex: %w", err)
	}
	switch quote := regexp.QuoteMeta; want {
	case rollout.StringMatch{}:
	case rollout.StringMatch{Exact: want.Exact}:
		return regexp.Compile(`(?s)^` + quote(want.Exact) + `\z`)
	case rollout.StringMatch{Prefix: want.Prefix}:
		return regexp.Compile(`^` + quote(want.Prefix))
	case rollout.StringMatch{Suffix: want.Suffix}:
		return regexp.Compile(quote(want.Suffix) + `\z`)
	case rollout.StringMatch{Regex: want.Regex}:
		if strings.Contains(want.Regex, `\Q`) {
			want.Regex += `\E`
		}
		return regexp.Compile(`^(?:` + want.Regex + `)\z`)
	}
	return nil, errors.New("set one of exact, prefix, suffix and regex")
}

// holds reports whether the weights are for req. A header that is there several
// times has its values joined by commas, cookies by semicolons.
func (m matcher) holds(req *http.Request) bool {
	for _, conditions := range m {
		held := true
		for name, condition := range conditions {
			value, found := header(req, name)
			held = held && found && condition.MatchString(value)
		}
		if held {
			return true
		}
	}
	return len(m) == 0
}

func header(req *http.Request, name string) (string, bool) {
	values, separator := req.Header[name], ","
	switch name {
	case "Host":
		return req.Host, true
	case "Cookie":
		separator = "; "
	}
	return strings.Join(values, separator), len(values) > 0
}
