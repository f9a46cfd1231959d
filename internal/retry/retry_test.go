package retry_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/internal/testenv"
)

func TestAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 600e6, time.UTC)
	for value, want := range map[string]time.Duration{
		"": -1, "soon": -1, "-5": -1, "1.5": -1, "9999999999": -1,
		"0": 0, "7": 7 * time.Second, "2147483647": 2147483647 * time.Second,
		"Fri, 02 Jan 2026 03:04:15 GMT": 9 * time.Second, "Fri, 02 Jan 2026 03:00:00 GMT": 0,
	} {
		after, given := retry.After(http.Header{"Retry-After": {value}}, now)
		if given != (want >= 0) || after != max(want, 0) {
			t.Errorf("%q: %s %v, want %s", value, after, given, want)
		}
	}
}

func TestIsRetryable(t *testing.T) {
	for code, want := range map[int]bool{200: false, 308: false, 400: false, 408: false, 425: false, 429: true, 499: false, 500: true, 501: false, 502: true, 503: true, 504: true, 505: true, 599: true} {
		testenv.Equal(t, retry.IsRetryable(code), want, code)
	}
}
