package traffic_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

func TestRoutesThatAreNone(t *testing.T) {
	for _, r := range []rollout.Routes{{}, {Primary: 50, Canary: 49}, {Primary: 110, Canary: -10}, {Primary: -1, Canary: 101}} {
		for name, port := range map[string]rollout.Traffic{
			"proxy":   &traffic.Proxy{Primary: "http://127.0.0.1:1", Canary: "http://127.0.0.1:2"},
			"nothing": new(traffic.Adapter),
			"adapter": &traffic.Adapter{Driver: new(traffic.Exec)},
		} {
			if err := port.SetRoutes(t.Context(), r); err == nil || !strings.Contains(err.Error(), "100") {
				t.Errorf("%s: %+v: %v", name, r, err)
			}
			if got, err := port.Routes(t.Context()); err != nil || got != (rollout.Routes{Primary: 100}) {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		}
	}
}

func TestNothingConfigured(t *testing.T) {
	for name, target := range map[string]rollout.Target{
		"nil":  &traffic.Adapter{ID: "v2"},
		"exec": &traffic.Adapter{Driver: new(traffic.Exec), ID: "v2"},
		"http": &traffic.Adapter{Driver: new(traffic.HTTP), ID: "v2"},
	} {
		ctx := t.Context()
		if id, err := target.Revision(ctx); err != nil || id != "v2" {
			t.Errorf("%s: %q, %v", name, id, err)
		}
		for _, err := range []error{target.PrimaryReady(ctx), target.CanaryReady(ctx), target.ScaleUp(ctx), target.ScaleDown(ctx), target.Promote(ctx)} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
