// Package run executes tasks. Equal requests share one run, whose time and output are
// bounded, and whose record survives the process.
//
// # Equal requests
//
// Requests are equal when they agree in namespace, name, checksum, type and
// metadata. At most one task of equal requests is under way at a time, however many
// requests and callers there are.
//
// [Runner.Wait] returns how a run ended. A caller that gives up earlier does not end
// the run: if the request has a checksum, the verdict is kept, and returned to the next
// equal Wait. Every equal Wait gets that verdict, and starts no task, until
// [Runner.Deliver] says that a caller received it. After that the next Wait starts a new
// run. With [Request].Abandon the run is cancelled when its last caller gives up.
//
// [Runner.Start] returns at once. It returns an equal run that is under way, or else
// starts a new one. But if the last run failed or timed out and was requested with
// FailOnError, that failure is the answer to the next equal request, provided there is
// a checksum, until it is delivered.
//
// A verdict is kept for Config.Verdict at most, since the tested system changes.
// Without a checksum it is not kept at all: the next request may be about another
// revision. Only a run that ended by itself or by its timeout has a verdict. A run that
// was cancelled, stopped by a shutdown or lost with the process says nothing about the
// tested system: its callers get that state, and the next equal request starts a new
// run. A cancelled task counts as under way until it returns, so that it never overlaps
// with its successor.
//
// # Output
//
// Before output is kept or shown, secrets of the request are masked, even if the task
// splits them between writes, and invalid UTF-8 is replaced. Half of the limit is for the
// beginning of the output and half for its end; a line between them says how many bytes
// were left out. The task does not wait for readers: a follower that is slower than the
// task misses what is no longer kept, and gets such a line in its place.
//
// # History
//
// Runs are written to disk in the background: no request waits for the disk. A process
// that is killed therefore loses the last few milliseconds: a run that started in them is
// forgotten, a run that ended in them becomes [api.Lost], and a verdict that was delivered
// in them may be delivered again. Nothing else is lost: runs that were under way become
// Lost, and undelivered verdicts are returned to the next equal request of the new process.
//
// A damaged history is renamed to runs.db.corrupt, and a new one is begun. A record that
// cannot be read is removed. If the history cannot be written, the runs go on, and are
// kept in memory as far as there is room. Each of these is reported to Config.Warn.
//
// The history keeps the newest Config.Keep finished runs for Config.KeepFor, each with at
// most Config.OutputLimit bytes of output. Without a directory it keeps at most 64 MiB of
// output, of the newest runs.
package run

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	Timeout     time.Duration    // of a run, and the longest that a request may ask for; default 1h
	OutputLimit int              // bytes of output that are kept of a run, half from the beginning and half from the end, and the most that a request may ask for; default 256 KiB
	Concurrency int              // runs at a time; default 100
	Queue       int              // runs that may wait for a free slot; default 1000, negative for none; beyond it requests get ErrBusy
	Keep        int              // finished runs that are kept; default 1000
	KeepFor     time.Duration    // default 7 days
	Verdict     time.Duration    // how long an undelivered verdict with a checksum is kept for an equal request; default 5m
	Now         func() time.Time // nil for time.Now

	// Observe is called with each run when it is queued, starts or ends, and with
	// shared for each request that got the run of another request. It must return at
	// once and not call methods of the runner; nil for no reports.
	Observe func(r api.Run, shared bool)

	// Warn is called with problems of the history. It must return at once and not call
	// methods of the runner; nil for no reports.
	Warn func(error)
}

// A Task is the work of a run. Run must return soon after ctx has ended, and leave
// nothing running. It may write any amount of output: only a bounded part is kept. If
// its error has a method ExitCode() int, that is the exit code of the run. A panic in
// the goroutine that called Run makes the run fail.
type Task interface {
	Run(ctx context.Context, out io.Writer) error
}

// A Request asks for a run. Requests are equal if namespace, name, checksum, type and metadata are.
type Request struct {
	Namespace, Name, Phase, Checksum string
	Type                             string            // the product's name
	Metadata                         map[string]string // without credentials of the caller
	Secrets                          []string          // values that are masked in output, reasons and metadata
	FailOnError                      bool              // the failure of a background run is the answer to the next equal request
	Abandon                          bool              // the run is cancelled when the last caller that waits for it gives up
	Timeout                          time.Duration     // 0 for that of the runner, which is also the longest
	OutputLimit                      int               // bytes; 0 for that of the runner, which is also the largest
	Actor                            string
}

// A key is the SHA-256 of the fields that distinguish requests.
type key [sha256.Size]byte

