package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/headgate-io/headgate/internal/call"
	"github.com/headgate-io/headgate/internal/retry"
)

// A Client calls the API of one test runner. If the server answers with an error status,
// the error is a [*Problem]. Errors never contain the token.
type Client struct {
	URL   string       // base URL, such as http://127.0.0.1:8080; it may have a path
	Token string       // sent as bearer token; "" for none
	HTTP  *http.Client // nil for a client of its own; redirects are followed within the origin of URL only

	// Lost is called with the cause when Watch loses the connection, and with nil
	// when Watch has a connection again; nil for no reports.
	Lost func(error)
}

// Filter selects gates, runs and entries. Empty fields select all.
type Filter struct {
	Kind      Kind
	Namespace string
	Name      string
	Gate      string
	Checksum  string // of runs
	Type      string
	State     RunState
	Waiting   bool   // only gates where a check waits,
	Stale     bool   // with Waiting also those whose wait is stale
	Limit     int    // default 100, at most 1000
	Before    string // only entries or runs before this ID
}

// Selects reports whether the filter selects a key.
func (f Filter) Selects(k Key) bool {
	return (f.Kind == "" || f.Kind == k.Kind) && (f.Namespace == "" || f.Namespace == k.Namespace) &&
		(f.Name == "" || f.Name == k.Name) && (f.Gate == "" || f.Gate == k.Gate)
}

// query returns the parameters of the filter.
func (f Filter) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"kind": string(f.Kind), "namespace": f.Namespace, "name": f.Name, "gate": f.Gate,
		"type": f.Type, "state": string(f.State), "before": f.Before, "checksum": f.Checksum,
		"waiting": strconv.FormatBool(f.Waiting), "stale": strconv.FormatBool(f.Stale), "limit": strconv.Itoa(f.Limit),
	} {
		if value != "" && value != "false" && value != "0" {
			q.Set(name, value)
		}
	}
	return q
}

// Gates returns the gates that f selects.
func (c *Client) Gates(ctx context.Context, f Filter) ([]Gate, error) {
	answer, err := callJSON[struct{ Gates []Gate }](ctx, c, "list gates", call.Request{Path: "gates", Query: f.query()})
	return answer.Gates, err
}

// Gate returns one gate.
func (c *Client) Gate(ctx context.Context, k Key) (Gate, error) {
	return callJSON[Gate](ctx, c, "look up "+k.String(), call.Request{Path: gatePath(k)})
}

// Audit returns the newest entries that f selects.
func (c *Client) Audit(ctx context.Context, f Filter) ([]Entry, error) {
	answer, err := callJSON[struct{ Entries []Entry }](ctx, c, "read the audit trail", call.Request{Path: "audit", Query: f.query()})
	return answer.Entries, err
}

// Runs returns the newest runs that f selects, without their output.
func (c *Client) Runs(ctx context.Context, f Filter) ([]Run, error) {
	answer, err := callJSON[struct{ Runs []Run }](ctx, c, "list runs", call.Request{Path: "runs", Query: f.query()})
	return answer.Runs, err
}

// Run returns one run.
func (c *Client) Run(ctx context.Context, id string) (Run, error) {
	return callJSON[Run](ctx, c, "look up run "+id, call.Request{Path: call.Join("runs", id)})
}

// Change carries out an action on a gate, and returns its new state. The action is open,
// close, or reject, which closes a gate and opens the rollback switch of the canary for
// change.Checksum, by default for the revision that waits.
func (c *Client) Change(ctx context.Context, action string, k Key, change Change) (Gate, error) {
	return callJSON[Gate](ctx, c, action+" "+k.String(), call.Request{Method: http.MethodPost, Path: gatePath(k, action), Body: change})
}

// Link returns links that approve or reject the revision that waits at k.
func (c *Client) Link(ctx context.Context, k Key, r LinkRequest) (Link, error) {
	return callJSON[Link](ctx, c, "link "+k.String(), call.Request{Method: http.MethodPost, Path: gatePath(k, "link"), Body: r})
}

// Cancel ends a run, and returns it.
func (c *Client) Cancel(ctx context.Context, id string) (Run, error) {
	return callJSON[Run](ctx, c, "cancel run "+id, call.Request{Method: http.MethodPost, Path: call.Join("runs", id, "cancel")})
}

// Output copies the output of a run to w; with follow until it has ended.
func (c *Client) Output(ctx context.Context, id string, follow bool, w io.Writer) error {
	r := call.Request{Path: call.Join("runs", id, "output"), Accept: "text/plain", Query: url.Values{"follow": {strconv.FormatBool(follow)}}}
	resp, err := c.server().Send(ctx, r)
	if err == nil {
		defer resp.Body.Close()
		_, err = io.Copy(w, resp.Body)
	}
	return c.server().WrapError("read the output of run "+id, err)
}

// gatePath is the path of a gate, or of an action on it.
func gatePath(k Key, action ...string) string {
	return call.Join(append([]string{"gates", string(k.Kind), k.Namespace, k.Name, k.Gate}, action...)...)
}

// server returns the server that the client calls.
func (c *Client) server() call.Server {
	return call.Server{
		Name: "test runner", URL: c.URL, Token: c.Token, HTTP: c.HTTP,
		Problem: func(status int, reason string) error { return &Problem{Status: status, Reason: reason} },
	}
}

// callJSON makes a request and decodes its answer. Operation begins the error.
func callJSON[T any](ctx context.Context, c *Client, operation string, r call.Request) (answer T, err error) {
	_, err = c.server().JSON(ctx, operation, r, &answer)
	return answer, err
}

// Error returns status and reason.
func (p *Problem) Error() string { return call.Status(p.Status, p.Reason) }

// Transient reports whether a retry may succeed.
func (p *Problem) Transient() bool { return retry.IsRetryable(p.Status) }

// Watch calls each with the gates that f selects, and then with every change of
// one of them or of a run. If the connection breaks, Watch connects again and calls
// each with the gates once more. It returns nil when ctx ends, and the error of each
// if that fails. It also returns an error if the server refuses a request, or cannot
// be reached in the first place.
func (c *Client) Watch(ctx context.Context, f Filter, each func(Notice) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var eachErr error
	tell := func(n Notice) error {
		if n.Gate == nil && n.Run == nil || n.Gate != nil && !f.Selects(n.Gate.Key) { // a notice of a later version, or a gate that f does not select
			return nil
		}
		if eachErr = each(n); eachErr != nil {
			stop()
		}
		return eachErr
	}
	err := c.server().Follow(ctx, call.FollowConfig{
		Operation: "watch", Lost: c.Lost,
		Request: func(bool) call.Request { return call.Request{Path: "watch"} },
		Connected: func() error {
			gates, err := c.Gates(ctx, f)
			for i := 0; i < len(gates) && err == nil; i++ {
				err = tell(Notice{Gate: &gates[i]})
			}
			return err
		},
		Each: func(data []byte) error {
			var n Notice
			if err := json.Unmarshal(data, &n); err != nil {
				return fmt.Errorf("watch: event: %w", err)
			}
			return tell(n)
		},
	})
	return cmp.Or(eachErr, err)
}
