package deliver

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/secret"
)

// A Target is where and how something is posted, with what only the receiver may know.
type Target struct {
	URL     *url.URL
	Header  http.Header       // of the post; nil for none
	Proxy   *url.URL          // nil for none
	TLS     *tls.Config       // nil for the system's CAs
	Timeout time.Duration     // of one post, default [Timeout]
	Made    [sha256.Size]byte // tells apart targets with other values of Proxy and TLS
}

func (t *Target) timeout() time.Duration { return cmp.Or(t.Timeout, Timeout) }

// Origin returns what errors show of t.
func (t *Target) Origin() string { return t.URL.Scheme + "://" + t.URL.Host }

// A Permanent is an error that time does not mend.
type Permanent struct{ Err error }

func (p Permanent) Error() string { return p.Err.Error() }
func (p Permanent) Unwrap() error { return p.Err }

// Settings returns a [Permanent].
func Settings(format string, args ...any) error { return Permanent{fmt.Errorf(format, args...)} }

// ParseURL returns the http or https URL in text. Errors do not show it: it may be a secret.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return nil, Settings("is no URL: write https://HOST/PATH")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, Settings("has the scheme %q: use https or http", redact.String(u.Scheme))
	}
	return u, nil
}

// ParseProxy returns the URL of a proxy in text. Errors do not show it.
func ParseProxy(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return nil, Settings("is no URL: write http://HOST:PORT")
	}
	if !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme) {
		return nil, Settings("has the scheme %q: use http, https, socks5 or socks5h", redact.String(u.Scheme))
	}
	return u, nil
}

// The keys of Secrets with TLS settings.
var (
	keyCA   = []string{"ca.crt"}
	keyCert = []string{"tls.crt"}
	keyKey  = []string{"tls.key"}
)

// Secure sets TLS and Made, for Proxy and for the TLS settings of a Secret, of
// which there must be some; nil for no Secret.
func (t *Target) Secure(r *secret.Reader) error {
	h := sha256.New()
	fmt.Fprintln(h, t.Proxy)
	t.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if r != nil {
		own, err := r.TLS(keyCA, keyCert, keyKey)
		if err == nil && own == nil {
			err = r.Problem(keyCA[0], "is missing, and so are %s and %s: set one of them", keyCert[0], keyKey[0])
		}
		if err != nil {
			return Permanent{err}
		}
		t.TLS = own
		for _, keys := range [][]string{keyCA, keyCert, keyKey} {
			v, _ := r.Value(keys)
			fmt.Fprintf(h, "%d %s", len(v), v)
		}
	}
	h.Sum(t.Made[:0])
	return nil
}

// Private returns what must not be seen of a URL: all that follows its host, and
// the parts of that which are long enough to be keys, and the password or the user before it.
func Private(u *url.URL) []string {
	list := []string{u.RequestURI(), u.EscapedPath(), u.Path}
	for _, part := range strings.FieldsFunc(u.RequestURI(), func(r rune) bool { return strings.ContainsRune("/?&=", r) }) {
		if len(part) >= 12 {
			path, _ := url.PathUnescape(part)
			query, _ := url.QueryUnescape(part)
			list = append(list, part, path, query)
		}
	}
	if password, ok := u.User.Password(); ok {
		list = append(list, password)
	} else {
		list = append(list, u.User.Username())
	}
	return slices.DeleteFunc(list, func(s string) bool { return strings.Trim(s, "/") == "" })
}
