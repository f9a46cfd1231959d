package traffic_test

import (
	"context"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout/traffic"
)

// An answer is a driver that says the same to everything.
type answer string

func (a answer) Has(traffic.Operation) bool { return true }
func (a answer) Check() error               { return nil }
func (a answer) Do(context.Context, traffic.Operation, traffic.Values) (string, error) {
	return string(a), nil
}

// FuzzAnswer holds that routes which are read sum to 100, that revisions are
// one line, and that errors do not repeat what was said.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{"90 10", "100 0 mirrored", `{"primary":1,"canary":99}`, "v1.2.3\n", "\x1b]0;x\a", "-1 101", `{"primary":1e2,"canary":0}`, "{"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a := &traffic.Adapter{Driver: answer(text)}
		r, err := a.Routes(t.Context())
		if err == nil && (r.Primary+r.Canary != 100 || r.Primary < 0 || r.Canary < 0) {
			t.Errorf("routes %+v", r)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\x1b\a") {
			t.Errorf("error %q", err)
		}
		id, err := a.Revision(t.Context())
		if err == nil && (id == "" || len(id) > 1<<10 || strings.ContainsAny(id, "\x00\x1b\n\r")) {
			t.Errorf("revision %q", id)
		}
	})
}
