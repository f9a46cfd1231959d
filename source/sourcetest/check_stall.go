package sourcetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/source"
)

func stallObeysCancellation(t TB, k Kind) {
	for _, defect := range k.Stalls {
		b := newBench(t, k)
		b.publish(tree("a", "one\n"))
		good := b.want(source.Stored)
		files := b.files()
		b.publish(sample())
		met := b.up.Break(defect)
		obj := b.up.Object()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := b.inBackground(ctx, obj)
		select {
		case <-met:
		case run := <-ended:
			t.Fatalf("%s: the run ended before it: %+v, %v", defect, run.result, run.err)
		case <-time.After(b.kind.patience):
			t.Fatalf("%s: not met within %v", defect, b.kind.patience)
		}
		cancel()
		run := b.awaited(ended, defect)
		if !reflect.ValueOf(run.result).IsZero() || !errors.Is(run.err, context.Canceled) {
			t.Errorf("%s: cancelled run gave %+v, %v", defect, run.result, run.err)
		}
		if len(b.events) != 0 || !bytes.Equal(b.json(good), b.json(obj)) {
			t.Errorf("%s: cancelled run recorded %s, events %+v", defect, b.json(obj), b.events)
		}
		if now := b.files(); !slices.Equal(files, now) {
			t.Errorf("%s: the store held %v, now %v", defect, files, now)
		}
		b.up.Break("")
		b.want(source.Stored)
	}
}

func stallObeysTimeout(t TB, k Kind) {
	for _, defect := range k.Stalls {
		b := newBench(t, k)
		b.publish(tree("a", "one\n"))
		good := b.want(source.Stored)
		b.publish(sample())
		b.up.Break(defect)
		obj := b.up.Object()
		if k.Hurry == nil {
			b.editSpec(obj, "timeout", "250ms")
		} else {
			k.Hurry(b.up)
		}
		run := b.awaited(b.inBackground(t.Context(), obj), defect)
		if run.result.Outcome != source.Failed || !errors.Is(run.err, context.DeadlineExceeded) || !strings.Contains(run.err.Error(), "spec.timeout") {
			t.Errorf("%s: outcome %q, error %v; want a failure that names spec.timeout", defect, run.result.Outcome, run.err)
		}
		b.kept(string(defect), good, obj)
		b.up.Break("")
		b.want(source.Stored)
	}
}

// An ending is how a run in the background ended.
type ending struct {
	result source.Result
	err    error
	label  string // of its goroutines
}

// inBackground reconciles obj in another goroutine, which it labels, and with
// it all those that the run starts.
func (b *bench) inBackground(ctx context.Context, obj source.Object) <-chan ending {
	ended := make(chan ending, 1)
	label := fmt.Sprintf("%s %p", b.Name(), ended)
	go pprof.Do(ctx, pprof.Labels(labelled, label), func(ctx context.Context) {
		result, err := b.reconcile(ctx, obj)
		ended <- ending{result, err, label}
	})
	return ended
}

// awaited waits for a run to end, and for its goroutines.
func (b *bench) awaited(ended <-chan ending, defect Defect) ending {
	b.Helper()
	deadline := time.After(b.kind.patience)
	select {
	case run := <-ended:
		if left := goroutines(run.label, deadline); left != "" {
			b.Errorf("%s: goroutines are left behind:\n%s", defect, left)
		}
		return run
	case <-deadline:
		b.Fatalf("%s: the run did not end within %v", defect, b.kind.patience)
		return ending{}
	}
}
