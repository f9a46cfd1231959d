package notify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/internal/secret"
)

// Timeout is the default timeout of one attempt.
const Timeout = 5 * time.Second

const maxShown = 300 // bytes of an answer in an error

// A Webhook is the target of requests, as configured in a document.
type Webhook struct {
	URL   string // http or https; user information is used for basic authentication
	Proxy string // URL: http, https, socks5 or socks5h; "" for that of Proxies

	Secret   Ref  // read by Credentials
	Certs    Ref  // with the keys ca.crt, tls.crt and tls.key
	Insecure bool // certificates are not verified
	HTTP2    bool // use HTTP/2 if the server supports it

	Prefix   string // of the names of fields in errors, such as "spec."
	URLField string // field of URL in the document; if set, the key address of the Secret takes precedence over URL

	// Credentials adds the credentials of the Secret to the header of the requests; nil for none.
	Credentials func(secret.Reader, http.Header) error
	// TokenURL is the URL if neither the document nor the Secret has one, but there are credentials; "" for none.
	TokenURL string

	Secrets func(ctx context.Context, namespace, name string) (map[string][]byte, error) // if nil, naming a Secret is an error
	Proxies func(*http.Request) (*url.URL, error)                                        // as in [http.Transport]; nil for none
	Pool    *Pool                                                                        // of the connections
}

// A Ref names a Secret. The zero Ref names none.
type Ref struct{ Namespace, Name string }

func (r Ref) String() string { return r.Namespace + "/" + r.Name }

// Check adds the errors of the document to found. It does not read the Secrets.
func (w *Webhook) Check(found *document.Findings) {
	if w.URL != "" {
		_, err := ParseURL(w.URL)
		found.Check(w.Prefix+w.URLField, err)
	} else if w.Secret == (Ref{}) {
		found.Add(w.Prefix+w.URLField, "is missing: give it, or a secretRef to a Secret with the key address")
	}
	if w.Proxy != "" {
		_, err := ParseURL(w.Proxy, proxySchemes...)
		found.Check(w.Prefix+"proxy", err)
	}
	for i, ref := range []Ref{w.Secret, w.Certs} {
		if ref != (Ref{}) {
			field := w.Prefix + []string{"secretRef", "certSecretRef"}[i]
			found.Check(field+".name", document.CheckName(ref.Name))
			found.Check(field+".namespace", document.CheckNamespace(ref.Namespace))
		}
	}
}

// proxySchemes are the allowed schemes of the URL of a proxy.
var proxySchemes = []string{"http", "https", "socks5", "socks5h"}

// ParseURL parses a URL whose scheme is one of schemes, by default http and https. Errors do not contain the URL,
// because it may contain a secret.
func ParseURL(text string, schemes ...string) (*url.URL, error) {
	if len(schemes) == 0 {
		schemes = []string{"http", "https"}
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("is no URL: write http://HOST/PATH or https://HOST/PATH")
	case !slices.Contains(schemes, u.Scheme):
		return nil, fmt.Errorf("must begin with %s://", strings.Join(schemes, ":// or "))
	case u.Hostname() == "":
		return nil, errors.New("has no host: write http://HOST/PATH or https://HOST/PATH")
	}
	return u, nil
}

// A Target is the target of requests, with the content of the Secrets when it was created.
type Target struct {
	URL    *url.URL
	Header http.Header
	Hidden []string // texts that errors must not contain

	transport *http.Transport
}

// Target reads the Secrets and returns the target with their content. It fails if the document or the Secrets are
// invalid, or if a Secret or the proxy cannot be determined.
func (w *Webhook) Target(ctx context.Context) (*Target, error) {
	t := &Target{Header: http.Header{}}
	err := w.setAddress(ctx, t)
	if err == nil {
		err = w.setTransport(ctx, t)
	}
	return t, redact.Error(err, t.Hidden...)
}

// setAddress sets the URL, the header and the hidden texts of t.
func (w *Webhook) setAddress(ctx context.Context, t *Target) error {
	address, at := w.URL, w.Prefix+w.URLField
	if w.Secret != (Ref{}) {
		r, err := w.secret(ctx, "secretRef", w.Secret)
		if err != nil {
			return err
		}
		secretURL := ""
		if w.URLField != "" {
			secretURL, err = r.Text([]string{"address"})
		}
		if err == nil && w.Credentials != nil {
			err = w.Credentials(r, t.Header)
		}
		if secretURL != "" {
			address, at = secretURL, w.Prefix+"secretRef: secret "+r.Name+": key address"
		} else if address == "" && len(t.Header) > 0 {
			address = w.TokenURL
		}
		if err == nil && address == "" {
			err = r.Problem("address", "is missing, and so is %s: set one of them", at)
		}
		if err != nil {
			return &Refusal{Err: fmt.Errorf("%ssecretRef: %w", w.Prefix, err)}
		}
	}
	u, err := ParseURL(address)
	if err != nil {
		return &Refusal{Err: fmt.Errorf("%s %w", at, err)}
	}
	SetUserInfo(u, t.Header)
	t.URL, t.Hidden = u, HeaderSecrets(t.Header)
	return nil
}

