// Package retry reads what answers say about trying again: whether, and when;
// and waits for it.
package retry

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// After returns how long the header of an answer asks to wait, in whole
// seconds (RFC 9110 section 10.2.3); given is false when it does not tell.
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

// Status reports whether another attempt may end otherwise than an answer with
// this status: 429, and from 500 on except 501.
func Status(code int) bool {
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError && code != http.StatusNotImplemented
}

// Sleep waits for d, or until ctx ends: the error is its cause.
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
