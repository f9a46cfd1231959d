package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
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
	maxMessage     = 300 // bytes of a server's text in a message
	maxRedirects   = 5
)

// newClient returns the HTTP client of one run.
func (j *job) newClient() *http.Client {
	s := j.servers
	t := &http.Transport{
		DialContext:            s.dialer(j.target),
		TLSHandshakeTimeout:    dialTimeout,
		MaxResponseHeaderBytes: maxHeader,
		MaxIdleConnsPerHost:    1,
		DisableCompression:     true,
	}
	if s.Proxy != nil {
		if proxy, err := s.Proxy(&http.Request{Method: http.MethodGet, URL: j.target.url, Header: http.Header{}, Host: j.target.url.Host}); proxy != nil || err != nil {
			t.Proxy = func(*http.Request) (*url.URL, error) { return proxy, err }
			t.DialContext = s.Dial // the proxy is configured, and looks up the server itself
		}
	}
	return &http.Client{Transport: t, CheckRedirect: checkRedirect}
}

// checkRedirect allows redirects of GET requests within the origin.
func checkRedirect(req *http.Request, via []*http.Request) error {
	switch first := via[0]; {
	case first.Method != http.MethodGet, origin.Of(first.URL) != origin.Of(req.URL):
		return fmt.Errorf("%w to %s", errRedirect, redact.Excerpt(redact.URL(req.URL), maxMessage))
	case len(via) > maxRedirects:
		return fmt.Errorf("%w more than %d times", errRedirect, maxRedirects)
	}
	return nil
}

var errRedirect = errors.New("a redirect is not followed")

// A statusError is an answer whose status is not 200 to 299.
type statusError struct {
	status     int
	message    string
	retryAfter time.Duration // how long to wait, as Retry-After says; 0 without it
}

func (r *statusError) Error() string {
	return strings.TrimSuffix(fmt.Sprintf("%d %s: %s", r.status, http.StatusText(r.status), r.message), ": ")
}

// requestJSON sends a request, and decodes the JSON object of the answer unless into is nil. Errors
// contain no secret.
func (j *job) requestJSON(ctx context.Context, method, path, body string, into any) error {
	text, page, err := j.send(ctx, method, path, body)
	switch {
	case err != nil || into == nil:
		return err
	case page || !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")):
		return errors.New("the answer is no JSON object: is that the base URL of the server, and who may use it?")
	}
	var reply struct{ Success, OK any }
	_ = json.Unmarshal(text, &reply) // the next call reports invalid JSON
	if reply.Success == false || reply.OK == false {
		return fmt.Errorf("the server says that it did not succeed: %s", j.serverMessage(text))
	}
	if err := json.Unmarshal(text, into); err != nil {
		return errors.New("the answer is no JSON of the form that was expected")
	}
	return nil
}

// send sends a request and returns the body of its answer. Page reports that the body is a web
// page, as of another server or for a login. Errors name method and URL.
func (j *job) send(ctx context.Context, method, path, body string) (text []byte, page bool, err error) {
	path, query, _ := strings.Cut(path, "?")
	at := j.target.url.JoinPath(path)
	at.RawQuery = query
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, fmt.Errorf("no answer within %s", requestTimeout))
	defer cancel()
	defer func() {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without method and URL, which are added below
		}
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			err = redact.Error(fmt.Errorf("%s %s: %w", method, redact.URL(at), err), j.secrets...)
		}
	}()
	req, err := http.NewRequestWithContext(ctx, method, at.String(), strings.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	req.Header = j.header.Clone()
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "headgate")
	if body != "" {
		req.Header.Set("Content-Type", j.contentType)
	}
	resp, err := j.client.Do(req)
	if err != nil {
		return nil, false, err
	}
	defer resp.Body.Close()
	if text, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1)); err != nil {
		return nil, false, err
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	page = media == "text/html" || bytes.HasPrefix(bytes.TrimSpace(text), []byte("<"))
	switch {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		refused := &statusError{status: resp.StatusCode}
		if refused.retryAfter, _ = retry.After(resp.Header, time.Now()); !page {
			refused.message = j.serverMessage(text)
		}
		return nil, false, refused
	case len(text) > maxAnswer:
		return nil, false, fmt.Errorf("the answer is longer than 1 MiB")
	}
	return text, page, nil
}

// serverMessage returns the message of an answer, redacted and shortened.
func (j *job) serverMessage(text []byte) string {
	var reply struct{ Message, Cause, Details, Error any }
	_ = json.Unmarshal(text, &reply) // it may have another form, or be no JSON at all
	for _, words := range []any{reply.Message, reply.Cause, reply.Details, reply.Error, string(text)} {
		if text, is := words.(string); is && text != "" {
			return redact.Excerpt(text, maxMessage, j.secrets...)
		}
	}
	return ""
}
