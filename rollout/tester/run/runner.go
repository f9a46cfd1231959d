// Package run executes tasks: one process for as many equal requests as come,
// with bounded output, a history that survives the process, and an end.
//
// # Equal requests
//
// Requests are equal when they agree in namespace, name, checksum, type and
// metadata. Of equal requests one task is under way at a time, however many
// there are and whoever asks for it.
//
// [Runner.Wait] answers with how a run ends. A caller that goes away before does
// not end it: when the request has a checksum the verdict is kept, and given to
// the next equal Wait. It is given until [Runner.Deliver] says that a caller
// received it: two callers that come before that both get it, and no second task
// is started for either. After that the next Wait starts anew. A request that is
// [Request].Abandon ends its run when the last of its callers has gone away.
//
// [Runner.Start] answers at once. While an equal run is under way it returns that
// one, and starts a new one when it has ended. Only when it failed or timed out
// and was asked for with FailOnError, the failure is the answer to the next
// equal request of the same checksum, until it is delivered.
//
// A verdict is kept for Config.Verdict at most, since what was tested changes.
// Without a checksum it is not kept at all: the next request may be about another
// revision. It is kept only if the run came to its end by itself or by its timeout.
// One that was cancelled, stopped by a shutdown or lost with the process says nothing
// of what was tested: its callers are told, the next equal request starts anew. While
// a cancelled task has not returned yet it counts as under way, so that it never
// meets its successor.
//
// # Output
//
// Secrets of the request are masked, however the task cuts what it writes, and
// what is not UTF-8 is replaced, before anybody sees it or it is kept. Half of
// the limit is for the beginning and half for the end; a line between them says
// how many bytes were left out. A follower that is slower than the task misses
// what fell out of these halves before it came to it, and is told so in the same
// way; the task waits for nobody.
//
// # History
//
// Runs are written to disk in the background: no request waits for the disk. So a
// process that is killed loses the last few milliseconds. A run that was started
// within them is not found again, one that ended within them is found as [api.Lost],
// and a verdict that was delivered within them may be given once more. Nothing
// else is lost: runs that were under way are found as Lost, and verdicts which
// nobody received are given to the next equal request of the new process.
//
// A damaged history is renamed to runs.db.corrupt-N, and begun anew. When it cannot
// be written the runs go on, and are kept in memory as far as there is room.
// Config.Warn is told of both.
//
// Kept are Config.Keep finished runs, each with at most Config.OutputLimit bytes
// of output, for Config.KeepFor. Without a directory at most 64 MiB of output are
// kept, those of the newest runs.
package run

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/internal/store"
)

// Errors of a runner.
var (
	ErrBusy     = errors.New("too many runs")
	ErrClosed   = errors.New("the test runner is shutting down")
	ErrNotFound = errors.New("no such run")
)

// A Config says what a Runner may use.
type Config struct {
	Dir         string           // holds the file runs.db; "" keeps the history in memory
	Timeout     time.Duration    // of a run, and the most that a request may ask for; default 1h
	OutputLimit int              // bytes of output that are kept of a run, half from the beginning and half from the end, and the most that a request may ask for; default 256 KiB
	Concurrency int              // runs at a time; default 100
	Queue       int              // runs that wait for a place; default 1000, negative for none; beyond: ErrBusy
	Keep        int              // finished runs that are kept; default 1000
	KeepFor     time.Duration    // default 7 days
	Verdict     time.Duration    // how long a verdict that was not delivered waits for an equal request, when its request has a checksum; default 5m
	Now         func() time.Time // nil for time.Now

	// Observe is told each run as it becomes queued, running or ended, and with
	// shared each request that was given the run of another. It returns at once
	// and calls no method of the runner; nil for no reports.
	Observe func(r api.Run, shared bool)

	// Warn is told what the history suffers. It returns at once and calls no
	// method of the runner; nil for no reports.
	Warn func(error)
}

// A Task is work that a run does. What it writes is kept within bounds, also
// when it writes without end. It returns soon after ctx has ended, with nothing
// left running. An error that has a method ExitCode() int says the exit code.
// A panic is an error, in the goroutine that called Run.
type Task interface {
	Run(ctx context.Context, out io.Writer) error
}

