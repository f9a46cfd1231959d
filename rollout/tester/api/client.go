package api

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
)

var errTODO = errors.New("not built yet")

// A Client calls the API of one test runner.
type Client struct {
	URL   string       // base, as http://127.0.0.1:8080; a path prefix stays
	Token string       // sent as bearer token; "" for none
	HTTP  *http.Client // nil for one of its own, which follows no redirects to other hosts
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

// Gates returns the gates that f selects.
func (c *Client) Gates(ctx context.Context, f Filter) ([]Gate, error) { return nil, errTODO }

// Gate returns one gate.
func (c *Client) Gate(ctx context.Context, k Key) (Gate, error) { return Gate{}, errTODO }

// Open opens a gate, Close closes it, Reject closes it and opens the rollback switch of the canary.
func (c *Client) Open(ctx context.Context, k Key, change Change) (Gate, error) {
	return Gate{}, errTODO
}

func (c *Client) Close(ctx context.Context, k Key, change Change) (Gate, error) {
	return Gate{}, errTODO
}

func (c *Client) Reject(ctx context.Context, k Key, change Change) (Gate, error) {
	return Gate{}, errTODO
}

// Link returns links that decide about what waits at k.
func (c *Client) Link(ctx context.Context, k Key, r LinkRequest) (Link, error) {
	return Link{}, errTODO
}

// Audit returns the newest entries that f selects.
func (c *Client) Audit(ctx context.Context, f Filter) ([]Entry, error) { return nil, errTODO }

// Runs returns the newest runs that f selects, without their output.
func (c *Client) Runs(ctx context.Context, f Filter) ([]Run, error) { return nil, errTODO }

// Run returns one run.
func (c *Client) Run(ctx context.Context, id string) (Run, error) { return Run{}, errTODO }

// Output copies the output of a run to w; with follow until it has ended.
func (c *Client) Output(ctx context.Context, id string, follow bool, w io.Writer) error {
	return errTODO
}

// Cancel ends a run.
func (c *Client) Cancel(ctx context.Context, id string) (Run, error) { return Run{}, errTODO }

// Watch yields changes from now on, until ctx ends or the stream breaks.
func (c *Client) Watch(ctx context.Context) iter.Seq2[Notice, error] {
	return func(yield func(Notice, error) bool) { yield(Notice{}, errTODO) }
}
