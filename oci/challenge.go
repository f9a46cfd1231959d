package oci

import (
	"net/http"
	"strings"
)

// A challenge says how a registry wants to be shown who asks (RFC 9110 section 11.6.1).
type challenge struct {
	scheme string // lower case
	params map[string]string
}

const maxChallenge = 8 << 10 // bytes of one header

// challenges returns those of a header. What cannot be read is left out.
func challenges(header http.Header) []challenge {
	var all []challenge
	for _, line := range header.Values("Www-Authenticate") {
		if len(line) <= maxChallenge {
			all = append(all, parseChallenges(line)...)
		}
	}
	return all
}

// parseChallenges reads a comma-separated list in which both challenges and
// their parameters are items.
func parseChallenges(line string) (all []challenge) {
	rest := line
	for {
		rest = strings.TrimLeft(rest, " \t,")
		name, after := token(rest)
		if name == "" {
			return all
		}
		value, tail, assigned := parameter(after)
		switch {
		case assigned && len(all) > 0:
			all[len(all)-1].params[strings.ToLower(name)] = value
			rest = tail
		case assigned:
			return all // a parameter of no challenge
		default:
			all = append(all, challenge{strings.ToLower(name), map[string]string{}})
			rest = after
		}
	}
}

// parameter reads = and a value, which may be quoted.
func parameter(s string) (value, rest string, ok bool) {
	s, ok = strings.CutPrefix(strings.TrimLeft(s, " \t"), "=")
	if !ok {
		return "", s, false
	}
	s = strings.TrimLeft(s, " \t")
	quoted, ok := strings.CutPrefix(s, `"`)
	if !ok {
		value, rest = token(s)
		return value, rest, true
	}
	var b strings.Builder
	for i := 0; i < len(quoted); i++ {
		switch c := quoted[i]; {
		case c == '"':
			return b.String(), quoted[i+1:], true
		case c == '\\' && i+1 < len(quoted):
			i++
			b.WriteByte(quoted[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", true // without its end
}

// token reads a token (RFC 9110 section 5.6.2).
func token(s string) (name, rest string) {
	end := strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
	if end < 0 {
		return s, ""
	}
	return s[:end], s[end:]
}
