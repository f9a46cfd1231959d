package pool_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
	"github.com/headgate-io/headgate/git/internal/pool"
)

// A lateContext ends when its error was asked for a number of times.
type lateContext struct {
	context.Context
	cancel context.CancelFunc
	left   atomic.Int64
}

func (c *lateContext) Err() error {
	if c.left.Add(-1) < 0 {
		c.cancel()
	}
	return c.Context.Err()
}

// A context that ends while the lock is taken, however late, is an error and
// leaves the lock to others.
func TestContextEndsAtTheLock(t *testing.T) {
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	p := pool.New(cache, "scope")
	broken := errors.New("broken")
	fetch := func(ctx context.Context, _ pool.Base) (*packfile.Pack, bool, error) {
		return nil, false, errors.Join(broken, ctx.Err())
	}
	for n := range int64(6) {
		inner, cancel := context.WithCancel(t.Context())
		ctx := &lateContext{Context: inner, cancel: cancel}
		ctx.left.Store(n)
		if objects, err := p.Obtain(ctx, object.ID{}, fetch); err == nil {
			t.Errorf("%d: no error, and the objects %v", n, objects)
		}
		cancel()
	}
	if _, err := p.Obtain(t.Context(), object.ID{}, fetch); !errors.Is(err, broken) {
		t.Errorf("afterwards: %v", err)
	}
}
