// Package retry reads from responses whether and when to retry, and waits until then.
package retry

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// After returns how long the header of a response asks to wait, in whole seconds (RFC 9110
// section 10.2.3); given is false if it does not ask.
func After(header http.Header, now time.Time) (after time.Duration, given bool) {
	value := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return max(at.Sub(now), 0).Round(time.Second), true
}

// IsRetryable reports whether another attempt may succeed after a response with this status:
// 429, and from 500 on except 501.
func IsRetryable(code int) bool {
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError && code != http.StatusNotImplemented
}

// Sleep waits for d, or until ctx ends; the error is then the cause.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
