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

// A Client calls the API of a server. Its errors name the server and the object
// and say what to do; what the server refuses is a [*Problem], which is
// [fs.ErrNotExist] for what there is not and [fs.ErrPermission] for what the
// caller may not. They never show the token.
type Client struct {
	Base   string       // URL of the server, as http://127.0.0.1:9090; a path prefix stays
	Token  string       // "" for none
	Socket string       // path of the server's socket; Base is not used then
	HTTP   *http.Client // nil for one without a proxy; redirects are followed within the origin of Base alone

	// Lost is told when a stream that was there is lost, and why, and with nil
	// when it is there again; nil for no reports.
	Lost func(error)
}

// server returns the server that the client calls.
func (c *Client) server() call.Server {
	return call.Server{
		Name: "server of sources", URL: c.Base, Socket: c.Socket, Token: c.Token, HTTP: c.HTTP,
		Problem: func(status int, reason string) error { return &Problem{Status: status, Reason: reason} },
	}
}

// at names the server in an operation.
func (c *Client) at(operation string) string {
	if c.Socket != "" {
		return operation + " at the server at " + c.Socket
	}
	return operation + " at the server " + c.Base
}

// advised adds what to do to an error of the network.
func (c *Client) advised(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return fmt.Errorf("%w: no server answers there: start one with headgate serve, or name one with --server", err)
	}
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		return fmt.Errorf("%w: give the certificates of its authority with --ca-file", err)
	}
	return err
}

// do makes a request, decodes its answer and returns its status. Operation begins the error.
func (c *Client) do(ctx context.Context, operation string, r call.Request, answer any) (int, error) {
	status, err := c.server().JSON(ctx, c.at(operation), r, answer)
	return status, c.advised(err)
}

// Get decodes the answer to a path below /api/v1/, such as stats.
func (c *Client) Get(ctx context.Context, path string, query url.Values, answer any) error {
	_, err := c.do(ctx, "list "+path, call.Request{Path: path, Query: query}, answer)
	return err
}

// change makes a POST request to a source and returns the status of the answer.
func (c *Client) change(ctx context.Context, action string, ref source.Reference, why Change, query url.Values, answer any) (int, error) {
	return c.do(ctx, action+" "+ref.String(), call.Request{Method: http.MethodPost, Path: Path(ref, action), Query: query, Body: why}, answer)
}

// Path returns the path of a source, or of what is below it, for Get.
func Path(ref source.Reference, below ...string) string {
	return call.Join(append([]string{"sources", strings.ToLower(ref.Kind), ref.Namespace, ref.Name}, below...)...)
}

// values returns parameters, NAME, VALUE and so on, without those that are empty.
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
	Kind      string // in either spelling, in any case
	Namespace string
	Name      string
	Ready     string // true, false or unknown
}

func (f Filter) query() url.Values {
	return values("kind", f.Kind, "namespace", f.Namespace, "name", f.Name, "ready", f.Ready)
}

// Sources returns the sources that a filter selects, in the order of kind,
// namespace and name, and what is wrong with documents.
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

// Reconcile asks for a run and, unless wait is 0, waits for its end, up to 10
// minutes. Unless it has ended the source is that of before, and the ticket
// names the run.
func (c *Client) Reconcile(ctx context.Context, ref source.Reference, why Change, wait time.Duration) (Source, Ticket, error) {
	var answer struct {
		Source
		Ticket
	}
	status, err := c.change(ctx, "reconcile", ref, why, url.Values{"wait": {wait.String()}}, &answer)
	if err != nil || status == http.StatusOK {
		return answer.Source, answer.Ticket, err
	}
	one, err := c.Source(ctx, ref)
	return one, answer.Ticket, err
}

// Suspend has a source left alone.
func (c *Client) Suspend(ctx context.Context, ref source.Reference, why Change) (one Source, err error) {
	_, err = c.change(ctx, "suspend", ref, why, nil, &one)
	return one, err
}

// Resume ends a suspension.
func (c *Client) Resume(ctx context.Context, ref source.Reference, why Change) (one Source, err error) {
	_, err = c.change(ctx, "resume", ref, why, nil, &one)
	return one, err
}

// An EventQuery selects events.
type EventQuery struct {
	Filter
	Severity string    // at least: trace, info, error; default info
	Since    time.Time // not before that
	After    int64     // only those with a higher ID
	Limit    int       // the newest; default 100, at most 1000
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

// FollowEvents calls each with the events that a query selects, and then with
// those that come. It connects again as Watch does, loses none that the server
// still has, and tells none twice.
func (c *Client) FollowEvents(ctx context.Context, q EventQuery, each func(Event) error) error {
	request := func(again bool) call.Request {
		if again { // all since are wanted, and not the newest of them
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

// Watch calls each with every source that a filter selects, once with Synced
// when all were told, and then with every change. It connects again when the
// connection breaks, until ctx ends, which is no error, or each returns an
// error, which it returns. After that it tells what has changed meanwhile and
// what is gone, and nothing twice. What the server refuses ends it, and so does
// a server that cannot be reached in the first place.
func (c *Client) Watch(ctx context.Context, f Filter, each func(Notice) error) error {
	told, seed := make(map[Gone]uint64), maphash.MakeSeed() // hash of the last notice of each source
	var seen map[Gone]bool                                  // on this connection, until all were told
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
			if seen[of] = true; told[of] == sum {
				return nil
			}
			told[of] = sum
		case n.Gone != nil && told[*n.Gone] != 0:
			delete(told, *n.Gone)
		case n.Synced:
			for of := range told { // what is gone since the connection before
				if !seen[of] {
					delete(told, of)
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
			return nil // it was told, or is of a later version
		}
		return each(n)
	})
}

// follow calls each with the data of a stream, again and again. Request returns what is asked for; again says that
// there was a stream before.
func (c *Client) follow(ctx context.Context, operation string, request func(again bool) call.Request, each func(data []byte) error) error {
	return c.advised(c.server().Follow(ctx, call.Following{Operation: c.at(operation), Request: request, Each: each, Lost: c.Lost}))
}

// advice says what to do about answers that do not say it themselves.
var advice = map[int]string{
	http.StatusBadRequest:         "perhaps the server speaks TLS alone: try https://",
	http.StatusUnauthorized:       "the server needs a token that is in its file and has not expired: give one with --token-file or the variable HEADGATE_TOKEN",
	http.StatusForbidden:          "the token does not allow this: give another one with --token-file or the variable HEADGATE_TOKEN, or change its entry in the file of the server",
	http.StatusServiceUnavailable: "the server is starting or shutting down: try again",
}

// Error returns what is wrong, and what to do.
func (p *Problem) Error() string {
	switch more := advice[p.Status]; {
	case p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden:
		return call.Status(p.Status, "") + ": " + more
	case (p.Status == http.StatusNotFound || p.Status == http.StatusConflict) && p.Reason != "":
		return p.Reason
	case more != "" && p.Reason == "":
		return call.Status(p.Status, "") + ": " + more
	}
	return call.Status(p.Status, p.Reason)
}

// Transient reports whether the answer may be another next time.
func (p *Problem) Transient() bool { return retry.Status(p.Status) }

// Is reports whether the problem is that there is no such thing, or that the
// caller may not see it: [fs.ErrNotExist], [fs.ErrPermission].
func (p *Problem) Is(target error) bool {
	return target == fs.ErrNotExist && p.Status == http.StatusNotFound ||
		target == fs.ErrPermission && (p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden)
}
