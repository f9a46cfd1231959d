package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout/traffic"
)

// revisions is a target with a revision after the other.
type revisions struct {
	traffic.Adapter
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

// TestNextRunAfterPromotion: the proxy promoted the canary's URL, which is the
// primary's for the next revision: with the same flags that run stops, with
// --swap it divides the requests between what was promoted and what is new.
func TestNextRunAfterPromotion(t *testing.T) {
	s := newTheatre(t)
	args := append(s.args(t, "rollback", "/", "{}"), "--interval", "1ms")
	state := args[5]
	rollOut := func(code int, more ...string) (said string) {
		t.Helper()
		var text strings.Builder
		if got := run(t.Context(), append(args, more...), strings.NewReader(""), io.Discard, &text, os.LookupEnv); got != code {
			t.Fatalf("%q: exit code %d, want %d: %s", more, got, code, text.String())
		}
		return text.String()
	}
	demand := func(said string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(said, want) {
				t.Errorf("%q is not said in\n%s", want, said)
			}
		}
	}
	at := func(url string) {
		t.Helper()
		if got := readStatus(t, state).PromotedURL; got != url {
			t.Fatalf("promoted at %q, want %q", got, url)
		}
	}
	demand(rollOut(exitPromoted, "--revision", "v2"),
		": primary "+s.primary+", canary "+s.canary+"; the proxy ends with this run, without --proxy-keep\n",
		"app.default: all requests go to "+s.canary+"\n", "app.default: promoted, all requests go to "+s.canary+"\n",
		"revision v2 is at "+s.canary+": give the next run --primary "+s.canary+", or --swap\n", " has ended\n")
	at(s.canary)
	demand(rollOut(exitPromoted, "--revision", "v2"), ": all requests go to "+s.canary+", which was promoted;")
	demand(rollOut(exitUsage, "--revision", "v3"),
		"--primary "+s.primary+": revision v2 was promoted at "+s.canary, "give --primary "+s.canary+" and --canary with", ", or --swap\n")
	if said := rollOut(exitUsage, "--revision", "v3", "--primary", "http://127.0.0.1:1", "--canary", s.primary); strings.Contains(said, "or --swap") {
		t.Errorf("what was promoted is no canary: %s", said)
	}
	demand(rollOut(exitUsage, "--revision", "v3", "--swap", "--primary", "http://127.0.0.1:1"), "--swap: http://127.0.0.1:1 does not answer")
	at(s.canary)

	for _, roles := range [][]string{
		{"--swap"},
		{"--primary", s.canary + "/", "--canary", s.primary},
		{"--primary", s.canary, "--canary", s.primary, "--swap"}, // are as they have to be
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		r, w := io.Pipe()
		ended := make(chan int, 1)
		waiting := append(append(args, "--revision", "v3", "--interval", "1h"), roles...)
		go func() {
			ended <- run(ctx, waiting, strings.NewReader(""), io.Discard, w, os.LookupEnv)
			w.Close()
		}()
		if n := ofCanary(t, servingAt(t, r)); n != 100 {
			t.Errorf("%q: the version that was promoted gets %d of 100 requests", roles, n)
		}
		interrupt()
		if code := <-ended; code != exitNotOver {
			t.Errorf("%q: exit code %d", roles, code)
		}
	}
	demand(rollOut(exitPromoted, "--revision", "v3", "--swap"), ": primary "+s.canary+", canary "+s.primary+";", "give the next run --primary "+s.primary)
	at(s.primary)
	demand(rollOut(exitPromoted, "--revision", "v3", "--swap"), ": all requests go to "+s.primary+", which was promoted;")
	demand(rollOut(exitPromoted, "--revision", "v4", "--swap"), ": primary "+s.primary+", canary "+s.canary+";")
	at(s.canary)
	demand(rollOut(exitUsage, "--revision", "v4", "--again"), "or --swap")
}

// TestPromotedByOtherMeans forgets the URL that a proxy promoted.
func TestPromotedByOtherMeans(t *testing.T) {
	s := newTheatre(t)
	args := s.args(t, "rollback", "/", `{"phase": "Succeeded", "lastAppliedSpec": "v2", "lastPromotedSpec": "v2", "promotedURL": "http://127.0.0.1:1"}`)
	args = append(args[:6], "--revision", "v3", "--interval", "1ms", "--no-traffic")
	if code := run(t.Context(), args, strings.NewReader(""), io.Discard, t.Output(), os.LookupEnv); code != exitPromoted {
		t.Fatalf("exit code %d", code)
	}
	if got := readStatus(t, args[5]).PromotedURL; got != "" {
		t.Errorf("promoted at %q", got)
	}
}
