package api

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// A Client calls the API of one test runner. Answers of the server that are not
// as they should be are a [*Problem]; errors never show the token.
type Client struct {
	URL   string       // base, as http://127.0.0.1:8080; a path prefix stays
	Token string       // sent as bearer token; "" for none
	HTTP  *http.Client // nil for one of its own; redirects are followed within the origin of URL alone

	Connected func() // called by Watch when the server has begun to tell of changes; nil for nothing
}

// Filter selects gates, runs and entries. Empty fields select all.
type Filter struct {
	Kind      Kind
	Namespace string
	Name      string
	Gate      string
	Type      string
	State     RunState
	Waiting   bool
	Limit     int    // default 100, at most 1000
	Before    string // the ID to go on from
}

// query returns the parameters of the filter.
func (f Filter) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"kind": string(f.Kind), "namespace": f.Namespace, "name": f.Name, "gate": f.Gate,
		"type": f.Type, "state": string(f.State), "before": f.Before,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.Waiting {
		q.Set("waiting", "true")
	}
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	return q
}

// Gates returns the gates that f selects.
func (c *Client) Gates(ctx context.Context, f Filter) ([]Gate, error) {
	var answer struct {
		Gates []Gate `json:"gates"`
	}
	err := c.call(ctx, "list gates", request{method: http.MethodGet, path: "gates", query: f.query(), answer: &answer})
	return answer.Gates, err
}

// Gate returns one gate.
func (c *Client) Gate(ctx context.Context, k Key) (Gate, error) {
	var gate Gate
	err := c.call(ctx, "look up "+k.String(), request{method: http.MethodGet, path: gatePath(k), answer: &gate})
	return gate, err
}

// Open opens a gate, Close closes it, Reject closes it and opens the rollback switch of the canary.
func (c *Client) Open(ctx context.Context, k Key, change Change) (Gate, error) {
	return c.change(ctx, "open", k, change)
}

func (c *Client) Close(ctx context.Context, k Key, change Change) (Gate, error) {
	return c.change(ctx, "close", k, change)
}

func (c *Client) Reject(ctx context.Context, k Key, change Change) (Gate, error) {
	return c.change(ctx, "reject", k, change)
}

func (c *Client) change(ctx context.Context, action string, k Key, change Change) (Gate, error) {
	var gate Gate
	err := c.call(ctx, action+" "+k.String(), request{method: http.MethodPost, path: gatePath(k, action), body: change, answer: &gate})
	return gate, err
}

// Link returns links that decide about what waits at k.
func (c *Client) Link(ctx context.Context, k Key, r LinkRequest) (Link, error) {
	var link Link
	err := c.call(ctx, "link "+k.String(), request{method: http.MethodPost, path: gatePath(k, "link"), body: r, answer: &link})
	return link, err
}

// Audit returns the newest entries that f selects.
func (c *Client) Audit(ctx context.Context, f Filter) ([]Entry, error) {
	var answer struct {
		Entries []Entry `json:"entries"`
	}
	err := c.call(ctx, "read the audit trail", request{method: http.MethodGet, path: "audit", query: f.query(), answer: &answer})
	return answer.Entries, err
}

// Runs returns the newest runs that f selects, without their output.
func (c *Client) Runs(ctx context.Context, f Filter) ([]Run, error) {
	var answer struct {
		Runs []Run `json:"runs"`
	}
	err := c.call(ctx, "list runs", request{method: http.MethodGet, path: "runs", query: f.query(), answer: &answer})
	return answer.Runs, err
}

// Run returns one run.
func (c *Client) Run(ctx context.Context, id string) (Run, error) {
	var run Run
	err := c.call(ctx, "look up run "+id, request{method: http.MethodGet, path: join("runs", id), answer: &run})
	return run, err
}

// Output copies the output of a run to w; with follow until it has ended.
func (c *Client) Output(ctx context.Context, id string, follow bool, w io.Writer) error {
	r := request{method: http.MethodGet, path: join("runs", id, "output"), accept: "text/plain"}
	if follow {
		r.query = url.Values{"follow": {"true"}}
	}
	operation := "read the output of run " + id
	resp, err := c.send(ctx, r)
	if err != nil {
		return c.failed(operation, err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return c.failed(operation, err)
	}
	return nil
}

// Cancel ends a run.
func (c *Client) Cancel(ctx context.Context, id string) (Run, error) {
	var run Run
	err := c.call(ctx, "cancel run "+id, request{method: http.MethodPost, path: join("runs", id, "cancel"), answer: &run})
	return run, err
}

// gatePath is the path of a gate, or of an action on it.
func gatePath(k Key, action ...string) string {
	return join(append([]string{"gates", string(k.Kind), k.Namespace, k.Name, k.Gate}, action...)...)
}

// join returns the path of segments, "" when one of them cannot be in a path.
func join(segments ...string) string {
	escaped := make([]string, len(segments))
	for i, s := range segments {
		if s == "" || s == "." || s == ".." {
			return ""
		}
		escaped[i] = url.PathEscape(s)
	}
	return strings.Join(escaped, "/")
}
