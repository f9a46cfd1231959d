package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
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

const (
	// Timeout is that of one attempt, where none is set.
	Timeout = 5 * time.Second

	maxAnswer    = 64 << 10 // bytes of the body of an answer
	maxHeader    = 64 << 10 // bytes of its header
	maxShown     = 300      // bytes of it in an error
	maxRedirects = 5
	maxIdle      = 90 * time.Second
)

// A Webhook is where JSON is posted to and how, as a document says it. One goroutine at
// a time may use it. Its connections are kept for the next post, until Close.
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
	Timeout time.Duration                                                                // of connecting, default [Timeout]

	client *http.Client
	made   string // what client was made from
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
	return u, nil
}

// A Target is where one event is posted.
type Target struct {
	URL *url.URL

	header http.Header
	hidden []string // what errors must not show
	client *http.Client
}

// Target reads the Secrets. Its error is what each post would fail with before it connects.
func (w *Webhook) Target(ctx context.Context) (*Target, error) {
	t := &Target{header: http.Header{}}
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
		if err == nil && own == "" && address == "" && len(t.header) > 0 {
			address = w.TokenURL
		}
		if err == nil && own == "" && address == "" {
			err = r.Problem("address", "is missing, and so is %s: set one of them", at)
		}
		if err != nil {
			return &Refusal{Err: fmt.Errorf("%ssecretRef: %w", w.Prefix, err)}
		}
		if own != "" {
			address, at = own, w.Prefix+"secretRef: secret "+r.Name+": key address"
		}
	}
	u, err := parseURL(address)
	if err != nil {
		return &Refusal{Err: fmt.Errorf("%s %w", at, err)}
	}
	for _, values := range t.header {
		t.hidden = append(t.hidden, values...)
	}
	t.URL, t.hidden = u, append(t.hidden, Private(u)...)
	t.header.Set("Content-Type", "application/json")
	t.header.Set("User-Agent", "headgate")
	return nil
}

func (w *Webhook) secret(ctx context.Context, field string, ref Ref) (secret.Reader, error) {
	r := secret.Reader{Name: ref.String()}
	if w.Secrets == nil {
		return r, &Refusal{Err: fmt.Errorf("%s%s: there are no Secrets here", w.Prefix, field)}
	}
	var err error
	if r.Data, err = w.Secrets(ctx, ref.Namespace, ref.Name); err != nil {
		return r, fmt.Errorf("%s%s: %w", w.Prefix, field, secret.Unreadable("secret "+r.Name, err))
	}
	return r, nil
}

// connect gives t a client: that of the last post if proxy and TLS settings are the same.
func (w *Webhook) connect(ctx context.Context, t *Target) error {
	proxy, err := w.proxy(t.URL)
	if err != nil {
		return err
	}
	if proxy != nil && proxy.User != nil {
		password, _ := proxy.User.Password()
		t.hidden = append(t.hidden, cmp.Or(password, proxy.User.Username()))
	}
	settings, made := &tls.Config{MinVersion: tls.VersionTLS12}, fmt.Sprint(proxy)
	if w.Certs != (Ref{}) {
		r, err := w.secret(ctx, "certSecretRef", w.Certs)
		if err != nil {
			return err
		}
		if settings, err = TLS(r); err != nil {
			return &Refusal{Err: fmt.Errorf("%scertSecretRef: %w", w.Prefix, err)}
		}
		made += fmt.Sprint(r.Data)
	}
	if w.client == nil || w.made != made {
		w.Close()
		w.client, w.made = &http.Client{Transport: transport(proxy, settings, cmp.Or(w.Timeout, Timeout)), CheckRedirect: sameOrigin}, made
	}
	t.client = w.client
	return nil
}

// TLS returns the TLS settings of a Secret, which has some.
func TLS(r secret.Reader) (*tls.Config, error) {
	settings, err := r.TLS([]string{"ca.crt"}, []string{"tls.crt"}, []string{"tls.key"})
	if err == nil && settings == nil {
		err = r.Problem("ca.crt", "is missing, and so are tls.crt and tls.key: set one of them")
	}
	return settings, err
}

