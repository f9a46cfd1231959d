package notify

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/secret"
	"github.com/headgate-io/headgate/rollout"
)

// A target is where and how one message is posted, with what only the service may know.
type target struct {
	url   *url.URL
	token string
	proxy *url.URL // nil for none
	tls   *tls.Config
	made  [sha256.Size]byte // of what proxy and tls were made from
}

// The keys of Secrets.
var (
	keyAddress = []string{"address"}
	keyToken   = []string{"token", "apiToken"} // the second in some releases of the reference
	keyCA      = []string{"ca.crt"}
	keyCert    = []string{"tls.crt"}
	keyKey     = []string{"tls.key"}
)

// permanent is an error that time does not mend.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

func settings(format string, args ...any) error { return permanent{fmt.Errorf(format, args...)} }

// parseURL returns the http or https URL in text. Errors do not show it: it may be a secret.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return nil, settings("is no URL: write https://HOST/PATH")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, settings("has the scheme %q: use https or http", redact.String(u.Scheme))
	}
	return u, nil
}

func parseProxy(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return nil, settings("is no URL: write http://HOST:PORT")
	}
	if !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme) {
		return nil, settings("has the scheme %q: use http, https, socks5 or socks5h", redact.String(u.Scheme))
	}
	return u, nil
}

// target reads the Secrets of the provider.
func (n *Notifier) target(ctx context.Context) (*target, error) {
	spec := &n.Provider.Spec
	if err := n.Provider.Check(); err != nil {
		return nil, permanent{err}
	}
	s, t := services[spec.Type], &target{}
	address, at, err := n.address(ctx, s, t)
	if err != nil {
		return nil, err
	}
	if t.url, err = parseURL(address); err != nil {
		return nil, fmt.Errorf("%s %w", at, err)
	}
	if s.suffix != "" && !strings.HasSuffix(t.url.Path, "/"+s.suffix) {
		t.url = t.url.JoinPath(s.suffix)
	}
	if t.proxy, err = n.proxy(t.url); err != nil {
		return nil, err
	}
	return t, n.certificates(ctx, t)
}

// address returns the address of the service and where that stands; a token
// that stands beside it goes into t.
func (n *Notifier) address(ctx context.Context, s *service, t *target) (address, at string, err error) {
	spec := &n.Provider.Spec
	if spec.SecretRef == nil {
		return spec.Address, "spec.address", nil
	}
	r, err := n.secret(ctx, "spec.secretRef", spec.SecretRef)
	if err != nil {
		return "", "", err
	}
	address, err = r.Text(keyAddress)
	if err == nil && s.token {
		t.token, err = r.Text(keyToken)
	}
	switch {
	case err != nil:
		return "", "", permanent{fmt.Errorf("spec.secretRef: %w", err)}
	case address != "":
		return address, "spec.secretRef: secret " + r.Name + ": key address", nil
	case spec.Address != "":
		return spec.Address, "spec.address", nil
	case t.token != "" && s.address != "":
		return s.address, "", nil
	}
	return "", "", permanent{fmt.Errorf("spec.secretRef: %w", r.Problem(keyAddress[0], "is missing, and so is spec.address: set one of them"))}
}

// proxy returns the proxy to u, nil for none.
func (n *Notifier) proxy(u *url.URL) (*url.URL, error) {
	if text := n.Provider.Spec.Proxy; text != "" {
		proxy, err := parseProxy(text)
		if err != nil {
			return nil, fmt.Errorf("spec.proxy %w", err)
		}
		return proxy, nil
	}
	if n.Proxy == nil {
		return nil, nil
	}
	proxy, err := n.Proxy(&http.Request{Method: http.MethodPost, URL: u, Header: http.Header{}, Host: u.Host})
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	return proxy, nil
}

// certificates reads the TLS settings of the provider into t.
func (n *Notifier) certificates(ctx context.Context, t *target) error {
	h := sha256.New()
	fmt.Fprintln(h, t.proxy)
	t.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	if ref := n.Provider.Spec.CertSecretRef; ref != nil {
		r, err := n.secret(ctx, "spec.certSecretRef", ref)
		if err != nil {
			return err
		}
		own, err := r.TLS(keyCA, keyCert, keyKey)
		if err == nil && own == nil {
			err = r.Problem(keyCA[0], "is missing, and so are %s and %s: set one of them", keyCert[0], keyKey[0])
		}
		if err != nil {
			return permanent{fmt.Errorf("spec.certSecretRef: %w", err)}
		}
		t.tls = own
		for _, keys := range [][]string{keyCA, keyCert, keyKey} {
			v, _ := r.Value(keys)
			fmt.Fprintf(h, "%d %s", len(v), v)
		}
	}
	h.Sum(t.made[:0])
	return nil
}

func (n *Notifier) secret(ctx context.Context, field string, ref *rollout.SecretRef) (secret.Reader, error) {
	if n.Secrets == nil {
		return secret.Reader{}, settings("%s: there are no Secrets here", field)
	}
	data, err := n.Secrets(ctx, namespace(n.Provider.Metadata.Namespace), ref.Name)
	if err != nil {
		return secret.Reader{}, fmt.Errorf("%s: read secret %s: %w", field, ref.Name, err)
	}
	return secret.Reader{Name: ref.Name, Data: data}, nil
}

// secrets returns what must not be seen of t.
func (t *target) secrets() []string { return append(private(t.url), t.token) }

// private returns what must not be seen of a URL: all that follows its host, and
// the parts of that which are long enough to be keys, and the password or the user before it.
func private(u *url.URL) []string {
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

// origin returns what errors show of t.
func (t *target) origin() string { return t.url.Scheme + "://" + t.url.Host }
