package traffic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
)

// A Request is what an [HTTP] sends for an operation. URL, Header and Body are
// templates over [Values]; in a URL, texts are escaped so that each stays what
// it is: a part of a path, or a value of a query. A part that is . or .. is an
// error.
type Request struct {
	Method string // default GET for operations that ask, POST for others
	URL    string
	Header map[string]string
	Body   string
}

// HTTP is a [Driver] that sends requests. A status from 200 to 299 is success,
// and the body is the answer, of at most 64 KiB. To a question whether the
// workload is ready, 410 answers that it never will be, any other that it is
// not yet.
//
// Redirects with 307 and 308 are followed on the origin of the URL; any other
// is an error that names where it leads to.
type HTTP struct {
	Requests  map[Operation]Request
	Timeout   time.Duration     // of one operation, default 30s
	Transport http.RoundTripper // default connects directly, and keeps no connection
	Secrets   []string          // texts that errors never contain, beside the values of headers
}

var _ Driver = (*HTTP)(nil)

// Has reports whether there is a request for op.
func (h *HTTP) Has(op Operation) bool { return h.Requests[op].URL != "" }

// Do sends the request of op.
func (h *HTTP) Do(ctx context.Context, op Operation, v Values) (string, error) {
	r, err := h.Requests[op].expand(op, v)
	if err != nil {
		return "", err
	}
	secrets := append(r.secrets(), h.Secrets...)
	limit := or(h.Timeout, 30*time.Second)
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %s: %w", limit, context.DeadlineExceeded))
	defer cancel()
	answer, err := h.send(limited, op, r)
	switch {
	case err == nil:
		return answer, nil
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case limited.Err() != nil:
		return "", context.Cause(limited)
	}
	return "", redact.Error(err, secrets...)
}

func (h *HTTP) send(ctx context.Context, op Operation, r Request) (string, error) {
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, strings.NewReader(r.Body))
	if err != nil {
		return "", err
	}
	for name, value := range r.Header {
		if strings.EqualFold(name, "Host") {
			req.Host = value
		} else {
			req.Header.Set(name, value)
		}
	}
	client := http.Client{Transport: h.Transport, CheckRedirect: stay}
	if client.Transport == nil {
		transport := newTransport(0)
		defer transport.CloseIdleConnections()
		client.Transport = transport
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxText+1))
	switch ok := resp.StatusCode >= 200 && resp.StatusCode <= 299; {
	case !ok:
		return "", refused(op, resp, body)
	case !op.asks():
		return "", nil
	case err != nil:
		return "", err
	case len(body) > maxText:
		return "", fmt.Errorf("the answer is longer than %d bytes", maxText)
	}
	return string(body), nil
}

// maxReason is how much of a body is told in an error, in bytes.
const maxReason = 512

func refused(op Operation, resp *http.Response, body []byte) error {
	text := fmt.Sprintf("status %d", resp.StatusCode)
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode/100 == 3 {
		text += ": redirect to " + to + " refused"
	} else if body = bytes.TrimSpace(body[:min(len(body), maxReason)]); len(body) > 0 {
		text += ": " + string(body)
	}
	if op.ready() && resp.StatusCode == http.StatusGone {
		return fmt.Errorf("%w: %s", rollout.ErrStuck, text)
	}
	return errors.New(text)
}

// stay follows 307 and 308 on the same origin. Another redirect is the answer.
func stay(req *http.Request, via []*http.Request) error {
	status := req.Response.StatusCode
	replays := status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
	same := req.URL.Scheme == via[0].URL.Scheme && req.URL.Host == via[0].URL.Host
	if !replays || !same || len(via) > 5 {
		return http.ErrUseLastResponse
	}
	return nil
}

// expand returns the request as it is sent.
func (r Request) expand(op Operation, v Values) (Request, error) {
	if r.Method == "" {
		r.Method = http.MethodPost
		if op.ready() || op.asks() {
			r.Method = http.MethodGet
		}
	}
	var err error
	if r.URL, err = expand(r.URL, v.escaped()); err != nil {
		return r, fmt.Errorf("url: %w", err)
	}
	u, err := url.Parse(r.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return r, errors.New("url: give an absolute one with http or https")
	}
	for part := range strings.SplitSeq(u.EscapedPath(), "/") {
		if text, _ := url.PathUnescape(part); text == "." || text == ".." {
			return r, fmt.Errorf("url: a part of its path is %q: servers take that for another path", text)
		}
	}
	if r.Body, err = expand(r.Body, v); err != nil {
		return r, fmt.Errorf("body: %w", err)
	}
	header := map[string]string{}
	for name, text := range r.Header {
		if header[name], err = expand(text, v); err != nil {
			return r, fmt.Errorf("header %s: %w", name, err)
		}
	}
	r.Header = header
	return r, nil
}

// open are headers whose values are no secret.
var open = []string{"accept", "content-type", "host", "user-agent"}

func (r Request) secrets() []string {
	var list []string
	for name, value := range r.Header {
		if !slices.Contains(open, strings.ToLower(name)) {
			_, credentials, _ := strings.Cut(value, " ") // Bearer TOKEN
			list = append(list, value, credentials)
		}
	}
	return list
}

// escaped returns v with texts that stand for themselves anywhere in a URL.
func (v Values) escaped() Values {
	for _, text := range []*string{&v.Name, &v.Namespace, &v.Target, &v.Service, &v.Revision} {
		*text = strings.ReplaceAll(url.QueryEscape(*text), "+", "%20")
	}
	return v
}

// Check returns what is wrong with the requests: templates that cannot be
// executed, URLs that are none, and operations that there are not.
func (h *HTTP) Check() error {
	var errs []error
	for op, r := range h.Requests {
		if err := op.check(); err != nil {
			errs = append(errs, err)
		} else if _, err := r.expand(op, Values{Operation: op}); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", op, err))
		}
	}
	return errors.Join(errs...)
}
