package pool_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/headgate-io/headgate/artifact"
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
	for n := range int64(6) {
		inner, cancel := context.WithCancel(t.Context())
		ctx := &lateContext{Context: inner, cancel: cancel}
		ctx.left.Store(n)
		base, err := p.Lock(ctx)
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%d: %v", n, err)
		}
		if err == nil {
			base.Close()
		}
		cancel()
	}
	base, err := p.Lock(t.Context())
	if err != nil {
		t.Fatalf("afterwards: %v", err)
	}
	base.Close()
}
