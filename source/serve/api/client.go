package api

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/headgate-io/headgate/internal/call"
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

// place names the server.
func (c *Client) place() string {
	if c.Socket != "" {
		return "the server at " + c.Socket
	}
	return "the server " + c.Base
}

// advised adds what to do to an error of the network.
func (c *Client) advised(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) || c.Socket != "" && errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("%w: there is no server; start one by headgate serve, or name it by --server", err)
	}
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		return fmt.Errorf("%w: give the certificates of its authority by --ca-file", err)
	}
	return err
}

// call makes a request and decodes its answer. Operation begins the error.
func (c *Client) call(ctx context.Context, operation string, r call.Request, answer any) (int, error) {
	status, err := c.server().JSON(ctx, operation+" at "+c.place(), r, answer)
	return status, c.advised(err)
}

// A Filter selects sources; empty fields select all.
type Filter struct {
	Kind      string // in either spelling, in any case
	Namespace string
	Name      string
	Ready     string // true, false or unknown
}

// query returns the parameters of the filter.
func (f Filter) query() url.Values {
	return values(map[string]string{"kind": f.Kind, "namespace": f.Namespace, "name": f.Name, "ready": f.Ready})
}

// values returns parameters without those that are empty.
func values(of map[string]string) url.Values {
	q := url.Values{}
	for name, value := range of {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// pathOf returns the path of a source, or of what is below it.
func pathOf(ref source.Reference, below ...string) string {
	return call.Join(append([]string{"sources", strings.ToLower(ref.Kind), ref.Namespace, ref.Name}, below...)...)
}

// Sources returns the sources that a filter selects, in the order of kind,
// namespace and name, and what is wrong with documents.
func (c *Client) Sources(ctx context.Context, f Filter) ([]Source, []string, error) {
	var answer struct {
		Sources []Source `json:"sources"`
		Defects []string `json:"defects"`
	}
	_, err := c.call(ctx, "list sources", call.Request{Method: http.MethodGet, Path: "sources", Query: f.query()}, &answer)
	return answer.Sources, answer.Defects, err
}

// Source returns one source.
func (c *Client) Source(ctx context.Context, ref source.Reference) (Source, error) {
	var one Source
	_, err := c.call(ctx, "look up "+ref.String(), call.Request{Method: http.MethodGet, Path: pathOf(ref)}, &one)
	return one, err
}

// Files returns files of the artifact of a source in the order of their paths,
// those after one of them, and the path to go on from, "" at the end. At most
// limit, 0 for as many as the server likes.
func (c *Client) Files(ctx context.Context, ref source.Reference, after string, limit int) ([]File, string, error) {
	var answer struct {
		Files []File `json:"files"`
		Next  string `json:"next"`
	}
	q := values(map[string]string{"after": after})
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	_, err := c.call(ctx, "list files of "+ref.String(), call.Request{Method: http.MethodGet, Path: pathOf(ref, "files"), Query: q}, &answer)
	return answer.Files, answer.Next, err
}

// Runs returns the last notable runs of a source, the newest first.
func (c *Client) Runs(ctx context.Context, ref source.Reference) ([]Run, error) {
	var answer struct {
		Runs []Run `json:"runs"`
	}
	_, err := c.call(ctx, "list runs of "+ref.String(), call.Request{Method: http.MethodGet, Path: pathOf(ref, "runs")}, &answer)
	return answer.Runs, err
}

// Document returns the YAML document of a source with its status.
func (c *Client) Document(ctx context.Context, ref source.Reference) ([]byte, error) {
	operation := "read " + ref.String() + " at " + c.place()
	resp, err := c.server().Send(ctx, call.Request{Method: http.MethodGet, Path: pathOf(ref), Accept: "application/yaml"})
	if err != nil {
		return nil, c.advised(c.server().Failed(operation, err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err == nil && len(text) > maxDocument {
		err = fmt.Errorf("the document has more than %d MiB", maxDocument>>20)
	}
	return text, c.server().Failed(operation, err)
}

const maxDocument = 16 << 20 // bytes

// Reconcile asks for a run and, unless wait is 0, waits for its end, up to 10
// minutes. Unless it has ended the source is that of before, and the ticket
// names the run.
func (c *Client) Reconcile(ctx context.Context, ref source.Reference, why Change, wait time.Duration) (Source, Ticket, error) {
	var answer struct {
		Source
		Ticket
	}
	r := call.Request{Method: http.MethodPost, Path: pathOf(ref, "reconcile"), Body: why}
	if wait > 0 {
		r.Query = url.Values{"wait": {wait.String()}}
	}
	status, err := c.call(ctx, "reconcile "+ref.String(), r, &answer)
	if err != nil || status == http.StatusOK {
		return answer.Source, answer.Ticket, err
	}
	one, err := c.Source(ctx, ref)
	return one, answer.Ticket, err
}

// Suspend has a source left alone.
func (c *Client) Suspend(ctx context.Context, ref source.Reference, why Change) (Source, error) {
	return c.change(ctx, "suspend", ref, why)
}

// Resume ends a suspension.
func (c *Client) Resume(ctx context.Context, ref source.Reference, why Change) (Source, error) {
	return c.change(ctx, "resume", ref, why)
}

func (c *Client) change(ctx context.Context, action string, ref source.Reference, why Change) (Source, error) {
	var one Source
	_, err := c.call(ctx, action+" "+ref.String(), call.Request{Method: http.MethodPost, Path: pathOf(ref, action), Body: why}, &one)
	return one, err
}

// Stats returns how much there is to do.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	var s Stats
	_, err := c.call(ctx, "look up the state", call.Request{Method: http.MethodGet, Path: "stats"}, &s)
	return s, err
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
	v := q.Filter.query()
	v.Del("ready")
	if q.Severity != "" {
		v.Set("severity", q.Severity)
	}
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
	_, err := c.call(ctx, "list events", call.Request{Method: http.MethodGet, Path: "events", Query: q.query()}, &answer)
	return answer.Events, err
}