// A Request asks for a run. Its key is made of namespace, name, checksum, type and metadata.
type Request struct {
	Namespace, Name, Phase, Checksum string
	Type                             string            // the product's name
	Metadata                         map[string]string // without credentials of the caller
	Secrets                          []string          // values that are masked in output, reasons and metadata
	FailOnError                      bool              // a failure of a run that was not waited for is delivered to the next equal request
	Abandon                          bool              // the run is cancelled when the last caller that waits for it goes away
	Timeout                          time.Duration     // 0 for that of the runner, which is also the longest
	OutputLimit                      int               // bytes; 0 for that of the runner, which is also the largest
	Actor                            string
}

// A key is the SHA-256 of what distinguishes requests, each text after its length.
type key [sha256.Size]byte

func (r *Request) key() key {
	h := sha256.New()
	put := func(text string) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text))))
		io.WriteString(h, text)
	}
	for _, text := range []string{r.Namespace, r.Name, r.Checksum, r.Type} {
		put(text)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Metadata)) {
		put(name)
		put(r.Metadata[name])
	}
	return key(h.Sum(nil))
}

// A Runner runs tasks. Its methods may be called from several goroutines.
type Runner struct {
	config   Config
	root     context.Context // of all runs
	stop     context.CancelCauseFunc
	tasks    sync.WaitGroup
	stopDone chan struct{} // closed when stopErr is set
	stopErr  error
	hub      *store.Hub[string]
	end      func() error // ends the history

	mu      sync.Mutex
	closed  bool
	running int
	queue   []*entry
	all     []*entry          // by ID, so by age
	byID    map[string]*entry // all
	byKey   map[key]*entry    // the newest of each key
	held    int               // bytes of output of finished runs that are in memory
	last    int64             // time of the last ID, in microseconds
	history *history          // nil for none
}

// An entry is one run. The runner's lock guards it.
type entry struct {
	key         key
	run         api.Run // without output
	failOnError bool
	output      *string       // of one that ended; nil when it is on disk alone, or nowhere
	saved       bool          // its output is on disk
	abandoned   bool          // it is cancelled, for all that waited for it have gone away
	job         *job          // nil when it has ended
	done        chan struct{} // closed when it has ended
}

// A job is what a run needs until it has ended.
type job struct {
	task    Task
	timeout time.Duration
	secrets []string
	out     *output
	cancel  context.CancelCauseFunc // nil while queued
	waiting int                     // callers of Wait
}

// Open opens the runner of a directory, which no other process may have open.
// Runs that were under way when the process died are Lost.
func Open(c Config) (*Runner, error) {
	c.Timeout = positive(c.Timeout, time.Hour)
	c.OutputLimit = positive(c.OutputLimit, 256<<10)
	c.Concurrency = positive(c.Concurrency, 100)
	c.Queue = max(0, cmp.Or(c.Queue, 1000))
	c.Keep = positive(c.Keep, 1000)
	c.KeepFor = positive(c.KeepFor, 7*24*time.Hour)
	c.Verdict = positive(c.Verdict, 5*time.Minute)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Observe == nil {
		c.Observe = func(api.Run, bool) {}
	}
	if c.Warn == nil {
		c.Warn = func(error) {}
	}
	r := &Runner{config: c, hub: store.NewHub[string](), stopDone: make(chan struct{}), byID: map[string]*entry{}, byKey: map[key]*entry{}}
	r.root, r.stop = context.WithCancelCause(context.Background())
	if c.Dir != "" {
		if err := r.recall(); err != nil {
			return nil, fmt.Errorf("history of runs: %w", err)
		}
	}
	r.end = sync.OnceValue(func() error {
		r.hub.Close()
		return r.history.close()
	})
	return r, nil
}

func positive[N int | time.Duration](n, fallback N) N {
	if n > 0 {
		return n
	}
	return fallback
}

// Start starts the task in the background unless an equal run is under way.
// When the last equal run of the same checksum failed with FailOnError within
// Config.Verdict and that was not delivered, it returns that one, with its output,
// and starts nothing. The error is ErrBusy or ErrClosed.
func (r *Runner) Start(q Request, t Task) (api.Run, error) {
	e, err := r.claim(&q, t, false)
	if err != nil {
		return api.Run{}, err
	}
	return r.record(e), nil
}