func (r *Request) key() key {
	text, _ := json.Marshal([]any{r.Namespace, r.Name, r.Checksum, r.Type, r.Metadata}) // texts always marshal, maps sorted by key
	return sha256.Sum256(text)
}

// A Runner runs tasks. Its methods may be called from several goroutines.
type Runner struct {
	config Config
	root   context.Context // of all runs
	stop   context.CancelCauseFunc
	feed   store.Feed[api.Run]
	history

	mu      sync.Mutex
	closed  bool
	running int
	queue   []*entry          // runs that wait for a free slot
	all     []*entry          // by ID, so by age
	byID    map[string]*entry // all
	byKey   map[key]*entry    // the newest of each key
}

// An entry is one run. The runner's lock guards it.
type entry struct {
	key         key
	run         api.Run // without output
	failOnError bool
	output      string        // of an ended run; "" if it is only on disk, or not kept
	abandoned   bool          // cancelled because all callers that waited gave up
	job         *job          // nil when it has ended
	done        chan struct{} // closed when it has ended
}

// A job is what a run needs until it has ended.
type job struct {
	task    Task
	timeout time.Duration
	secrets []string
	out     *readOutput
	cancel  context.CancelCauseFunc // nil while queued
	waiting int                     // callers of Wait
}

// An outcome; "with an end as cause" → "with an outcome as cause" says how a run ended. A run is told to end by cancelling its context with an end as cause.
type outcome struct {
	state  api.RunState
	reason string
	code   *int // nil for none
}

func (e outcome) Error() string { return e.reason }

// Open opens a runner, which must be shut down. It fails if another process has the
// directory open. Runs that were under way when that process died become Lost.
func Open(c Config) (*Runner, error) {
	c.Timeout = cmp.Or(c.Timeout, time.Hour)
	c.OutputLimit = cmp.Or(c.OutputLimit, 256<<10)
	c.Concurrency = cmp.Or(c.Concurrency, 100)
	c.Queue = max(0, cmp.Or(c.Queue, 1000))
	c.Keep = cmp.Or(c.Keep, 1000)
	c.KeepFor = cmp.Or(c.KeepFor, 7*24*time.Hour)
	c.Verdict = cmp.Or(c.Verdict, 5*time.Minute)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Observe == nil {
		c.Observe = func(api.Run, bool) {}
	}
	if c.Warn == nil {
		c.Warn = func(error) {}
	}
	r := &Runner{config: c, byID: map[string]*entry{}, byKey: map[key]*entry{}}
	r.root, r.stop = context.WithCancelCause(context.Background())
	if c.Dir != "" {
		if err := r.openHistory(); err != nil {
			return nil, fmt.Errorf("history of runs: %w", err)
		}
	}
	return r, nil
}

// Start starts the task in the background, or returns an equal run that is under way.
// If the last equal run has a checksum and failed with FailOnError within Config.Verdict,
// and that was not delivered, Start returns that run with its output and starts nothing.
// The error is ErrBusy or ErrClosed.
func (r *Runner) Start(q Request, t Task) (api.Run, error) {
	e, err := r.findOrAdmit(&q, t, false)
	if err != nil {
		return api.Run{}, err
	}
	return r.withOutput(e), nil
}

// Wait waits for the end of a run and returns it with its output. The run is an equal one
// that is under way, an equal one with a checksum that ended within Config.Verdict and was
// not delivered, or a new one. If ctx ends first, the error is the cause of ctx, and Wait
// returns the run as it is now; the run goes on, unless Abandon says otherwise, and its
// verdict is kept for the next equal request. Otherwise the error is ErrBusy or ErrClosed.
func (r *Runner) Wait(ctx context.Context, q Request, t Task) (api.Run, error) {
	for {
		e, err := r.findOrAdmit(&q, t, true)
		if err != nil {
			return api.Run{}, err
		}
		select {
		case <-e.done:
		case <-ctx.Done():
		}
		r.mu.Lock()
		again := false
		if j := e.job; j == nil {
			again = e.abandoned && e.run.State == api.Cancelled // earlier callers abandoned it: start a new run
		} else {
			err = context.Cause(ctx)
			if j.waiting--; q.Abandon && j.waiting == 0 {
				e.abandoned = true
				r.cancel(e, outcome{state: api.Cancelled, reason: "cancelled by its caller, who left"})
			}
		}
		r.mu.Unlock()
		if !again {
			return r.withOutput(e), err
		}
	}
}

