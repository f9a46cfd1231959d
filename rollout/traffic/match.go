package traffic

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/headgate-io/headgate/rollout"
)

// A matcher has conditions on headers. It matches a request if all conditions of at
// least one map hold. Without maps it matches every request.
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

// compile returns the regular expression for the condition on a header value.
func compile(want rollout.StringMatch) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(want.Regex); err != nil { // separately, since it may have an unbalanced closing bracket
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

// matches reports whether req matches, so that the weights apply to it. The values of
// a repeated header are joined by commas, those of cookies by semicolons.
func (m matcher) matches(req *http.Request) bool {
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