// Wait returns how the run ended, with its output: an equal one that is under
// way, one of the same checksum that ended within Config.Verdict and was not
// delivered, or a new one. When ctx ends first the run goes on, and its end waits for
// the next equal request: the error is the cause of ctx then, and the run is as it is
// now. Otherwise the error is ErrBusy or ErrClosed.
func (r *Runner) Wait(ctx context.Context, q Request, t Task) (api.Run, error) {
	for {
		e, err := r.claim(&q, t, true)
		if err != nil {
			return api.Run{}, err
		}
		select {
		case <-e.done:
		case <-ctx.Done():
		}
		abandoned, err := r.leave(ctx, e, q.Abandon)
		if err != nil || !abandoned {
			return r.record(e), err
		}
	}
}

// leave ends the waiting of a caller for a run. The error is the cause of ctx when
// the run has not ended; abandoned says that it ended because others went away, and
// so says nothing to this one.
func (r *Runner) leave(ctx context.Context, e *entry, abandon bool) (abandoned bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if j := e.job; j != nil {
		if j.waiting--; abandon && j.waiting == 0 {
			e.abandoned = true
			r.cancel(e, cancelled("its caller, who left"))
		}
		return false, context.Cause(ctx)
	}
	return e.abandoned && e.run.State == api.Cancelled, nil
}

// claim returns the run that answers a request, a new one if need be. A caller that
// waits is counted.
func (r *Runner) claim(q *Request, t Task, waits bool) (*entry, error) {
	k := q.key()
	r.mu.Lock()
	defer r.mu.Unlock()
	e, err := r.shared(k, waits)
	if e == nil && err == nil {
		r.mu.Unlock()
		n := r.newEntry(k, q, t, waits) // masks, which takes a while
		r.mu.Lock()
		if e, err = r.shared(k, waits); e == nil && err == nil {
			e, err = n, r.admit(n)
		}
	}
	if err == nil && waits && e.job != nil {
		e.job.waiting++
	}
	return e, err
}

// shared returns the run that another equal request started and that answers
// this one too; nil when there is none.
func (r *Runner) shared(k key, waits bool) (*entry, error) {
	if r.closed {
		return nil, ErrClosed
	}
	e := r.byKey[k]
	if e == nil {
		return nil, nil
	}
	age := r.config.Now().Sub(e.run.Ended).Abs() // less than none when the clock was put back
	if e.job == nil && (!e.owes(waits) || age > r.config.Verdict) {
		return nil, nil
	}
	if waits && !e.run.Waits && e.job != nil {
		e.run.Waits = true
		r.changed(e)
	}
	r.config.Observe(e.run, true)
	return e, nil
}

// failed reports whether a run that ended in state s says that what it tested is bad.
func failed(s api.RunState) bool { return s == api.Failed || s == api.TimedOut }

// owes reports whether the verdict of e is still to be given, to a caller that waits
// or to one that only starts runs.
func (e *entry) owes(waits bool) bool {
	switch {
	case e.run.Delivered || e.run.Checksum == "":
		return false
	case failed(e.run.State) && e.failOnError:
		return true
	}
	return waits && e.run.Waits && (e.run.State == api.Succeeded || failed(e.run.State))
}

// Deliver says that a caller has received how a run ended. It does nothing for a
// run that has not ended, or was delivered before.
func (r *Runner) Deliver(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.byID[id]; e != nil && e.job == nil && !e.run.Delivered {
		e.run.Delivered = true
		r.changed(e)
	}
}

// newEntry returns the entry of a request that is to be run.
func (r *Runner) newEntry(k key, q *Request, t Task, waits bool) *entry {
	return &entry{
		key: k, failOnError: q.FailOnError, done: make(chan struct{}),
		run: api.Run{
			State: api.Queued, Type: q.Type, Namespace: short(q.Namespace), Name: short(q.Name), Phase: short(q.Phase), Checksum: short(q.Checksum),
			Metadata: recorded(q.Metadata, q.Secrets), Waits: waits, Actor: short(q.Actor), Created: r.config.Now().UTC(),
		},
		job: &job{
			task: t, timeout: min(r.config.Timeout, positive(q.Timeout, r.config.Timeout)), secrets: slices.Clone(q.Secrets),
			out: newOutput(min(r.config.OutputLimit, positive(q.OutputLimit, r.config.OutputLimit)), q.Secrets),
		},
	}
}

