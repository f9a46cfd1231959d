package server

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/controller"
)

// TestHistoryBounds remembers runs of 10,000 objects in bounded memory, the
// newest of all of them.
func TestHistoryBounds(t *testing.T) {
	var h history
	before := measure.Live()
	for n := range 4 {
		for i := range 10_000 {
			ref := source.Reference{Kind: "GitRepository", Namespace: fmt.Sprintf("team-%d", i%100), Name: fmt.Sprintf("app-%d", i)}
			h.add(controller.Run{
				Number: int64(n), Object: ref, Trigger: controller.Tick, Started: time.Unix(int64(n), 0),
				Result: source.Result{Outcome: source.Failed, Why: "the revision"}, Err: errors.New(strings.Repeat(fmt.Sprint(n, i), 25)),
			}, fmt.Sprintf("main@sha1:%040d", i))
		}
	}
	if h.bytes > maxBytes {
		t.Errorf("%d bytes are counted", h.bytes)
	}
	if used := measure.Live() - before; used > maxBytes*3/2 {
		t.Errorf("%d bytes are used", used)
	}
	for i := range 10_000 {
		ref := source.Reference{Kind: "GitRepository", Namespace: fmt.Sprintf("team-%d", i%100), Name: fmt.Sprintf("app-%d", i)}
		if runs := h.of(ref); len(runs) == 0 || runs[0].Number != 3 {
			t.Fatalf("%s has %d runs", ref, len(runs))
		}
	}
}

// TestHistoryRuns keeps the last 20 runs of an object.
func TestHistoryRuns(t *testing.T) {
	var h history
	ref := source.Reference{Kind: "Bucket", Namespace: "a", Name: "b"}
	for n := range 50 {
		h.add(controller.Run{Number: int64(n), Object: ref, Result: source.Result{Outcome: source.Stored}}, "")
	}
	runs := h.of(ref)
	if len(runs) != maxRuns || runs[0].Number != 49 || runs[maxRuns-1].Number != 30 || h.all.Len() != maxRuns {
		t.Errorf("%d runs, %v, %d in all", len(runs), runs, h.all.Len())
	}
}