// findOrAdmit returns the run that answers a request, a new one if necessary. It counts a caller
// that waits.
func (r *Runner) findOrAdmit(q *Request, t Task, waits bool) (*entry, error) {
	k := q.key()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, ErrClosed
	}
	e := r.byKey[k]
	if e != nil && (e.job != nil || r.mustDeliver(e, waits)) {
		if waits && !e.run.Waits && e.job != nil {
			e.run.Waits = true
			r.saveAndNotify(e)
		}
		r.config.Observe(e.run, true)
	} else {
		if r.running >= r.config.Concurrency && len(r.queue) >= r.config.Queue {
			return nil, ErrBusy
		}
		e = r.admit(k, q, t, waits)
	}
	if waits && e.job != nil {
		e.job.waiting++
	}
	return e, nil
}

// failed reports whether state s says that the test failed.
func failed(s api.RunState) bool { return s == api.Failed || s == api.TimedOut }

// mustDeliver reports whether the verdict of e must still be given to a caller, which waits or
// only starts runs.
func (r *Runner) mustDeliver(e *entry, waits bool) bool {
	age := r.config.Now().Sub(e.run.Ended).Abs() // negative if the clock was set back
	switch {
	case e.run.Delivered || e.run.Checksum == "" || age > r.config.Verdict:
		return false
	case failed(e.run.State) && e.failOnError:
		return true
	}
	return waits && e.run.Waits && (e.run.State == api.Succeeded || failed(e.run.State))
}

// Deliver records that a caller has received how a run ended. It does nothing for a
// run that has not ended, or was delivered before.
func (r *Runner) Deliver(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.byID[id]; e != nil && e.job == nil && !e.run.Delivered {
		e.run.Delivered = true
		r.saveAndNotify(e)
	}
}

// The methods from here to prune, except execute, are called with the lock held.

// admit makes the run of a request, and starts it if there is a free slot, or queues it.
func (r *Runner) admit(k key, q *Request, t Task, waits bool) *entry {
	created := r.config.Now().UTC()
	e := &entry{
		key: k, failOnError: q.FailOnError, done: make(chan struct{}),
		run: api.Run{
			ID: r.newID(created), State: api.Queued, Type: q.Type, Namespace: truncateField(q.Namespace), Name: truncateField(q.Name), Phase: truncateField(q.Phase), Checksum: truncateField(q.Checksum),
			Metadata: recordedMetadata(q.Metadata, q.Secrets), Waits: waits, Actor: truncateField(q.Actor), Created: created,
		},
		job: &job{
			task: t, timeout: min(r.config.Timeout, cmp.Or(q.Timeout, r.config.Timeout)), secrets: slices.Clone(q.Secrets),
			out: &readOutput{limit: min(r.config.OutputLimit, cmp.Or(q.OutputLimit, r.config.OutputLimit)), mask: redact.NewStream(q.Secrets...), wake: make(chan struct{})},
		},
	}
	r.add(e)
	if r.running < r.config.Concurrency {
		r.launch(e)
	} else {
		r.queue = append(r.queue, e)
		r.saveAndNotify(e)
		r.config.Observe(e.run, false)
	}
	return e
}

// newID returns an ID that sorts after all others. It has 24 digits of base 32: 12 of the
// microseconds since 1970, so that later runs have later IDs, and 12 of 60 random bits.
func (r *Runner) newID(created time.Time) string {
	at := created.UnixMicro()
	if n := len(r.all); n > 0 {
		last, _ := strconv.ParseInt(r.all[n-1].run.ID[:12], 32, 64)
		at = max(at, last+1)
	}
	return fmt.Sprintf("%012s%012s", strconv.FormatInt(at, 32), strconv.FormatUint(rand.Uint64()>>4, 32))
}

// add registers e, whose ID must be greater than all others.
func (r *Runner) add(e *entry) {
	r.all = append(r.all, e)
	r.byID[e.run.ID] = e
	r.byKey[e.key] = e
}

// saveAndNotify has a change of e written to the history, and sends it to watchers.
func (r *Runner) saveAndNotify(e *entry) {
	r.scheduleWrite(e.run.ID)
	r.feed.Send(func() api.Run { return e.run })
}

// launch starts e, for which there is a free slot.
func (r *Runner) launch(e *entry) {
	ctx, cancel := context.WithCancelCause(r.root)
	j := e.job // e.job is nil once the run has ended, perhaps by a shutdown before execute begins
	j.cancel = cancel
	r.running++
	e.run.State, e.run.Started = api.Running, r.config.Now().UTC()
	go r.execute(ctx, e, j)
	r.saveAndNotify(e)
	r.config.Observe(e.run, false)
}