// admit runs e, at once or when there is a place for it. The error is ErrBusy.
func (r *Runner) admit(e *entry) error {
	busy := r.running >= r.config.Concurrency
	if busy && len(r.queue) >= r.config.Queue {
		return ErrBusy
	}
	e.run.ID = r.newID(e.run.Created)
	r.add(e)
	if !busy {
		r.launch(e)
		return nil
	}
	r.queue = append(r.queue, e)
	r.changed(e)
	r.config.Observe(e.run, false)
	return nil
}

// newID returns an ID of 24 digits of base 32: microseconds since 1970 (12), so that
// later runs have later IDs, and 60 random bits.
func (r *Runner) newID(now time.Time) string {
	r.last = max(now.UnixMicro(), r.last+1)
	return fmt.Sprintf("%012s%012s", strconv.FormatInt(r.last, 32), strconv.FormatUint(rand.Uint64()>>4, 32))
}

// add makes e known. IDs ascend.
func (r *Runner) add(e *entry) {
	r.all = append(r.all, e)
	r.byID[e.run.ID] = e
	r.byKey[e.key] = e
}

// changed tells the history and watchers of a change of e.
func (r *Runner) changed(e *entry) {
	r.history.put(e)
	r.hub.Notify(e.run.ID)
}

// launch starts e: there is a place for it.
func (r *Runner) launch(e *entry) {
	ctx, cancel := context.WithCancelCause(r.root)
	e.job.cancel = cancel
	e.run.State, e.run.Started = api.Running, r.config.Now().UTC()
	r.running++
	j := e.job
	r.tasks.Go(func() {
		defer cancel(nil)
		ctx, stop := context.WithTimeoutCause(ctx, j.timeout, timeout(j.timeout))
		defer stop()
		r.finish(e, j.execute(ctx))
	})
	r.changed(e)
	r.config.Observe(e.run, false)
}

// What ends a run before its task does, as the cause of its context.
type (
	timeout   time.Duration
	cancelled string // by whom
	stopped   struct{}
)

func (t timeout) Error() string { return "timed out after " + time.Duration(t).String() }
func (stopped) Error() string   { return "the test runner was shut down" }
func (c cancelled) Error() string {
	if c == "" {
		return "cancelled"
	}
	return "cancelled by " + string(c)
}

// An outcome is how a task ended.
type outcome struct {
	state  api.RunState
	reason string
	code   *int
}

// execute runs the task, in a goroutine that the task may end, and says what its end
// means.
func (j *job) execute(ctx context.Context) (o outcome) {
	ended := make(chan struct{})
	o = outcome{state: api.Failed, reason: "the task ended its goroutine"} // unless it returns
	go func() {
		defer close(ended)
		defer func() {
			if p := recover(); p != nil {
				o = outcome{state: api.Failed, reason: j.reason(fmt.Sprintf("the task panicked: %v", p))}
			}
		}()
		o = j.judge(ctx, j.task.Run(ctx, j.out))
	}()
	<-ended
	return o
}

// judge says what the end of a task means. One that was to end counts as ended,
// whatever it says: a test that was cut short has not passed.
func (j *job) judge(ctx context.Context, err error) outcome {
	o := outcome{state: api.Succeeded}
	if err != nil {
		o.state = api.Failed
	}
	if cause := context.Cause(ctx); cause != nil {
		switch cause.(type) {
		case timeout:
			o.state = api.TimedOut
		case cancelled:
			o.state = api.Cancelled
		default:
			o.state = api.Stopped
		}
		switch {
		case err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
			err = cause
		case !errors.Is(err, cause):
			err = fmt.Errorf("%w: %w", cause, err)
		}
	}
	if err == nil {
		o.code = new(int)
		return o
	}
	o.reason = j.reason(err.Error())
	var exit interface{ ExitCode() int }
	if errors.As(err, &exit) && exit.ExitCode() >= 0 {
		code := exit.ExitCode()
		o.code = &code
	}
	return o
}

