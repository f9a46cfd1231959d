package transport

import (
	"net/http"
	"time"

	"github.com/headgate-io/headgate/internal/retry"
)

// RetryAfter returns how long the header of an answer asks to wait; see [retry.After].
func RetryAfter(header http.Header, now time.Time) (after time.Duration, given bool) {
	return retry.After(header, now)
}
