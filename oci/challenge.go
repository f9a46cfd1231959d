package oci

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// challenges returns what a registry asks for (RFC 9110 section 11.6.1): the parameters of
// the first challenge of each scheme, in lower case. In the header both challenges and
// their parameters are items of lists. What cannot be read is left out.
func challenges(header http.Header) map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, rest := range header.Values("Www-Authenticate") {
		var params map[string]string // of the last challenge
		for {
			name, after := token(strings.TrimLeft(rest, " \t,"))
			if name = strings.ToLower(name); name == "" {
				break
			}
			value, tail, assigned := parameter(after)
			if assigned && params == nil {
				break // a parameter of no challenge
			}
			if rest = after; assigned {
				params[name], rest = value, tail
			} else if params = map[string]string{}; all[name] == nil {
				all[name] = params
			}
		}
	}
	return all
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

// The realm of a challenge is the server that issues tokens. It decides where a
// password is sent, so it is judged before anything is sent to it.

// A RealmError says that a registry names a token service that we do not go to.
type RealmError struct {
	Registry string // HOST[:PORT]
	Realm    string // HOST[:PORT] of the token service, or as much of its URL as tells it
	Problem  string // what is wrong, and what to do
}

func (e *RealmError) Error() string {
	return fmt.Sprintf("registry %s names %s as its token service: %s", e.Registry, e.Realm, e.Problem)
}

// Is makes it an [fs.ErrPermission].
func (e *RealmError) Is(target error) bool { return target == fs.ErrPermission }

// parseRealm reads the realm of a challenge by the registry at from.
func parseRealm(from *url.URL, realm string) (*url.URL, error) {
	refuse := func(name, why string) (*url.URL, error) {
		return nil, &RealmError{Registry: from.Host, Realm: name, Problem: why}
	}
	u, err := url.Parse(realm)
	switch {
	case realm == "":
		return refuse("nothing", "the registry does not work")
	case len(realm) > maxAddress || err != nil || u.Hostname() == "" || u.Opaque != "":
		return refuse(fmt.Sprintf("%.100q", plain(realm)), "that is no URL")
	case u.User != nil:
		return refuse(u.Host, "its URL holds user information")
	case u.Scheme == "https":
	case u.Scheme != "http":
		return refuse(u.Host, fmt.Sprintf("its scheme is %.20q instead of https", u.Scheme))
	case from.Scheme == "https":
		return refuse(u.Host, "its URL gives up TLS")
	case !sameHost(from, u):
		return refuse(u.Host, "without TLS that must be on the host of the registry")
	}
	u.Fragment = ""
	return u, nil
}

// trusts returns an error when credentials for the registry at from must not
// be shown to realm. An entry of chain for the realm says that they may.
func trusts(from, realm *url.URL, chain keychain) error {
	if sameHost(from, realm) || domain(from) != "" && domain(from) == domain(realm) || chain.has(realm.Host) {
		return nil
	}
	return &RealmError{Registry: from.Host, Realm: realm.Host, Problem: fmt.Sprintf(
		"credentials for one are not shown to the other; if that is right, add an entry for %s to the dockerconfigjson of the Secret", realm.Host)}
}

func sameHost(a, b *url.URL) bool { return strings.EqualFold(a.Hostname(), b.Hostname()) }

// domain returns the name that the owner of a host has registered, "" for an address.
func domain(u *url.URL) string {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}
	name, _ := publicsuffix.EffectiveTLDPlusOne(host)
	return name
}