func (j *job) reason(text string) string { return cut(redact.String(text, j.secrets...), reasonMax) }

// finish records how e ended, gives its place to the next, and tells who waits. It
// returns false when that was done before.
func (r *Runner) finish(e *entry, o outcome) bool {
	r.mu.Lock()
	j := e.job
	r.mu.Unlock()
	if j == nil {
		return false
	}
	text, written, truncated := j.out.close()
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.job == nil {
		return false
	}
	now := r.config.Now().UTC()
	s := &e.run
	s.State, s.Reason, s.ExitCode, s.Ended, s.Bytes, s.Truncated = o.state, o.reason, o.code, now, written, truncated
	s.Duration = milliseconds(s.Started, now)
	e.job, e.output = nil, &text
	r.held += len(text)
	shown := e.run
	shown.Output = text
	r.config.Observe(shown, false)
	r.changed(e)
	if j.cancel != nil { // else it had no place
		r.running--
	}
	for r.running < r.config.Concurrency && len(r.queue) > 0 {
		next := r.queue[0]
		r.queue = r.queue[1:]
		r.launch(next)
	}
	close(e.done)
	r.forget()
	return true
}

// milliseconds that a run took.
func milliseconds(from, to time.Time) int64 {
	if from.IsZero() {
		return 0
	}
	return max(0, to.Sub(from).Milliseconds())
}

// heldMax is how much output of finished runs is kept in memory, in bytes.
const heldMax = 64 << 20

// forget removes the finished runs that are too many or too old, the oldest
// first, and output that is too much to be kept in memory.
func (r *Runner) forget() {
	now, excess := r.config.Now(), -r.config.Keep
	for _, e := range r.all {
		if e.job == nil {
			excess++
		}
	}
	r.all = slices.DeleteFunc(r.all, func(e *entry) bool {
		if e.job != nil || excess <= 0 && now.Sub(e.run.Ended) <= r.config.KeepFor {
			return false
		}
		excess--
		r.release(e)
		if r.byKey[e.key] == e {
			delete(r.byKey, e.key)
		}
		delete(r.byID, e.run.ID)
		r.history.remove(e)
		return true
	})
	for i := 0; r.held > heldMax && i < len(r.all); i++ {
		r.release(r.all[i])
	}
}

// release lets go of the output of a finished run that is in memory.
func (r *Runner) release(e *entry) {
	if e.output != nil {
		r.held -= len(*e.output)
		e.output = nil
	}
}

// Run returns one run, with its output: that of a run under way as it is now.
// The error is ErrNotFound.
func (r *Runner) Run(id string) (api.Run, error) {
	e := r.find(id)
	if e == nil {
		return api.Run{}, ErrNotFound
	}
	return r.record(e), nil
}

func (r *Runner) find(id string) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

// record returns a run with its output.
func (r *Runner) record(e *entry) api.Run {
	r.mu.Lock()
	s, j, text, now := e.run, e.job, e.output, r.config.Now()
	r.mu.Unlock()
	switch {
	case j != nil:
		s.Output, s.Bytes, s.Truncated = j.out.text()
		s.Duration = milliseconds(s.Started, now)
	case text != nil:
		s.Output = *text
	case s.Bytes > 0:
		if s.Output = r.history.output(s.ID); s.Output == "" {
			s.Output, s.Truncated = gap(s.Bytes), true
		}
	}
	return s
}

// Runs returns the runs that f selects by namespace, name, checksum, type, state
// and Before, newest first, without output: at most f.Limit, default 100, at most 1000.
func (r *Runner) Runs(f api.Filter) []api.Run {
	limit := min(positive(f.Limit, 100), 1000)
	matches := func(want, is string) bool { return want == "" || want == is }
	found := []api.Run{}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget()
	for _, e := range slices.Backward(r.all) {
		if len(found) == limit {
			break
		}
		s := e.run
		if matches(f.Namespace, s.Namespace) && matches(f.Name, s.Name) && matches(f.Checksum, s.Checksum) && matches(f.Type, s.Type) &&
			matches(string(f.State), string(s.State)) && (f.Before == "" || s.ID < f.Before) {
			if s.State == api.Running {
				s.Duration = milliseconds(s.Started, r.config.Now())
			}
			found = append(found, s)
		}
	}
	return found
}

