package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/origin"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/retry"
)

const (
	requestTimeout = 60 * time.Second
	dialTimeout    = 15 * time.Second // for each address
	maxAnswer      = 1 << 20          // bytes of a body
	maxHeader      = 64 << 10
	maxWords       = 300 // bytes of what a server says, in a message
	maxRedirects   = 5
)

// A session is what one run has with a server.
type session struct {
	header  http.Header // with credentials
	secrets []string
	client  *http.Client
}

// open starts a session.
func (s *Servers) open(j *job) *session {
	t := &http.Transport{
		TLSHandshakeTimeout:    dialTimeout,
		MaxResponseHeaderBytes: maxHeader,
		MaxIdleConnsPerHost:    1,
		IdleConnTimeout:        90 * time.Second,
		DisableCompression:     true,
	}
	if s.TLS != nil {
		t.TLSClientConfig = s.TLS.Clone()
	}
	t.DialContext = s.dialer(j.to)
	if s.Proxy != nil {
		if proxy, err := s.Proxy(&http.Request{Method: http.MethodGet, URL: j.to.url, Header: http.Header{}, Host: j.to.url.Host}); proxy != nil || err != nil {
			t.Proxy = func(*http.Request) (*url.URL, error) { return proxy, err }
			t.DialContext = s.Dial // the configuration chose it, and it looks up the server itself
		}
	}
	return &session{header: j.header, secrets: j.secrets, client: &http.Client{Transport: t, CheckRedirect: checkRedirect}}
}

// checkRedirect lets what reads be sent elsewhere on the same origin.
func checkRedirect(req *http.Request, via []*http.Request) error {
	switch first := via[0]; {
	case first.Method != http.MethodGet, origin.Of(first.URL) != origin.Of(req.URL):
		return fmt.Errorf("%w to %s", errRedirect, bounded(redact.URL(req.URL), nil))
	case len(via) > maxRedirects:
		return fmt.Errorf("%w more than %d times", errRedirect, maxRedirects)
	}
	return nil
}

var errRedirect = errors.New("a redirect is not followed")

// dialer connects to the server, at an address that may be asked.
func (s *Servers) dialer(to server) func(ctx context.Context, network, address string) (net.Conn, error) {
	lookup, dial := s.Lookup, s.Dial
	if lookup == nil {
		lookup = net.DefaultResolver.LookupNetIP
	}
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		all := []netip.Addr{}
		if ip, err := netip.ParseAddr(host); err == nil {
			all = append(all, ip)
		} else if all, err = lookup(ctx, "ip", host); err != nil {
			return nil, err
		}
		err = fmt.Errorf("%s has no address", host)
		for _, ip := range all {
			if err = to.judge(ip); err != nil {
				continue
			}
			var conn net.Conn
			if conn, err = dial(ctx, network, net.JoinHostPort(ip.Unmap().String(), port)); err == nil {
				return conn, nil
			}
		}
		return nil, err
	}
}

// An answer is one with a status that says that the request was understood.
type answer struct {
	body []byte
	html bool // a page for people, of a server that is another one or wants them to log in
}

// A refusal is an answer with another status.
type refusal struct {
	status int
	words  string
	after  time.Duration // to wait, 0 when it does not tell
}

func (r *refusal) Error() string {
	text := fmt.Sprintf("%d %s", r.status, http.StatusText(r.status))
	if r.words != "" {
		text += ": " + r.words
	}
	return text
}

// final reports whether asking again cannot help.
func final(err error) bool {
	r, ok := errors.AsType[*refusal](err)
	return errors.Is(err, errRedirect) ||
		ok && (r.status == http.StatusUnauthorized || r.status == http.StatusForbidden || r.status == http.StatusNotFound)
}

// send sends one request. Errors name method and URL, and hold no secret.
func (s *session) send(ctx context.Context, method string, at *url.URL, kind string, body []byte) (a answer, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, fmt.Errorf("no answer within %s", requestTimeout))
	defer cancel()
	defer func() {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without method and URL, which are said once
		}
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			err = safe(fmt.Errorf("%s %s: %w", method, redact.URL(at), err), s.secrets)
		}
	}()
	req, err := http.NewRequestWithContext(ctx, method, at.String(), bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header = s.header.Clone()
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "headgate")
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return answer{}, err
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	a = answer{body: text, html: media == "text/html" || bytes.HasPrefix(bytes.TrimSpace(text), []byte("<"))}
	switch {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		after, _ := retry.After(resp.Header, time.Now())
		return answer{}, &refusal{status: resp.StatusCode, words: explain(a, s.secrets), after: after}
	case len(text) > maxAnswer:
		return answer{}, fmt.Errorf("the answer is longer than 1 MiB")
	}
	return a, nil
}

// explain returns what an answer says to people.
func explain(a answer, secrets []string) string {
	if a.html {
		return ""
	}
	var says struct{ Message, Cause, Details, Error any }
	_ = json.Unmarshal(a.body, &says) // of another form, or no JSON at all
	for _, words := range []any{says.Message, says.Cause, says.Details, says.Error} {
		if text, is := words.(string); is && text != "" {
			return bounded(text, secrets)
		}
	}
	return bounded(string(a.body), secrets)
}

// bounded returns what may be shown of what a server says.
func bounded(words string, secrets []string) string {
	if most := 8 * maxWords; len(words) > most {
		words = redact.Tail(words[:most], secrets...)
	}
	words = strings.TrimSpace(redact.String(strings.ToValidUTF8(words, "\uFFFD"), secrets...))
	if len(words) > maxWords {
		words = strings.ToValidUTF8(words[:maxWords], "") + "…"
	}
	return words
}

// safe returns err without secrets; it unwraps to err.
func safe(err error, secrets []string) error { return redact.Error(err, secrets...) }

// decode reads the JSON object of an answer, which may say that it is an error. What is
// not asked for may have any form.
func (s *session) decode(a answer, into any) error {
	text := bytes.TrimSpace(a.body)
	if a.html || len(text) == 0 || text[0] != '{' {
		return errors.New("the answer is no JSON object: is that the base URL of the server, and who may use it?")
	}
	var says struct{ Success, OK any }
	_ = json.Unmarshal(text, &says)
	if says.Success == false || says.OK == false {
		return fmt.Errorf("the server says that it did not succeed: %s", explain(a, s.secrets))
	}
	if err := json.Unmarshal(text, into); err != nil {
		return errors.New("the answer is no JSON of the form that was expected")
	}
	return nil
}
