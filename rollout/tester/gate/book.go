// Package gate keeps the gates and rollback switches of canaries, so that they
// survive whatever ends the process.
package gate

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/bbolt"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

var errTODO = errors.New("not built yet")

// ErrInvalid is a change that cannot be made as asked; ErrLink a link that does not work (any more).
var (
	ErrInvalid = errors.New("invalid")
	ErrLink    = errors.New("this link is not valid any more")
)

// A Config says where a Book is kept and how.
type Config struct {
	Dir     string           // holds the file gates.db; "" keeps everything in memory
	Idle    time.Duration    // after the last check that was refused nobody waits any more; default 10 minutes
	MaxKeys int              // gates that were only ever checked; the longest idle are forgotten; default 10000
	Audit   int              // entries of the audit trail that are kept; default 10000
	Now     func() time.Time // nil for time.Now
}

// A Book is the gates of one test runner.
type Book struct{ db *bbolt.DB }

// Open opens the book of a directory, which no other process may have open.
func Open(c Config) (*Book, error) { return nil, errTODO }

// A Visitor is what a check says of its canary.
type Visitor struct{ Phase, Checksum string }

// Check reports whether the gate is open for the visitor, and remembers who
// waits. What it changes in the opening (one-shot) is durable before it returns.
func (b *Book) Check(k api.Key, v Visitor) (bool, error) { return false, errTODO }

// Open opens a gate, Close closes it, Reject closes it and opens the rollback
// switch of its canary for the checksum that waits: durable when they return.
func (b *Book) Open(k api.Key, c api.Change) (api.Gate, error)   { return api.Gate{}, errTODO }
func (b *Book) Shut(k api.Key, c api.Change) (api.Gate, error)   { return api.Gate{}, errTODO }
func (b *Book) Reject(k api.Key, c api.Change) (api.Gate, error) { return api.Gate{}, errTODO }

// Gate returns one gate; List those that f selects, by kind, namespace, name and gate.
func (b *Book) Gate(k api.Key) api.Gate                   { return api.Gate{} }
func (b *Book) List(f api.Filter) []api.Gate              { return nil }
func (b *Book) Audit(f api.Filter) []api.Entry            { return nil }
func (b *Book) Watch(ctx context.Context) <-chan api.Gate { return nil }

// A Ticket is what a signed link is good for.
type Ticket struct {
	Key      api.Key
	Action   string // open or reject
	Checksum string
	Expires  time.Time
}

// Issue returns the secrets of two links for what waits at k now: one opens it
// for that checksum, one rejects it.
func (b *Book) Issue(k api.Key, ttl time.Duration, actor string) (approve, reject string, expires time.Time, err error) {
	return "", "", time.Time{}, errTODO
}

// Inspect says what a link is good for, Redeem does it, once: ErrLink.
func (b *Book) Inspect(secret string) (Ticket, error)                 { return Ticket{}, errTODO }
func (b *Book) Redeem(secret, actor, reason string) (api.Gate, error) { return api.Gate{}, errTODO }

// Close ends the book. What was acknowledged is on disk long before.
func (b *Book) Close() error { return nil }
