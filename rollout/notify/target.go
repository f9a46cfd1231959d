package notify

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
)

// A target is where and how one message is posted, with what only the service may know.
type target struct {
	url   *url.URL
	token string
	proxy *url.URL // nil for that of the notifier
	ca    []byte   // PEM, nil for the system's
	cert  []byte
	key   []byte
}

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
	s := services[spec.Type]
	if err := n.Provider.Check(); err != nil {
		return nil, permanent{err}
	}
	t := &target{}
	address, at := spec.Address, "spec.address"
	if spec.SecretRef != nil {
		secret, err := n.secret(ctx, "spec.secretRef", spec.SecretRef)
		if err != nil {
			return nil, err
		}
		if v := value(secret, "address"); v != "" {
			address, at = v, fmt.Sprintf("the key address of Secret %s", spec.SecretRef.Name)
		}
		if s.token {
			t.token = value(secret, "token", "apiToken")
		}
		if address == "" && t.token != "" {
			address = s.address
		}
		if address == "" {
			return nil, settings("spec.secretRef: Secret %s has no key address, and spec.address is missing", spec.SecretRef.Name)
		}
	}
	var err error
	if t.url, err = parseURL(address); err != nil {
		return nil, fmt.Errorf("%s %w", at, err)
	}
	if s.suffix != "" && !strings.HasSuffix(t.url.Path, "/"+s.suffix) {
		t.url = t.url.JoinPath(s.suffix)
	}
	if spec.Proxy != "" {
		if t.proxy, err = parseProxy(spec.Proxy); err != nil {
			return nil, fmt.Errorf("spec.proxy %w", err)
		}
	}
	if t.token != "" && strings.ContainsFunc(t.token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, settings("spec.secretRef: the key token of Secret %s has a character that no token has", spec.SecretRef.Name)
	}
	return t, n.certificates(ctx, t)
}

// certificates reads the TLS settings of the provider into t.
func (n *Notifier) certificates(ctx context.Context, t *target) error {
	ref := n.Provider.Spec.CertSecretRef
	if ref == nil {
		return nil
	}
	secret, err := n.secret(ctx, "spec.certSecretRef", ref)
	if err != nil {
		return err
	}
	t.ca, t.cert, t.key = secret["ca.crt"], secret["tls.crt"], secret["tls.key"]
	if t.ca == nil && t.cert == nil && t.key == nil {
		return settings("spec.certSecretRef: Secret %s has none of the keys ca.crt, tls.crt and tls.key", ref.Name)
	}
	if _, err := t.tls(); err != nil {
		return fmt.Errorf("spec.certSecretRef: Secret %s: %w", ref.Name, err)
	}
	return nil
}

// tls returns the settings of connections to t.
func (t *target) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.ca != nil {
		pool, err := x509.SystemCertPool()
		if err != nil {
			return nil, fmt.Errorf("read the system's CA certificates: %w", err)
		}
		if c.RootCAs = pool; !pool.AppendCertsFromPEM(t.ca) {
			return nil, settings("ca.crt holds no certificate that can be parsed")
		}
	}
	if t.cert != nil || t.key != nil {
		pair, err := tls.X509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, settings("tls.crt and tls.key cannot be used together: %s", strings.TrimPrefix(err.Error(), "tls: "))
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

func (n *Notifier) secret(ctx context.Context, field string, ref *rollout.SecretRef) (map[string][]byte, error) {
	if n.Secrets == nil {
		return nil, settings("%s: there are no Secrets here", field)
	}
	secret, err := n.Secrets(ctx, namespace(n.Provider.Metadata.Namespace), ref.Name)
	if err != nil {
		return nil, fmt.Errorf("%s: read Secret %s: %w", field, ref.Name, err)
	}
	return secret, nil
}

// value returns the first value of secret that is under one of keys, without the white space around it.
func value(secret map[string][]byte, keys ...string) string {
	for _, key := range keys {
		if v := strings.TrimSpace(string(secret[key])); v != "" {
			return v
		}
	}
	return ""
}

// secrets returns what must not be seen of t.
func (t *target) secrets() []string { return append(private(t.url), t.token) }

// private returns what must not be seen of a URL: all that follows its host, and
// the parts of that which are long enough to be keys.
func private(u *url.URL) []string {
	list := []string{u.RequestURI(), u.EscapedPath(), u.Path}
	for _, part := range strings.FieldsFunc(u.RequestURI(), func(r rune) bool { return strings.ContainsRune("/?&=", r) }) {
		if len(part) >= 12 {
			list = append(list, part)
		}
	}
	if password, ok := u.User.Password(); ok {
		list = append(list, password)
	}
	return slices.DeleteFunc(list, func(s string) bool { return strings.Trim(s, "/") == "" })
}

// origin returns what errors show of t.
func (t *target) origin() string { return t.url.Scheme + "://" + t.url.Host }

// transport returns a transport to t, through its proxy or that of otherwise.
func (t *target) transport(otherwise func(*http.Request) (*url.URL, error)) (*http.Transport, error) {
	c, err := t.tls()
	if err != nil {
		return nil, err
	}
	proxy := otherwise
	if t.proxy != nil {
		proxy = http.ProxyURL(t.proxy)
	}
	return &http.Transport{
		Proxy:                  proxy,
		TLSClientConfig:        c,
		MaxIdleConnsPerHost:    1,
		IdleConnTimeout:        maxIdle,
		MaxResponseHeaderBytes: maxHeader,
		ForceAttemptHTTP2:      true,
	}, nil
}
