package api

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

	"github.com/headgate-io/headgate/internal/origin"
	"github.com/headgate-io/headgate/internal/redact"
)

const (
	maxAnswer    = 64 << 20 // bytes of a JSON answer
	maxProblem   = 64 << 10 // bytes of an error answer
	maxReason    = 2000     // bytes of its reason
	maxRedirects = 10
)

// A request is one call of the API.
type request struct {
	method string
	path   string // below /api/v1/, escaped; "" when what it is about cannot be in a path
	query  url.Values
	body   any    // sent as JSON; nil for none
	accept string // default application/json
	answer any    // of a JSON answer
}

// call makes a request and decodes its answer. Operation begins the error.
func (c *Client) call(ctx context.Context, operation string, r request) error {
	resp, err := c.send(ctx, r)
	if err != nil {
		return c.failed(operation, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
	case len(text) > maxAnswer:
		err = fmt.Errorf("the answer has more than %d MiB: select less", maxAnswer>>20)
	default:
		if err = json.Unmarshal(text, r.answer); err != nil {
			err = fmt.Errorf("the answer is not that of a test runner: %w", err)
		}
	}
	return c.failed(operation, err)
}

// failed returns err as an error of an operation; nil stays nil.
func (c *Client) failed(operation string, err error) error {
	if err == nil {
		return nil
	}
	return redact.Error(fmt.Errorf("%s: %w", operation, err), c.Token)
}

// send makes a request. The caller closes the body of the answer, whose status
// is below 300.
func (c *Client) send(ctx context.Context, r request) (*http.Response, error) {
	req, err := c.prepare(ctx, r)
	if err != nil {
		return nil, err
	}
	resp, err := c.client().Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // what it adds is the URL
		}
		return nil, fmt.Errorf("%s: %w", redact.URL(req.URL), err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, problem(resp)
}

func (c *Client) prepare(ctx context.Context, r request) (*http.Request, error) {
	base, err := url.Parse(c.URL)
	switch {
	case err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "":
		return nil, errors.New("the URL of the test runner has to be http://HOST or https://HOST")
	case r.path == "":
		return nil, errors.New("a name is empty or made of dots, which no path of the API can have")
	}
	at := *base
	path := strings.TrimRight(base.EscapedPath(), "/") + "/api/v1/" + r.path
	if at.Path, err = url.PathUnescape(path); err != nil {
		return nil, err
	}
	at.RawPath, at.RawQuery, at.Fragment = path, r.query.Encode(), ""
	var body io.Reader
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, at.String(), body)
	if err != nil {
		return nil, err
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.accept == "" {
		r.accept = "application/json"
	}
	req.Header.Set("Accept", r.accept)
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	return req, nil
}

// client returns the HTTP client, which follows redirects within one origin
// that repeat the request.
func (c *Client) client() *http.Client {
	own := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if c.HTTP != nil {
		own = *c.HTTP
	}
	own.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		switch {
		case origin.Of(req.URL) != origin.Of(via[0].URL):
			return fmt.Errorf("redirect to another server, %s: give that as the URL if it is right", redact.URL(req.URL))
		case req.Method != via[0].Method:
			return fmt.Errorf("redirect to %s that would not repeat the request", redact.URL(req.URL))
		case len(via) > maxRedirects:
			return errors.New("too many redirects")
		}
		return nil
	}
	return &own
}

// problem reads the error of an answer.
func problem(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	p := new(Problem)
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if json.Unmarshal(text, p) != nil || p.Reason == "" {
		p.Reason = ""
		if kind == "text/plain" {
			p.Reason = string(text)
		}
	}
	p.Status = resp.StatusCode
	p.Reason = redact.String(p.Reason)
	if len(p.Reason) > maxReason {
		p.Reason = strings.ToValidUTF8(p.Reason[:maxReason], "") + "…"
	}
	return p
}

// Error returns status and reason.
func (p *Problem) Error() string {
	text := fmt.Sprintf("status %d", p.Status)
	if p.Reason == "" {
		return strings.TrimSpace(text + " " + http.StatusText(p.Status))
	}
	return text + ": " + p.Reason
}
