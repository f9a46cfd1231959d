package notify

import (
	"cmp"
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

// Timeout is that of one attempt, where none is set.
const Timeout = 5 * time.Second

const maxShown = 300 // bytes of an answer in an error

// A Webhook is where JSON is posted to and how, as a document says it.
type Webhook struct {
	URL   string // http or https; the key address of the Secret counts before it
	Proxy string // URL: http, https, socks5 or socks5h; "" for that of Proxies

	Secret Ref // with the key address, and those that Credentials reads
	Certs  Ref // with the keys ca.crt, tls.crt and tls.key

	Prefix   string // of the names of fields in errors, such as "spec."
	URLField string // what the document calls URL

	// Credentials puts those of the Secret into the header of the posts; nil for none.
	Credentials func(secret.Reader, http.Header) error
	// TokenURL is where credentials are for when neither the document nor the Secret has a URL; "" for nowhere.
	TokenURL string

	Secrets func(ctx context.Context, namespace, name string) (map[string][]byte, error) // nil: a Secret that is named is an error
	Proxies func(*http.Request) (*url.URL, error)                                        // as in [http.Transport]; nil for none
	Pool    *Pool                                                                        // of the connections
}

// A Ref names a Secret. The zero Ref is none.
type Ref struct{ Namespace, Name string }

func (r Ref) String() string { return r.Namespace + "/" + r.Name }

// Check adds to found what is wrong with the document, whatever its Secrets hold.
func (w *Webhook) Check(found *document.Findings) {
	check := func(field string, err error) {
		if err != nil {
			found.Add(w.Prefix+field, "%w", err)
		}
	}
	if w.URL != "" {
		_, err := parseURL(w.URL)
		check(w.URLField, err)
	} else if w.Secret == (Ref{}) {
		check(w.URLField, errors.New("is missing: give it, or a secretRef to a Secret with the key address"))
	}
	if w.Proxy != "" {
		_, err := parseProxy(w.Proxy)
		check("proxy", err)
	}
	w.Secret.check("secretRef", check)
	w.Certs.check("certSecretRef", check)
}

func (r *Ref) check(field string, check func(string, error)) {
	if *r != (Ref{}) {
		check(field+".name", document.CheckName(r.Name))
		check(field+".namespace", document.CheckNamespace(r.Namespace))
	}
}

func parseURL(text string) (*url.URL, error) {
	return parse(text, "https://HOST/PATH", "https", "http")
}

func parseProxy(text string) (*url.URL, error) {
	return parse(text, "http://HOST:PORT", "http", "https", "socks5", "socks5h")
}

// parse returns the URL in text. Errors do not show it: it may be a secret.
func parse(text, example string, schemes ...string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return nil, errors.New("is no URL: write " + example)
	}
	if !slices.Contains(schemes, u.Scheme) {
		return nil, fmt.Errorf("has the scheme %q: use %s", redact.String(u.Scheme), strings.Join(schemes, ", "))
	}
	u.Path = cmp.Or(u.Path, "/")
	return u, nil
}

// A Target is where one event is posted.
type Target struct {
	URL *url.URL

	header    http.Header
	hidden    []string // what errors must not show
	pool      *Pool
	transport *Transport
}

// Target reads the Secrets. Its error is what each post would fail with before it connects.
func (w *Webhook) Target(ctx context.Context) (*Target, error) {
	t := &Target{header: http.Header{}, pool: w.Pool}
	err := w.locate(ctx, t)
	if err == nil {
		err = w.connect(ctx, t)
	}
	return t, redact.Error(err, t.hidden...)
}

