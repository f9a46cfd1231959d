package server

import (
	"errors"
	"fmt"
	"testing"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

// TestHistory keeps the last 20 notable runs of an object, and of all objects together
// a bounded number, the newest.
func TestHistory(t *testing.T) {
	var h history
	ref := func(i int) source.Reference {
		return source.Reference{Kind: "Bucket", Namespace: "a", Name: fmt.Sprint(i)}
	}
	add := func(n, i int, outcome source.Outcome) (notable, recovered bool) {
		return h.add(serve.Run{Number: int64(n), Object: ref(i), Result: source.Result{Outcome: outcome}, Err: errors.New("x")}, "")
	}
	for n := range 50 {
		add(n, 0, source.Stored)
	}
	if runs := h.of(ref(0)); len(runs) != maxRuns || runs[0].Number != 49 || runs[maxRuns-1].Number != 30 {
		t.Errorf("%d runs, %v", len(runs), runs)
	}
	if notable, _ := add(50, 0, source.Unchanged); !notable {
		t.Error("the first that found nothing new is not notable")
	}
	if notable, _ := add(51, 0, source.Unchanged); notable {
		t.Error("the second that found nothing new is notable")
	}
	add(52, 0, source.Failed)
	if _, recovered := add(53, 0, source.Unchanged); !recovered {
		t.Error("it has not recovered")
	}
	for n := range 4 {
		for i := range 10_000 {
			add(n, i, source.Failed)
		}
	}
	if len(h.runs) != maxHistory {
		t.Errorf("%d runs are kept", len(h.runs))
	}
	for i := range 10_000 {
		if runs := h.of(ref(i)); len(runs) != 2 || runs[0].Number != 3 {
			t.Fatalf("%d: %v", i, runs)
		}
	}
}
