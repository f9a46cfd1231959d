package rollout

import (
	"crypto/tls"
	"errors"
	"net/http"
	"strconv"
	"time"
)

const (
	firstPause = time.Second
	maxPause   = 30 * time.Second
)

// retryable reports whether another attempt may end otherwise than in err.
func retryable(err error) bool {
	if answer, ok := errors.AsType[*StatusError](err); ok {
		return answer.Code == http.StatusTooManyRequests ||
			answer.Code >= http.StatusInternalServerError && answer.Code != http.StatusNotImplemented
	}
	_, refused := errors.AsType[*tls.CertificateVerificationError](err)
	return !refused
}

// pause returns how long to wait after the attempt with number n.
func (c *call) pause(n int, o outcome) time.Duration {
	if o.answer.Status == http.StatusTooManyRequests || o.answer.Status == http.StatusServiceUnavailable {
		if after, given := retryAfter(o.after, c.caller.now()); given {
			return min(after, maxPause)
		}
	}
	if n > 5 { // 2^5 s is more than the longest
		return maxPause
	}
	return firstPause << (n - 1)
}

// retryAfter returns how long a Retry-After asks to wait (RFC 9110 section 10.2.3).
func retryAfter(value string, now time.Time) (after time.Duration, given bool) {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return max(at.Sub(now), 0), true
}
