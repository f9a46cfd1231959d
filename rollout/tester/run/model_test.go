package run_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

// A modelRun is a run as the model sees it.
type modelRun struct {
	id          string
	state       api.RunState
	waits, told bool
	failOnError bool
	ended       time.Time
	end         chan error
}

// A model says what a desk has to do, as simply as can be: of each request the
// newest run, one goroutine, no queue, no disk.
type model struct {
	t      *testing.T
	c      run.Config
	desk   *run.Runner
	newest map[string]*modelRun
	all    []*modelRun
	trace  []string
}

const (
	modelVerdict = time.Hour
	unmarked     = "d" // its requests have no checksum
)

func (m *model) errorf(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(m.trace, "\n"))
}

// answer returns the run that answers a request; nil when a new one has to start.
func (m *model) answer(key string, waits bool) *modelRun {
	r := m.newest[key]
	switch {
	case r == nil:
		return nil
	case r.state == api.Running:
		return r
	case r.told || time.Since(r.ended) > modelVerdict || key == unmarked:
		return nil
	case r.state == api.Failed && r.failOnError:
		return r
	case waits && r.waits && (r.state == api.Failed || r.state == api.Succeeded):
		return r
	}
	return nil
}

// ask makes a request and compares what comes of it.
func (m *model) ask(key string, waits, failOnError bool) {
	want := m.answer(key, waits)
	r := request(key)
	r.FailOnError = failOnError
	if key == unmarked {
		r.Checksum = ""
	}
	end, began := make(chan error, 1), false
	work := task(func(ctx context.Context, out io.Writer) error {
		began = true
		io.WriteString(out, key)
		select {
		case err := <-end:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	var got api.Run
	var err error
	if waits {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond) // the caller does not stay
		got, err = m.desk.Wait(ctx, r, work)
		cancel()
	} else {
		got, err = m.desk.Start(r, work)
	}
	synctest.Wait()
	if err != nil && !(waits && errors.Is(err, context.DeadlineExceeded) && got.State == api.Running) {
		m.errorf("ask: %+v, %v", got, err)
	}
	if began != (want == nil) {
		m.errorf("started %t", began)
	}
	if want == nil {
		want = &modelRun{id: got.ID, state: api.Running, failOnError: failOnError, end: end}
		m.newest[key], m.all = want, append(m.all, want)
	}
	if want.state == api.Running && waits {
		want.waits = true
	}
	if got.ID != want.id || got.State != want.state || err == nil && want.state != api.Running && got.Output != key {
		m.errorf("got %+v, want %+v", got, want)
	}
}

// over says how a run has ended.
func (m *model) over(r *modelRun, state api.RunState) {
	synctest.Wait()
	r.state, r.ended = state, time.Now()
}

// step does something at random.
func (m *model) step(random *rand.Rand) {
	key := string(rune('a' + random.IntN(4)))
	failOnError := key == "c" || key == unmarked
	note := func(format string, args ...any) { m.trace = append(m.trace, fmt.Sprintf(format, args...)) }
	var r *modelRun
	if len(m.all) > 0 {
		r = m.all[max(0, len(m.all)-1-random.IntN(4))]
	}
	switch n := random.IntN(20); {
	case n < 5:
		note("start %s", key)
		m.ask(key, false, failOnError)
	case n < 10:
		note("wait %s", key)
		m.ask(key, true, failOnError)
	case n < 14 && r != nil && r.state == api.Running:
		note("end %s", r.id)
		if n%2 == 0 {
			r.end <- nil
			m.over(r, api.Succeeded)
		} else {
			r.end <- exit(1)
			m.over(r, api.Failed)
		}
	case n < 16 && r != nil:
		note("deliver %s", r.id)
		m.desk.Deliver(r.id)
		r.told = r.told || r.state != api.Running
	case n == 16 && r != nil:
		note("cancel %s", r.id)
		if _, err := m.desk.Cancel(context.Background(), r.id, ""); err != nil {
			m.errorf("cancel: %v", err)
		}
		if r.state == api.Running {
			m.over(r, api.Cancelled)
		}
	case n == 17 && m.c.Dir != "" && random.IntN(3) == 0:
		note("restart")
		m.restart()
	case n > 17:
		d := time.Duration(random.IntN(int(modelVerdict)))
		note("after %v", d)
		time.Sleep(d)
	}
}

func (m *model) restart() {
	if err := m.desk.Shutdown(context.Background()); err != nil {
		m.errorf("%v", err)
	}
	for _, r := range m.all {
		if r.state == api.Running {
			m.over(r, api.Stopped)
		}
	}
	m.desk = open(m.t, m.c)
}

// check compares all that can be seen.
func (m *model) check() {
	got := m.desk.Runs(api.Filter{Limit: 1000})
	if len(got) != len(m.all) {
		m.errorf("%d runs, want %d", len(got), len(m.all))
	}
	for i, r := range got {
		if want := m.all[len(m.all)-1-i]; r.ID != want.id || r.State != want.state || r.Delivered != want.told || r.Waits != want.waits {
			m.errorf("got %+v, want %+v", r, want)
		}
	}
}

// Random sequences of everything that may happen.
func TestModel(t *testing.T) {
	for seed := range uint64(40) {
		within(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			c := run.Config{Verdict: modelVerdict, Timeout: 10000 * time.Hour, KeepFor: 10000 * time.Hour}
			if seed%10 == 0 {
				c.Dir = t.TempDir()
			}
			m := &model{t: t, c: c, desk: open(t, c), newest: map[string]*modelRun{}}
			for range 200 {
				m.step(random)
				m.check()
			}
		})
	}
}
