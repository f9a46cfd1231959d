package source_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/source"
)

// An origin that moves during a fetch is resolved again immediately, three times in total; results
// of earlier attempts are dropped.
func TestMoved(t *testing.T) {
	moved := fmt.Errorf("object a: %w", source.ErrMoved)
	for _, test := range []struct {
		name  string
		phase func(s *scriptedOrigin, move func() error) // must fail if move fails
		moves int
		want  source.Outcome
	}{
		{"not", func(*scriptedOrigin, func() error) {}, 0, source.Stored},
		{"while it is resolved", func(s *scriptedOrigin, move func() error) {
			s.resolve = func(context.Context) error { return move() }
		}, 2, source.Stored},
		{"while it is opened", func(s *scriptedOrigin, move func() error) {
			s.open = func(context.Context) error { return move() }
		}, 2, source.Stored},
		{"while it is written", func(s *scriptedOrigin, move func() error) {
			s.write = func(w io.Writer) (source.Report, error) {
				_, err := io.WriteString(w, "content of "+s.rev.ID)
				return source.Report{}, errors.Join(err, move())
			}
		}, 2, source.Stored},
		{"for ever", func(s *scriptedOrigin, move func() error) {
			s.write = func(io.Writer) (source.Report, error) {
				return source.Report{}, &source.StepError{Step: source.StepFetch, Reason: "BucketOperationFailed", Err: move()}
			}
		}, 9, source.Failed},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, g, from := newFixture(t), repository(), originAt(revision1)
			moves := 0
			test.phase(from, func() error {
				if moves == test.moves {
					return nil
				}
				moves++
				from.rev = originAt(revision2).rev
				return moved
			})
			err := r.run(g, from, test.want)
			if test.want == source.Failed {
				if !strings.Contains(err.Error(), "begun 3 times in this run: it changes faster than it can be fetched") {
					t.Error(err)
				}
				if moves != 3 || !errors.Is(err, source.ErrMoved) || from.closed != 3 || g.Artifact() != nil {
					t.Errorf("after %d moves, %d closed: %v", moves, from.closed, err)
				}
				if want := "Ready=False/BucketOperationFailed"; !strings.HasPrefix(conditions(g), want) {
					t.Errorf("conditions %s, want %s", conditions(g), want)
				}
				return
			}
			if moves != test.moves || g.Artifact().Revision != from.rev.ID || r.reasons() != "info/NewArtifact" {
				t.Errorf("after %d moves: revision %s, events %s", moves, g.Artifact().Revision, r.reasons())
			}
		})
	}
}

// A run is not repeated after its context was cancelled.
func TestMovedAndCancelled(t *testing.T) {
	r, from, tries := newFixture(t), originAt(revision1), 0
	ctx, cancel := context.WithCancel(t.Context())
	from.resolve = func(context.Context) error {
		tries++
		cancel()
		return source.ErrMoved
	}
	if _, err := r.Reconcile(ctx, repository(), from); !errors.Is(err, context.Canceled) || tries != 1 {
		t.Errorf("%d tries, %v", tries, err)
	}
}