// proxy returns the proxy to u, nil for none.
func (w *Webhook) proxy(u *url.URL) (*url.URL, error) {
	if w.Proxy != "" {
		p, err := parseProxy(w.Proxy)
		if err != nil {
			return nil, &Refusal{Err: fmt.Errorf("%sproxy %w", w.Prefix, err)}
		}
		return p, nil
	}
	if w.Proxies == nil {
		return nil, nil
	}
	p, err := w.Proxies(&http.Request{Method: http.MethodPost, URL: u, Header: http.Header{}, Host: u.Host})
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	return p, nil
}

// transport returns a transport that speaks HTTP/1.1: there a post without answer ends its
// connection, and the next post has a new one. Connecting takes at most limit, also after
// the post has ended. A proxy over TLS is not shown the certificate of the client.
func transport(proxy *url.URL, settings *tls.Config, limit time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: limit}
	t := &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        settings,
		TLSHandshakeTimeout:    limit,
		IdleConnTimeout:        maxIdle,
		MaxIdleConnsPerHost:    1,
		MaxResponseHeaderBytes: maxHeader,
	}
	if proxy == nil {
		return t
	}
	t.Proxy = http.ProxyURL(proxy)
	t.OnProxyConnectResponse = func(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		return fmt.Errorf("proxy %s answered status %d", proxy.Host, resp.StatusCode)
	}
	if proxy.Scheme == "https" {
		t.DialTLSContext = (&tls.Dialer{
			NetDialer: dialer, // its timeout includes the handshake
			Config:    &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: settings.RootCAs, ServerName: proxy.Hostname()},
		}).DialContext
	}
	return t
}

// sameOrigin follows redirects that repeat the request at the origin it was meant for.
func sameOrigin(req *http.Request, via []*http.Request) error {
	first := via[0]
	if req.Method != first.Method || req.URL.Scheme != first.URL.Scheme || req.URL.Host != first.URL.Host || len(via) > maxRedirects {
		return http.ErrUseLastResponse
	}
	req.Header.Del("Referer")
	return nil
}

// Close ends idle connections.
func (w *Webhook) Close() {
	if w.client != nil {
		w.client.CloseIdleConnections()
	}
}

// Post posts JSON: one attempt. It returns at most 64 KiB of the answer. A status other than
// 200 to 299 is a [*Refusal], and so is a redirect that does not repeat the request at its origin.
func (t *Target) Post(ctx context.Context, body []byte) ([]byte, error) {
	answer, err := t.post(ctx, body)
	if err != nil {
		err = redact.Error(fmt.Errorf("post to %s://%s: %w", t.URL.Scheme, t.URL.Host, err), t.hidden...)
	}
	return answer, err
}

func (t *Target) post(ctx context.Context, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL.String(), bytes.NewReader(body))
	if err != nil {
		return nil, &Refusal{Err: bare(err)}
	}
	req.Header = t.header
	resp, err := t.client.Do(req)
	if err != nil {
		return nil, bare(err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // what is missing of it does not change the status
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		return answer, nil
	}
	text := fmt.Sprintf("status %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	if to, err := resp.Location(); err == nil && resp.StatusCode < 400 {
		text += fmt.Sprintf(", which leads to %s://%s: give the receiver that URL", to.Scheme, to.Host)
	}
	if said := redact.Excerpt(string(answer), maxShown, t.hidden...); said != "" {
		text += ": " + said
	}
	after, _ := retry.After(resp.Header, time.Now())
	return nil, &Refusal{resp.StatusCode, after, errors.New(text)}
}

// bare returns err without the URL that net/http puts in front of it.
func bare(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		if e.Timeout() {
			return fmt.Errorf("no answer: %w", e.Err)
		}
		return e.Err
	}
	return err
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