// locate sets the URL and the header of t.
func (w *Webhook) locate(ctx context.Context, t *Target) error {
	address, at := w.URL, w.Prefix+w.URLField
	if w.Secret != (Ref{}) {
		r, err := w.secret(ctx, "secretRef", w.Secret)
		if err != nil {
			return err
		}
		for _, value := range r.Data {
			t.hidden = append(t.hidden, string(value))
		}
		own, err := r.Text([]string{"address"})
		if err == nil && w.Credentials != nil {
			err = w.Credentials(r, t.header)
		}
		if own != "" {
			address, at = own, w.Prefix+"secretRef: secret "+r.Name+": key address"
		} else if address == "" && len(t.header) > 0 {
			address = w.TokenURL
		}
		if err == nil && address == "" {
			err = r.Problem("address", "is missing, and so is %s: set one of them", at)
		}
		if err != nil {
			return &Refusal{Err: fmt.Errorf("%ssecretRef: %w", w.Prefix, err)}
		}
	}
	u, err := parseURL(address)
	if err != nil {
		return &Refusal{Err: fmt.Errorf("%s %w", at, err)}
	}
	if password, _ := u.User.Password(); u.User != nil && t.header.Get("Authorization") == "" {
		t.header.Set("Authorization", secret.Auth{Username: u.User.Username(), Password: password}.Header())
	}
	for _, values := range t.header {
		t.hidden = append(t.hidden, values...)
	}
	t.URL, t.hidden = u, append(t.hidden, Private(u)...)
	t.header.Set("Content-Type", "application/json")
	t.header.Set("User-Agent", "headgate")
	return nil
}

// connect sets the connections of t.
func (w *Webhook) connect(ctx context.Context, t *Target) error {
	proxy, err := ProxyFor(t.URL, w.Proxies)
	if w.Proxy != "" {
		if proxy, err = parseProxy(w.Proxy); err != nil {
			err = &Refusal{Err: fmt.Errorf("%sproxy %w", w.Prefix, err)}
		}
	}
	if err != nil {
		return err
	}
	var setting Setting
	if proxy != nil {
		password, _ := proxy.User.Password()
		setting.Proxy, t.hidden = proxy.String(), append(t.hidden, cmp.Or(password, proxy.User.Username()))
	}
	var certs secret.Reader
	if w.Certs != (Ref{}) {
		if certs, err = w.secret(ctx, "certSecretRef", w.Certs); err != nil {
			return err
		}
	}
	if t.transport, err = w.Pool.Get(setting, certs, nil); err != nil {
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

// Post posts JSON: one attempt. It returns what was answered with a status from 200 to 299; another
// status is a [*Refusal].
func (t *Target) Post(ctx context.Context, body []byte) ([]byte, error) {
	defer t.pool.Release(t.transport)
	a, err := t.transport.Post(ctx, t.URL, t.header, body)
	if err == nil && a.Status >= 200 && a.Status <= 299 { // what is missing of the body changes nothing
		return a.Body, nil
	}
	if err == nil {
		err = t.refusal(a)
	} else if ctx.Err() != nil {
		err = fmt.Errorf("no answer: %w", ctx.Err())
	}
	return nil, redact.Error(fmt.Errorf("post to %s://%s: %w", t.URL.Scheme, t.URL.Host, err), t.hidden...)
}

func (t *Target) refusal(a *Answer) error {
	text := fmt.Sprintf("status %d %s", a.Status, http.StatusText(a.Status))
	location := a.Header.Get("Location")
	if to, err := t.URL.Parse(location); err == nil && location != "" && a.Status >= 300 && a.Status <= 399 {
		text += fmt.Sprintf(", which leads to %s://%s: give the receiver that URL", to.Scheme, to.Host)
	}
	if said := redact.Excerpt(string(a.Body), maxShown, t.hidden...); said != "" {
		text += ": " + said
	}
	after, _ := retry.After(a.Header, time.Now())
	return &Refusal{a.Status, after, errors.New(text)}
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
	password, ok := u.User.Password()
	if !ok {
		password = u.User.Username()
	}
	return slices.DeleteFunc(append(list, password), func(s string) bool { return strings.Trim(s, "/") == "" })
}
