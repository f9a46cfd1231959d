package api

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/call"
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/source"
)

// A Client calls the API of a server. Its errors name the server and the object, say what to do,
// and never contain the token. The error of a refused request wraps a [*Problem], which matches
// [fs.ErrNotExist] if the object does not exist, and [fs.ErrPermission] if the caller is not allowed.
type Client struct {
	Base   string       // URL of the server, as http://127.0.0.1:9090, possibly with a path prefix
	Token  string       // "" for none
	Socket string       // path of the server's socket, used instead of Base; "" for none
	HTTP   *http.Client // nil for a client without a proxy; redirects are followed within the origin of Base only

	// Lost is called with the error when an established stream breaks, and with nil when
	// the stream is established again; nil for no reports.
	Lost func(error)
}

// server returns the server that the client calls.
func (c *Client) server() call.Server {
	return call.Server{
		Name: "server of sources", URL: c.Base, Socket: c.Socket, Token: c.Token, HTTP: c.HTTP,
		Problem: func(status int, reason string) error { return &Problem{Status: status, Reason: reason} },
	}
}

// withAddress returns an operation with the address of the server, for errors.
func (c *Client) withAddress(operation string) string {
	if c.Socket != "" {
		return operation + " at the server at " + c.Socket
	}
	return operation + " at the server " + c.Base
}

// withAdvice adds advice to an error of the network.
func (c *Client) withAdvice(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return fmt.Errorf("%w: no server answers there: start one with headgate serve, or name one with --server", err)
	}
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		return fmt.Errorf("%w: give the certificates of its authority with --ca-file", err)
	}
	return err
}

// do sends a request, decodes the answer and returns its status. The error begins with operation.
func (c *Client) do(ctx context.Context, operation string, r call.Request, answer any) (int, error) {
	status, err := c.server().JSON(ctx, c.withAddress(operation), r, answer)
	return status, c.withAdvice(err)
}

// Get requests a path below /api/v1/, such as stats, and decodes its JSON into answer.
func (c *Client) Get(ctx context.Context, path string, query url.Values, answer any) error {
	_, err := c.do(ctx, "list "+path, call.Request{Path: path, Query: query}, answer)
	return err
}

// change sends a POST request to a source and returns the status of the answer.
func (c *Client) change(ctx context.Context, action string, ref source.Reference, change Change, query url.Values, answer any) (int, error) {
	return c.do(ctx, action+" "+ref.String(), call.Request{Method: http.MethodPost, Path: Path(ref, action), Query: query, Body: change}, answer)
}

// Path returns the path of a source, or of a resource below it, for Get.
func Path(ref source.Reference, below ...string) string {
	return call.Join(append([]string{"sources", strings.ToLower(ref.Kind), ref.Namespace, ref.Name}, below...)...)
}

