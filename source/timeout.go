package source

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errTimeout is the cause of a context that spec.timeout ended.
var errTimeout = fmt.Errorf("spec.timeout: %w", context.DeadlineExceeded)

// Within does one step of fetching within timeout, that of a spec; zero is no
// bound. An error tells which step it was when its time was up, and wraps
// [context.DeadlineExceeded] then.
func Within(ctx context.Context, timeout time.Duration, step string, do func(context.Context) error) error {
	if timeout <= 0 {
		return do(ctx)
	}
	limited, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	err := do(limited)
	if err != nil && ctx.Err() == nil && context.Cause(limited) == errTimeout {
		if !errors.Is(err, context.DeadlineExceeded) { // what was cut short may call it otherwise
			err = fmt.Errorf("%w: %w", err, errTimeout)
		}
		return fmt.Errorf("%s: not done within %s, raise spec.timeout if the origin is slow: %w", step, timeout, err)
	}
	return err
}

// Bounded returns a context that the spec.timeout of obj ends, for those who use
// an origin without a [Reconciler].
func Bounded(ctx context.Context, obj Object) (context.Context, context.CancelFunc) {
	t := obj.Plan().Timeout
	if t <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, t, fmt.Errorf("not done within spec.timeout %s", t))
}