// Output copies what a run wrote to w, as it was kept; with follow until the run
// has ended. The error is ErrNotFound, the cause of ctx, or that of w.
func (r *Runner) Output(ctx context.Context, id string, follow bool, w io.Writer) error {
	r.mu.Lock()
	e := r.byID[id]
	var j *job
	if e != nil {
		j = e.job
	}
	r.mu.Unlock()
	switch {
	case e == nil:
		return ErrNotFound
	case j != nil:
		return j.out.copy(ctx, follow, w)
	}
	_, err := io.WriteString(w, r.record(e).Output)
	return err
}

// Watch sends runs, without output, as they become queued, running, final and
// delivered, until ctx ends, the runner is shut down, or the watcher is 4096 runs
// behind; then the channel is closed. A slow watcher gets the last change of a run.
func (r *Runner) Watch(ctx context.Context) <-chan api.Run {
	return store.Watch(ctx, r.hub, func(id string) (api.Run, bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if e := r.byID[id]; e != nil {
			return e.run, true
		}
		return api.Run{}, false
	})
}

// Cancel ends a run and waits until its task has returned. Of a run that has
// ended it changes nothing. The error is ErrNotFound, or the cause of ctx when
// that ended before the task.
func (r *Runner) Cancel(ctx context.Context, id, actor string) (api.Run, error) {
	e := r.find(id)
	if e == nil {
		return api.Run{}, ErrNotFound
	}
	r.mu.Lock()
	r.cancel(e, cancelled(redact.String(actor)))
	r.mu.Unlock()
	select {
	case <-e.done:
		return r.record(e), nil
	case <-ctx.Done():
		return api.Run{}, context.Cause(ctx)
	}
}

// cancel tells a run to end.
func (r *Runner) cancel(e *entry, cause cancelled) {
	if i := slices.Index(r.queue, e); i >= 0 {
		r.queue = slices.Delete(r.queue, i, i+1)
		r.tasks.Go(func() { r.finish(e, outcome{state: api.Cancelled, reason: cause.Error()}) })
	} else if e.job != nil && e.job.cancel != nil { // else it is about to end
		e.job.cancel(cause)
	}
}

// Stop refuses new requests, ends the runs under way, records them as Stopped
// and tells who waits for them. It returns when their tasks have returned. When
// ctx ends before, it returns an error that names those which have not: they are
// recorded as Stopped all the same. What is delivered afterwards is recorded
// until Shutdown.
func (r *Runner) Stop(ctx context.Context) error {
	r.mu.Lock()
	first, queue := !r.closed, r.queue
	r.closed, r.queue = true, nil
	r.mu.Unlock()
	if first {
		r.stop(stopped{})
		for _, e := range queue {
			r.finish(e, outcome{state: api.Stopped, reason: stopped{}.Error()})
		}
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			r.tasks.Wait()
		}()
		select {
		case <-returned:
		case <-ctx.Done():
			r.stopErr = r.giveUp()
		}
		close(r.stopDone)
	}
	select {
	case <-r.stopDone:
		return r.stopErr
	default:
	}
	select {
	case <-r.stopDone:
		return r.stopErr
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// giveUp records the runs whose tasks do not return.
func (r *Runner) giveUp() error {
	r.mu.Lock()
	all := slices.Clone(r.all)
	r.mu.Unlock()
	var names []string
	for _, e := range all {
		if r.finish(e, outcome{state: api.Stopped, reason: stopped{}.Error() + ", and the task did not end in time"}) {
			names = append(names, fmt.Sprintf("%s of %s/%s (%s)", e.run.Type, e.run.Namespace, e.run.Name, e.run.ID))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("shut down: %d of the runs did not end in time: %s", len(names), strings.Join(names, ", "))
}

// Shutdown is Stop, and the end of the history. No other method that starts or
// changes something may be called afterwards.
func (r *Runner) Shutdown(ctx context.Context) error {
	err := r.Stop(ctx)
	select {
	case <-r.stopDone:
		return errors.Join(err, r.end())
	default:
		return err // another caller stops the runs
	}
}

// Ready returns why the runner cannot take requests or record runs, nil when it can.
func (r *Runner) Ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	return r.history.ready()
}
