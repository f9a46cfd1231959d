package traffic_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// What is promoted gets every request, also those that no condition of an A/B
// test holds for; and nobody scales it down.
func TestPromote(t *testing.T) {
	p := &traffic.Proxy{Match: []rollout.Match{{Headers: map[string]rollout.StringMatch{"X-Insider": {Exact: "yes"}}}}}
	url := front(t, p).URL
	set(t, p, rollout.Routes{Canary: 100})
	said := func() string { return strings.Join([]string{ask(t, url), ask(t, url, "X-Insider", "yes")}, " ") }
	if got := said(); got != "primary canary" {
		t.Fatalf("before: %s", got)
	}
	p.Promote()
	if got := said(); got != "canary canary" {
		t.Errorf("promoted: %s", got)
	}
	set(t, p, rollout.Routes{Primary: 100})
	if got := said(); got != "canary canary" {
		t.Errorf("with all traffic at the primary: %s", got)
	}
	target := &stopping{called: make(chan struct{})} // it would panic
	if err := p.Target(target).ScaleDown(t.Context()); err != nil {
		t.Error(err)
	}
}