// values returns the parameters of pairs NAME, VALUE, … without those whose value is empty.
func values(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

// A Filter selects sources; empty fields select all.
type Filter struct {
	Kind      string // of either API group, in upper or lower case
	Namespace string
	Name      string
	Ready     string // true, false or unknown
}

func (f Filter) query() url.Values {
	return values("kind", f.Kind, "namespace", f.Namespace, "name", f.Name, "ready", f.Ready)
}

// Sources returns the sources that a filter selects, ordered by kind, namespace and name, and the
// defects of documents.
func (c *Client) Sources(ctx context.Context, f Filter) ([]Source, []string, error) {
	var answer struct {
		Sources []Source `json:"sources"`
		Defects []string `json:"defects"`
	}
	err := c.Get(ctx, "sources", f.query(), &answer)
	return answer.Sources, answer.Defects, err
}

// Source returns one source.
func (c *Client) Source(ctx context.Context, ref source.Reference) (one Source, err error) {
	_, err = c.do(ctx, "look up "+ref.String(), call.Request{Path: Path(ref)}, &one)
	return one, err
}

// Reconcile requests a run and, unless wait is 0, waits for its end. Wait is at most 10 minutes. If the
// run has not ended by then, Reconcile returns the source in its current state and the ticket of the run.
func (c *Client) Reconcile(ctx context.Context, ref source.Reference, change Change, wait time.Duration) (Source, Ticket, error) {
	var answer struct {
		Source
		Ticket
	}
	status, err := c.change(ctx, "reconcile", ref, change, url.Values{"wait": {wait.String()}}, &answer)
	if err != nil || status == http.StatusOK {
		return answer.Source, answer.Ticket, err
	}
	one, err := c.Source(ctx, ref)
	return one, answer.Ticket, err
}

// Suspend suspends a source until Resume, and returns its new state.
func (c *Client) Suspend(ctx context.Context, ref source.Reference, change Change) (one Source, err error) {
	_, err = c.change(ctx, "suspend", ref, change, nil, &one)
	return one, err
}

// Resume ends a suspension, and returns the new state of the source.
func (c *Client) Resume(ctx context.Context, ref source.Reference, change Change) (one Source, err error) {
	_, err = c.change(ctx, "resume", ref, change, nil, &one)
	return one, err
}

// An EventQuery selects events.
type EventQuery struct {
	Filter
	Severity string    // least severity: trace, info or error; default info
	Since    time.Time // no events before that time
	After    int64     // only events with a higher ID
	Limit    int       // only that many of the newest; default 100, at most 1000
}

func (q EventQuery) query() url.Values {
	v := values("kind", q.Kind, "namespace", q.Namespace, "name", q.Name, "severity", q.Severity)
	if !q.Since.IsZero() {
		v.Set("since", q.Since.UTC().Format(time.RFC3339Nano))
	}
	if q.After > 0 {
		v.Set("after", strconv.FormatInt(q.After, 10))
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return v
}

// Events returns events, the oldest first.
func (c *Client) Events(ctx context.Context, q EventQuery) ([]Event, error) {
	var answer struct {
		Events []Event `json:"events"`
	}
	err := c.Get(ctx, "events", q.query(), &answer)
	return answer.Events, err
}

// FollowEvents calls each with the existing events that a query selects, and then with each new event.
// It reconnects as [Client.Watch] does. It delivers no event twice, and misses none that the server still has.
func (c *Client) FollowEvents(ctx context.Context, q EventQuery, each func(Event) error) error {
	request := func(again bool) call.Request {
		if again { // get all events that were missed
			q.Limit = 0
		}
		query := q.query()
		query.Set("follow", "true")
		return call.Request{Path: "events", Query: query}
	}
	return c.follow(ctx, "follow events", request, func(data []byte) error {
		var e Event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("event: %w", err)
		}
		if e.ID <= q.After {
			return nil
		}
		q.After = e.ID
		return each(e)
	})
}

// Watch calls each with every source that a filter selects, then once with Synced, and then with every
// change. If the connection breaks, it reconnects and reports only what changed or was deleted meanwhile.
// Watch returns nil when ctx ends, and the error of each if that fails. It also fails if the server refuses
// the request, or cannot be reached at the first attempt.
func (c *Client) Watch(ctx context.Context, f Filter, each func(Notice) error) error {
	reported, seed := make(map[Gone]uint64), maphash.MakeSeed() // hash of the last notice of each source
	var seen map[Gone]bool                                      // sources sent on this connection
	synced := false
	request := func(bool) call.Request {
		seen = make(map[Gone]bool)
		return call.Request{Path: "watch", Query: f.query()}
	}
	return c.follow(ctx, "watch sources", request, func(data []byte) error {
		var n Notice
		if err := json.Unmarshal(data, &n); err != nil {
			return fmt.Errorf("notice: %w", err)
		}
		switch {
		case n.Source != nil:
			of, sum := Gone{n.Source.Kind, n.Source.Namespace, n.Source.Name}, maphash.Bytes(seed, data)
			if seen[of] = true; reported[of] == sum {
				return nil
			}
			reported[of] = sum
		case n.Gone != nil && reported[*n.Gone] != 0:
			delete(reported, *n.Gone)
		case n.Synced:
			for of := range reported { // deleted while the connection was broken
				if !seen[of] {
					delete(reported, of)
					if err := each(Notice{Gone: &of}); err != nil {
						return err
					}
				}
			}
			if synced {
				return nil
			}
			synced = true
		default:
			return nil // already reported as gone, or of a later version of the API
		}
		return each(n)
	})
}

// follow calls each with the data of the events of a stream, and reconnects when the stream breaks. Request returns
// the request for each connection; again is true once there was a stream.
func (c *Client) follow(ctx context.Context, operation string, request func(again bool) call.Request, each func(data []byte) error) error {
	return c.withAdvice(c.server().Follow(ctx, call.FollowConfig{Operation: c.withAddress(operation), Request: request, Each: each, Lost: c.Lost}))
}

// advice says what to do about errors, by the status of the answer.
var advice = map[int]string{
	http.StatusBadRequest:         "perhaps the server speaks TLS alone: try https://",
	http.StatusUnauthorized:       "the server needs a token that is in its file and has not expired: give one with --token-file or the variable HEADGATE_TOKEN",
	http.StatusForbidden:          "the token does not allow this: give another one with --token-file or the variable HEADGATE_TOKEN, or change its entry in the file of the server",
	http.StatusServiceUnavailable: "the server is starting or shutting down: try again",
}

// Error returns the problem, and what to do about it.
func (p *Problem) Error() string {
	switch hint := advice[p.Status]; {
	case p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden:
		return call.Status(p.Status, "") + ": " + hint
	case (p.Status == http.StatusNotFound || p.Status == http.StatusConflict) && p.Reason != "":
		return p.Reason
	case hint != "" && p.Reason == "":
		return call.Status(p.Status, "") + ": " + hint
	}
	return call.Status(p.Status, p.Reason)
}

// Transient reports whether the same request may succeed later.
func (p *Problem) Transient() bool { return retry.IsRetryable(p.Status) }

// Is reports whether target is [fs.ErrNotExist] and the status is 404, or target is [fs.ErrPermission]
// and the status is 401 or 403.
func (p *Problem) Is(target error) bool {
	return target == fs.ErrNotExist && p.Status == http.StatusNotFound ||
		target == fs.ErrPermission && (p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden)
}
