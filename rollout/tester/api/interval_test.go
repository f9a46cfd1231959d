package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

func TestParseInterval(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 7 * time.Second, "5": 5 * time.Second, "0.5": time.Second / 2, "1m30s": 90 * time.Second, "200ms": 200 * time.Millisecond,
		"31536000": 365 * 24 * time.Hour, "8760h": 365 * 24 * time.Hour,
		"0": -1, "0s": -1, "-5": -1, "-5s": -1, "31536001": -1, "9000h": -1, "soon": -1, "5 s": -1, " 5": -1, ".": -1, "1.2.3": -1, "5x": -1,
		"99999999999999999999999999": -1, "1e3": -1, "NaN": -1, "Inf": -1, "0x10": -1, "+5": -1, "1d": -1, "٣": -1, strings.Repeat("9", 1000): -1,
	} {
		got, err := api.ParseInterval(text, 7*time.Second)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
		if err != nil && (len(err.Error()) > 200 || strings.ContainsAny(err.Error(), "\n\x1b")) {
			t.Errorf("%q: error %q", text, err)
		}
	}
}
