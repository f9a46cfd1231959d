package artifact

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"
)

// locks are named locks that order goroutines and processes. The zero value is
// ready to use.
type locks struct {
	turns sync.Map // name → chan struct{}, which holds an element while a goroutine has the lock
}

// take waits for the turn among the goroutines of this process, then for the
// lock of the file, which a file system cannot tell us about. try locks the
// file; nil when somebody else has it.
func (l *locks) take(ctx context.Context, name string, try func() (*os.File, error)) (unlock func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	value, _ := l.turns.LoadOrStore(name, make(chan struct{}, 1))
	turn := value.(chan struct{})
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("held by another goroutine: %w", context.Cause(ctx))
	}
	f, err := await(ctx, try)
	if err != nil {
		<-turn
		return nil, err
	}
	return sync.OnceFunc(func() {
		f.Close()
		<-turn
	}), nil
}

// await tries until it gets a file.
func await(ctx context.Context, try func() (*os.File, error)) (*os.File, error) {
	const longest = 50 * time.Millisecond
	for wait := time.Millisecond; ; wait = min(2*wait, longest) {
		f, err := try()
		if f != nil || err != nil {
			return f, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, fmt.Errorf("held by another process: %w", context.Cause(ctx))
		}
	}
}