// execute runs a task and records how it ended, even if the task ends its goroutine.
func (r *Runner) execute(ctx context.Context, e *entry, j *job) {
	defer j.cancel(nil)
	o := outcome{state: api.Failed, reason: "the task ended its goroutine"} // unless it returns
	defer func() {
		if p := recover(); p != nil {
			o = outcome{state: api.Failed, reason: j.reason(fmt.Sprintf("the task panicked: %v", p))}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.finish(e, o)
	}()
	ctx, stop := context.WithTimeoutCause(ctx, j.timeout, outcome{state: api.TimedOut, reason: "timed out after " + j.timeout.String()})
	defer stop()
	o = j.judge(ctx, j.task.Run(ctx, j.out))
}

// judge returns how a run ended whose task returned err. If the run was told to end, that
// decides, whatever the task returned: a test that was cut short has not passed.
func (j *job) judge(ctx context.Context, err error) outcome {
	o := outcome{state: api.Succeeded}
	if err != nil {
		o.state = api.Failed
	}
	if cause, ended := errors.AsType[outcome](context.Cause(ctx)); ended {
		o.state = cause.state
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
		o.code = new(exit.ExitCode())
	}
	return o
}

func (j *job) reason(text string) string {
	return truncate(redact.String(text, j.secrets...), reasonMax)
}

// finish records how e ended, starts queued runs, and wakes the callers that wait. It
// returns false if e had ended before.
func (r *Runner) finish(e *entry, o outcome) bool {
	j := e.job
	if j == nil {
		return false
	}
	s := &e.run
	s.State, s.Reason, s.ExitCode, s.Ended = o.state, o.reason, o.code, r.config.Now().UTC()
	s.Duration = milliseconds(s.Started, s.Ended)
	j.out.close()
	shown := *s
	shown.Output, shown.Bytes, shown.Truncated = j.out.text()
	s.Bytes, s.Truncated = shown.Bytes, shown.Truncated
	e.job, e.output = nil, shown.Output
	r.config.Observe(shown, false)
	r.saveAndNotify(e)
	if !s.Started.IsZero() {
		r.running--
	}
	for r.running < r.config.Concurrency && len(r.queue) > 0 {
		next := r.queue[0]
		r.queue = r.queue[1:]
		r.launch(next)
	}
	close(e.done)
	r.prune()
	return true
}

// milliseconds returns the duration of a run, 0 for one that never started.
func milliseconds(from, to time.Time) int64 {
	if from.IsZero() {
		return 0
	}
	return max(0, to.Sub(from).Milliseconds())
}

// heldMax is how much output of finished runs is kept in memory, in bytes.
const heldMax = 64 << 20

// prune removes finished runs that are too many or too old, the oldest first, and
// drops output beyond heldMax from memory.
func (r *Runner) prune() {
	now, excess := r.config.Now(), len(r.all)-r.running-len(r.queue)-r.config.Keep
	r.all = slices.DeleteFunc(r.all, func(e *entry) bool {
		if e.job != nil || excess <= 0 && now.Sub(e.run.Ended) <= r.config.KeepFor {
			return false
		}
		excess--
		if r.byKey[e.key] == e {
			delete(r.byKey, e.key)
		}
		delete(r.byID, e.run.ID)
		r.scheduleWrite(e.run.ID)
		return true
	})
	held := 0
	for _, e := range slices.Backward(r.all) {
		if held += len(e.output); held > heldMax {
			e.output = ""
		}
	}
}

// Run returns one run with its output, which is that so far if the run is under way.
// The error is ErrNotFound.
func (r *Runner) Run(id string) (api.Run, error) {
	e := r.find(id)
	if e == nil {
		return api.Run{}, ErrNotFound
	}
	return r.withOutput(e), nil
}

func (r *Runner) find(id string) *entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byID[id]
}

// withOutput returns a run with its output.
func (r *Runner) withOutput(e *entry) api.Run {
	r.mu.Lock()
	s, j, text, now := e.run, e.job, e.output, r.config.Now()
	r.mu.Unlock()
	switch {
	case j != nil:
		s.Output, s.Bytes, s.Truncated = j.out.text()
		s.Duration = milliseconds(s.Started, now)
	case text != "":
		s.Output = text
	case s.Bytes > 0:
		if s.Output = string(r.file.Get(outputBucket, s.ID)); s.Output == "" {
			s.Output, s.Truncated = omissionLine(s.Bytes), true
		}
	}
	return s
}

