package main

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/testenv"
)

// TestFlagValues checks how flags parse values, and how help shows them.
func TestFlagValues(t *testing.T) {
	var span time.Duration
	var bytes int64
	c := &cobra.Command{Use: "test"}
	spanVar(c, &span, "for", time.Hour, "")
	bytesVar(c, &bytes, "size", 1<<30, -1, "")
	for _, flag := range []struct{ name, def string }{{"for", "1h"}, {"size", "1Gi"}} {
		testenv.Equal(t, c.Flags().Lookup(flag.name).DefValue, flag.def, "--%s: default", flag.name)
	}
	for _, test := range []struct{ flag, text, shown string }{ // shown begins with "want" if text is invalid
		{"for", "90", "1m30s"}, {"for", "0.75", "750ms"}, {"for", "1h30m", "1h30m"}, {"for", "168h", "168h"}, {"for", "0", "0"}, {"for", "0s", "0"},
		{"for", "-1", "-1s"}, {"for", "10m", "10m"}, {"for", "20m0s", "20m"}, {"for", "1h0m5s", "1h0m5s"},
		{"for", "", "want a duration"}, {"for", "5 m", "want a duration"}, {"for", "NaN", "want a duration"}, {"for", "1e40", "want a duration"},
		{"size", "65536", "64Ki"}, {"size", "1000", "1000"}, {"size", "3Mi", "3Mi"}, {"size", "2Gi", "2Gi"}, {"size", "0", "0"}, {"size", "-1", "-1"},
		{"size", "-2", "want -1 or more"}, {"size", "1MB", "want a number"}, {"size", "", "want a number"}, {"size", "Ki", "want a number"},
		{"size", "9999999999Gi", "want a number"}, {"size", "-9999999999Gi", "want a number"},
	} {
		var got string
		if err := c.Flags().Set(test.flag, test.text); err != nil {
			got = flagError(c, err).Error()
		} else {
			got = c.Flags().Lookup(test.flag).Value.String()
		}
		if got != test.shown && !(strings.HasPrefix(test.shown, "want") && strings.Contains(got, `": `+test.shown)) {
			t.Errorf("--%s %q: %s, want %s", test.flag, test.text, got, test.shown)
		}
	}
}
