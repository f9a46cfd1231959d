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
