// Package call sends requests to the servers of this module, for their clients.
//
// It follows redirects only within the origin of the server, and only if they repeat the request.
// The size of answers is limited. Errors never contain the token.
package call

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/internal/origin"
	"github.com/headgate-io/headgate/internal/redact"
)

const (
	apiPrefix    = "/api/v1/"
	maxAnswer    = 64 << 20 // bytes of a JSON answer
	maxProblem   = 64 << 10 // bytes of an error answer
	maxReason    = 2000     // bytes of the reason in an error answer
	maxRedirects = 10
)

// A Server is the address and credentials of a headgate server.
type Server struct {
	Name   string       // of the server in errors, such as test runner
	URL    string       // base URL, as http://127.0.0.1:8080, possibly with a path prefix
	Socket string       // path of its socket, used instead of URL; "" for none
	Token  string       // sent as bearer token; "" for none
	HTTP   *http.Client // nil for a client without a proxy

	Problem func(status int, reason string) error // returns the error for an answer with a status of 300 or more
}

// A Request is one call of the API.
type Request struct {
	Method string // "" for GET
	Path   string // below /api/v1/, escaped; see Join
	Query  url.Values
	Body   any    // sent as JSON; nil for none
	Accept string // default application/json
}

// Join escapes segments and joins them to a path. It returns "" if a segment is "", "." or "..".
func Join(segments ...string) string {
	escaped := make([]string, len(segments))
	for i, s := range segments {
		if s == "" || s == "." || s == ".." {
			return ""
		}
		escaped[i] = url.PathEscape(s)
	}
	return strings.Join(escaped, "/")
}

// JSON sends a request, decodes the answer into answer and returns its status. The error begins with
// operation.
func (s Server) JSON(ctx context.Context, operation string, r Request, answer any) (int, error) {
	resp, err := s.Send(ctx, r)
	if err != nil {
		return 0, s.WrapError(operation, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
	case len(text) > maxAnswer:
		err = fmt.Errorf("the answer has more than %d MiB: select less", maxAnswer>>20)
	default:
		if err = json.Unmarshal(text, answer); err != nil {
			err = fmt.Errorf("the answer is not that of a %s: %w", s.Name, err)
		}
	}
	return resp.StatusCode, s.WrapError(operation, err)
}

// WrapError prepends operation to err and redacts the token in it; nil stays nil.
func (s Server) WrapError(operation string, err error) error {
	if err == nil {
		return nil
	}
	return redact.Error(fmt.Errorf("%s: %w", operation, err), s.Token)
}

// Send sends a request. If the status of the answer is below 300, the caller closes its body. Otherwise the
// error is that of s.Problem.
func (s Server) Send(ctx context.Context, r Request) (*http.Response, error) {
	req, err := s.prepare(ctx, r)
	if err != nil {
		return nil, err
	}
	resp, err := s.client().Do(req)
	if err != nil {
		if outer, is := errors.AsType[*url.Error](err); is {
			err = outer.Err // without the URL, which is added below in redacted form
		}
		return nil, fmt.Errorf("%s: %w", cmp.Or(s.Socket, redact.URL(req.URL)), err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, s.Problem(resp.StatusCode, reason(resp))
}

func (s Server) prepare(ctx context.Context, r Request) (*http.Request, error) {
	if s.Socket != "" {
		s.URL = "http://localhost"
	}
	base, err := url.Parse(s.URL)
	switch {
	case err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "":
		return nil, fmt.Errorf("the URL of the %s has to be http://HOST or https://HOST", s.Name)
	case r.Path == "":
		return nil, errors.New("a name is empty or made of dots, which no path of the API can have")
	}
	at := base.JoinPath(apiPrefix, r.Path)
	at.RawQuery, at.Fragment = r.Query.Encode(), ""
	var body io.Reader
	header := http.Header{"Accept": {cmp.Or(r.Accept, "application/json")}}
	if r.Body != nil {
		text, err := json.Marshal(r.Body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
		header.Set("Content-Type", "application/json")
	}
	if s.Token != "" {
		header.Set("Authorization", "Bearer "+s.Token)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, at.String(), body)
	if err == nil {
		req.Header = header
	}
	return req, err
}

// client returns the HTTP client, which follows redirects only within one origin and only if they repeat the request.
func (s Server) client() *http.Client {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	switch {
	case s.Socket != "":
		client.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return httpserve.DialSocket(ctx, s.Socket)
		}}
	case s.HTTP != nil:
		client = *s.HTTP
	}
	client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
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
	return &client
}

// reason reads the reason in an error answer, "" if there is none.
func reason(resp *http.Response) string {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem))
	var p struct {
		Reason string `json:"reason"`
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if json.Unmarshal(text, &p) != nil && kind == "text/plain" {
		p.Reason = string(text)
	}
	return redact.Excerpt(p.Reason, maxReason)
}

// Status returns the text of an error for an answer with a status and a reason, which may be "".
func Status(status int, reason string) string {
	text := fmt.Sprintf("status %d", status)
	if reason == "" {
		return strings.TrimSpace(text + " " + http.StatusText(status))
	}
	return text + ": " + reason
}
