package s3

import (
	"strings"
	"testing"
)

// FuzzRefusal checks that no refusal makes a message that is long, or shows a secret.
func FuzzRefusal(f *testing.F) {
	f.Add("<Error><Code>AccessDenied</Code><Message>not canary</Message></Error>")
	f.Add("<ErrorResponse><Error><Code>Y2FuYXJ5</Code><Message>\x1b[31m</Message></Error></ErrorResponse>")
	f.Fuzz(func(t *testing.T, text string) {
		r := &refusal{doing: "list objects", code: 403}
		r.parse([]byte(text), []string{"canary"})
		if said := r.status(nil).Error(); strings.Contains(said, "canary") || len(said) > 1024 || strings.ContainsAny(said, "\n\x1b") {
			t.Errorf("%q", said)
		}
	})
}
