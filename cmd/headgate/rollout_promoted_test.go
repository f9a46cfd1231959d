package main

import (
	"context"
	"errors"
	"testing"

	"github.com/headgate-io/headgate/rollout/traffic"
)

// revisions is a target with a revision after the other.
type revisions struct {
	traffic.Static
	names []string
}

func (r *revisions) Revision(context.Context) (string, error) {
	if len(r.names) == 0 {
		return "", errors.New("asked once more")
	}
	name := r.names[0]
	r.names = r.names[1:]
	return name, nil
}

// TestSwappingRevision: what comes after the promotion of the proxy's canary is
// not the revision of this run.
func TestSwappingRevision(t *testing.T) {
	s := &swapping{Target: &revisions{names: []string{"v1", "v2"}}, proxy: &traffic.Proxy{Primary: "http://127.0.0.1:1", Canary: "http://127.0.0.1:1"}}
	for _, want := range []string{"v1", "v2"} {
		if got, err := s.Revision(t.Context()); got != want || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if err := s.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Revision(t.Context()); got != "v2" || err != nil {
		t.Errorf("after the promotion: %q, %v", got, err)
	}
}
