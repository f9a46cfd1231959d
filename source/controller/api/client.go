package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/headgate-io/headgate/source"
)

// A Client calls the API of a server.
type Client struct {
	Base   string       // URL of the server, as http://127.0.0.1:9090
	Token  string       // "" for none
	Socket string       // path of the server's socket; Base is not used then
	HTTP   *http.Client // nil for one without a proxy
}

var errTODO = errors.New("not written yet")

// A Filter selects sources; empty fields select all.
type Filter struct{ Kind, Namespace, Name, Ready string }

// Sources returns the sources that a filter selects, and what is wrong with documents.
func (c *Client) Sources(ctx context.Context, f Filter) ([]Source, []string, error) {
	return nil, nil, errTODO
}

// Source returns one source. The error wraps fs.ErrNotExist.
func (c *Client) Source(ctx context.Context, ref source.Reference) (Source, error) {
	return Source{}, errTODO
}

// Reconcile asks for a run and, unless wait is 0, waits for its end.
func (c *Client) Reconcile(ctx context.Context, ref source.Reference, wait time.Duration) (Source, Ticket, error) {
	return Source{}, Ticket{}, errTODO
}

// Suspend has a source left alone.
func (c *Client) Suspend(ctx context.Context, ref source.Reference, why Change) (Source, error) {
	return Source{}, errTODO
}

// Resume ends a suspension.
func (c *Client) Resume(ctx context.Context, ref source.Reference) (Source, error) {
	return Source{}, errTODO
}

// Watch calls each with every notice, and connects again when the connection
// breaks, until ctx ends or each returns an error, which it returns.
func (c *Client) Watch(ctx context.Context, f Filter, each func(Notice) error) error { return errTODO }

// An EventQuery selects events.
type EventQuery struct {
	Filter
	Severity string
	Since    time.Time
	After    int64
	Limit    int
}

// Events returns events, the oldest first.
func (c *Client) Events(ctx context.Context, q EventQuery) ([]Event, error) { return nil, errTODO }

// FollowEvents calls each with events, and then with those that come, as Watch does.
func (c *Client) FollowEvents(ctx context.Context, q EventQuery, each func(Event) error) error {
	return errTODO
}