// setTransport sets the transport of t.
func (w *Webhook) setTransport(ctx context.Context, t *Target) error {
	s := transportKey{insecure: w.Insecure, http2: w.HTTP2}
	var proxy *url.URL
	var err error
	if w.Proxy != "" {
		if proxy, err = ParseURL(w.Proxy, proxySchemes...); err != nil {
			return &Refusal{Err: fmt.Errorf("%sproxy %w", w.Prefix, err)}
		}
	} else if w.Proxies != nil {
		if proxy, err = w.Proxies(&http.Request{Method: http.MethodPost, URL: t.URL, Header: http.Header{}, Host: t.URL.Host}); err != nil {
			return fmt.Errorf("proxy: %w", err)
		}
	}
	if proxy != nil {
		if w.Proxy != "" || proxy.Scheme == "https" {
			s.proxy = proxy.String()
		}
		shown := http.Header{}
		SetUserInfo(proxy, shown)
		t.Hidden = append(t.Hidden, HeaderSecrets(shown)...)
	}
	var certs secret.Reader
	if w.Certs != (Ref{}) {
		if certs, err = w.secret(ctx, "certSecretRef", w.Certs); err != nil {
			return err
		}
	}
	if t.transport, err = w.Pool.transport(s, certs, w.Proxies); err != nil {
		return &Refusal{Err: fmt.Errorf("%scertSecretRef: %w", w.Prefix, err)}
	}
	return nil
}

func (w *Webhook) secret(ctx context.Context, field string, ref Ref) (secret.Reader, error) {
	r, err := secret.Get(ctx, w.Secrets, ref.Namespace, ref.Name)
	if err != nil {
		err = fmt.Errorf("%s%s: %w", w.Prefix, field, err)
	}
	return r, err
}

// Send sends a request with a header: see [Send].
func (t *Target) Send(ctx context.Context, method string, header http.Header, body []byte, limit int) (*Answer, error) {
	return Send(ctx, t.transport, method, t.URL, header, body, limit)
}

// Post makes one attempt to post JSON. It returns the body of an answer with a status from 200 to 299; for another
// status the error wraps a [*Refusal]. Errors contain only scheme and host of the URL.
func (t *Target) Post(ctx context.Context, body []byte) ([]byte, error) {
	t.Header.Set("Content-Type", "application/json")
	t.Header.Set("User-Agent", "headgate")
	a, err := t.Send(ctx, http.MethodPost, t.Header, body, MaxBody)
	if err == nil && a.Status >= 200 && a.Status <= 299 { // even if the body is incomplete
		return a.Body, nil
	}
	hidden := append(URLSecrets(t.URL), t.Hidden...)
	if err == nil {
		err = t.refusal(a, hidden)
	} else if ctx.Err() != nil {
		err = fmt.Errorf("no answer: %w", ctx.Err())
	}
	return nil, redact.Error(fmt.Errorf("post to %s://%s: %w", t.URL.Scheme, t.URL.Host, err), hidden...)
}

func (t *Target) refusal(a *Answer, hidden []string) error {
	text := fmt.Sprintf("status %d %s", a.Status, http.StatusText(a.Status))
	location := a.Header.Get("Location")
	if to, err := t.URL.Parse(location); err == nil && location != "" && a.Status >= 300 && a.Status <= 399 {
		text += fmt.Sprintf(", which leads to %s://%s: give the receiver that URL", to.Scheme, to.Host)
	}
	if excerpt := redact.Excerpt(string(a.Body), maxShown, hidden...); excerpt != "" {
		text += ": " + excerpt
	}
	after, _ := retry.After(a.Header, time.Now())
	return &Refusal{a.Status, after, errors.New(text)}
}

// URLSecrets returns the secret parts of a URL: everything after the host, the parts of it that are long enough to
// be keys, and the password, or the user if there is no password.
func URLSecrets(u *url.URL) []string {
	list := []string{u.RequestURI(), u.EscapedPath(), u.Path}
	for _, part := range strings.FieldsFunc(u.RequestURI(), func(r rune) bool { return strings.ContainsRune("/?&=", r) }) {
		if len(part) >= 12 {
			path, _ := url.PathUnescape(part)
			query, _ := url.QueryUnescape(part)
			list = append(list, part, path, query)
		}
	}
	password, ok := u.User.Password()
	if !ok {
		password = u.User.Username()
	}
	return slices.DeleteFunc(append(list, password), func(s string) bool { return strings.Trim(s, "/") == "" })
}