// Runs returns the runs that f selects by namespace, name, checksum, type, state
// and Before, newest first, without output: at most f.Limit, default 100, at most 1000.
// If see is not nil, it leaves out runs for which see returns false. See must not call
// methods of the runner.
func (r *Runner) Runs(f api.Filter, see func(api.Run) bool) []api.Run {
	limit := min(cmp.Or(f.Limit, 100), 1000)
	found := []api.Run{}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.prune()
	for _, e := range slices.Backward(r.all) {
		if len(found) == limit {
			break
		}
		s := e.run
		if cmp.Or(f.Namespace, s.Namespace) != s.Namespace || cmp.Or(f.Name, s.Name) != s.Name || cmp.Or(f.Checksum, s.Checksum) != s.Checksum ||
			cmp.Or(f.Type, s.Type) != s.Type || cmp.Or(f.State, s.State) != s.State || f.Before != "" && s.ID >= f.Before || see != nil && !see(s) {
			continue
		}
		if s.State == api.Running {
			s.Duration = milliseconds(s.Started, r.config.Now())
		}
		found = append(found, s)
	}
	return found
}

// Output copies what a run wrote to w, as it was kept; with follow until the run
// has ended. The error is ErrNotFound, the cause of ctx, or the error of w.
func (r *Runner) Output(ctx context.Context, id string, follow bool, w io.Writer) error {
	e := r.find(id)
	if e == nil {
		return ErrNotFound
	}
	r.mu.Lock()
	j := e.job
	r.mu.Unlock()
	if j != nil {
		return j.out.copy(ctx, follow, w)
	}
	_, err := io.WriteString(w, r.withOutput(e).Output)
	return err
}

// Watch returns a channel of runs that change, without output. The channel is closed when
// ctx ends, when the runner is shut down, or when its receiver is 1024 changes behind. The
// runs must not be modified.
func (r *Runner) Watch(ctx context.Context) <-chan *api.Run { return r.feed.Watch(ctx) }

// Cancel ends a run, waits until its task has returned, and returns the run. It does not
// change a run that has ended. The error is ErrNotFound, or the cause of ctx if that ends
// before the task.
func (r *Runner) Cancel(ctx context.Context, id, actor string) (api.Run, error) {
	e := r.find(id)
	if e == nil {
		return api.Run{}, ErrNotFound
	}
	reason := "cancelled"
	if actor != "" {
		reason += " by " + redact.String(actor)
	}
	r.mu.Lock()
	r.cancel(e, outcome{state: api.Cancelled, reason: reason})
	r.mu.Unlock()
	select {
	case <-e.done:
		return r.withOutput(e), nil
	case <-ctx.Done():
		return api.Run{}, context.Cause(ctx)
	}
}

// cancel tells a run to end. It is called with the lock held.
func (r *Runner) cancel(e *entry, o outcome) {
	if i := slices.Index(r.queue, e); i >= 0 {
		r.queue = slices.Delete(r.queue, i, i+1)
		r.finish(e, o)
	} else if e.job != nil {
		e.job.cancel(o)
	}
}

// Stop refuses new requests, ends the runs under way, records them as Stopped and
// wakes the callers that wait for them. It returns when their tasks have returned. If
// ctx ends first, it returns an error that names the runs whose tasks have not; they are
// recorded as Stopped all the same. Deliveries are recorded until Shutdown.
func (r *Runner) Stop(ctx context.Context) error {
	o := outcome{state: api.Stopped, reason: "the test runner was shut down"}
	r.mu.Lock()
	queue := r.queue
	r.closed, r.queue = true, nil
	for _, e := range queue {
		r.finish(e, o)
	}
	all := slices.Clone(r.all)
	r.mu.Unlock()
	r.stop(o)
	for _, e := range all {
		select {
		case <-e.done:
		case <-ctx.Done():
		}
	}
	o.reason += ", and the task did not end in time"
	var names []string
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range all {
		if r.finish(e, o) {
			names = append(names, fmt.Sprintf("%s of %s/%s (%s)", e.run.Type, e.run.Namespace, e.run.Name, e.run.ID))
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("shut down: %d of the runs did not end in time: %s", len(names), strings.Join(names, ", "))
}

// Shutdown calls Stop, ends all watches and closes the history. Methods that start or
// change runs must not be called afterwards.
func (r *Runner) Shutdown(ctx context.Context) error {
	err := r.Stop(ctx)
	r.feed.Close()
	r.background.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(err, r.writeErr, r.file.Close())
}

// Load returns how many runs are under way, and how many are queued.
func (r *Runner) Load() (running, queued int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running, len(r.queue)
}

// Ready returns why the runner cannot take requests or record runs, nil when it can.
func (r *Runner) Ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	return r.writeErr
}
