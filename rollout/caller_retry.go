package rollout

import (
	"crypto/tls"
	"errors"
	"net/http"
	"time"

	"github.com/headgate-io/headgate/internal/retry"
)

const (
	firstPause = time.Second
	maxPause   = 30 * time.Second
)

// retryable reports whether another attempt may end otherwise than in err.
func retryable(err error) bool {
	if answer, ok := errors.AsType[*StatusError](err); ok {
		return retry.Status(answer.Code)
	}
	_, refused := errors.AsType[*tls.CertificateVerificationError](err)
	return !refused
}

// pause returns how long to wait after the attempt with number n.
func (c *call) pause(n int, o outcome) time.Duration {
	if o.answer.Status == http.StatusTooManyRequests || o.answer.Status == http.StatusServiceUnavailable {
		if after, given := retry.After(o.header, c.caller.now()); given {
			return min(after, maxPause)
		}
	}
	if n > 5 { // 2^5 s is more than the longest
		return maxPause
	}
	return firstPause << (n - 1)
}
