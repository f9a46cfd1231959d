package run

import (
	"context"
	"io"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// Run returns one run, with its output: that of a run under way as it is now.
// The error is ErrNotFound.
func (d *Desk) Run(id string) (api.Run, error) {
	d.mu.Lock()
	e := d.byID[id]
	if e == nil {
		d.mu.Unlock()
		return api.Run{}, ErrNotFound
	}
	d.mu.Unlock()
	return d.record(e), nil
}

// record returns a run with its output.
func (d *Desk) record(e *entry) api.Run {
	d.mu.Lock()
	r, l, now := e.run, e.live, d.config.Now()
	var s *sink
	if l != nil {
		r.Output, s = l.final.Output, l.sink // of which one is set
	}
	d.mu.Unlock()
	switch {
	case s != nil:
		r.Output, r.Truncated = s.tape.text()
		r.Bytes = s.written()
		r.Duration = milliseconds(r.Started, now)
	case l == nil && r.Bytes > 0:
		if r.Output = d.history.output(r.ID); r.Output == "" {
			r.Output, r.Truncated = gap(r.Bytes), true
		}
	}
	return r
}

// The limits of a list.
const (
	listDefault = 100
	listMax     = 1000
)

// Runs returns the runs that f selects by namespace, name, checksum, type, state
// and Before, newest first, without output.
func (d *Desk) Runs(f api.Filter) []api.Run {
	limit := min(positive(f.Limit, listDefault), listMax)
	found := []api.Run{}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget()
	now := d.config.Now()
	for i := len(d.all) - 1; i >= 0 && len(found) < limit; i-- {
		if r := d.all[i].run; selects(f, r) {
			if r.State == api.Running {
				r.Duration = milliseconds(r.Started, now)
			}
			found = append(found, r)
		}
	}
	return found
}

func selects(f api.Filter, r api.Run) bool {
	matches := func(want, is string) bool { return want == "" || want == is }
	return matches(f.Namespace, r.Namespace) && matches(f.Name, r.Name) && matches(f.Checksum, r.Checksum) && matches(f.Type, r.Type) &&
		matches(string(f.State), string(r.State)) && (f.Before == "" || r.ID < f.Before)
}

// Output copies what a run wrote to w, as it was kept; with follow until the run
// has ended. The error is ErrNotFound, the cause of ctx, or that of w.
func (d *Desk) Output(ctx context.Context, id string, follow bool, w io.Writer) error {
	d.mu.Lock()
	e := d.byID[id]
	if e == nil {
		d.mu.Unlock()
		return ErrNotFound
	}
	if !e.ended() {
		t := e.live.sink.tape
		d.mu.Unlock()
		return t.copy(ctx, follow, w)
	}
	d.mu.Unlock()
	_, err := io.WriteString(w, d.record(e).Output)
	return err
}
