package source

import (
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/artifact"
)

// Limits of the answers that a Share keeps.
const (
	maxAnswers     = 4096
	maxAnswerAge   = 10 * time.Minute
	maxAnswerBytes = 16 << 20 // bytes of all answers with a known size
	maxAnswer      = 1 << 20  // of one answer
	minAnswer      = 1 << 10  // assumed bytes of an answer without a known size
)

// A Share lets origins that send the same request to an upstream at about the same time use one
// answer. The zero value is ready to use. With a nil Share, each caller sends its own request. It
// is safe for concurrent use.
//
// A Share keeps a limited number of answers: at most 4096 of at most 1 MiB each, 16 MiB in total,
// for 10 minutes. An answer may have a method Weight() int64 that returns its size in bytes. An
// answer of more than 1 MiB is returned to the waiting callers, but not kept.
type Share struct {
	mu      sync.Mutex
	answers map[shareKey]*answer // the latest answer for each key, pending or kept
	since   time.Time            // start of the current period of keeping answers
	bytes   int64                // size of the kept answers

	requests, shared atomic.Int64 // number of calls of Do that got their own answer, or that of another call
}

// A shareKey is the hash of a key, which may be long or derived from secrets.
type shareKey [sha256.Size]byte

// An answer is a kept answer or a pending request.
type answer struct {
	begun    time.Time
	deadline time.Time // of the caller that runs ask; zero if there is none
	cancel   context.CancelCauseFunc
	waiters  int           // guarded by the mutex of the Share
	done     chan struct{} // closed when the answer is complete; the fields below do not change afterwards

	value       any
	err         error
	interrupted bool // it ended because a caller's deadline passed or all callers left
}

// Do returns the result of ask, or that of another call with the same key whose ask began no
// earlier than since, even if it is still running. The key must identify the request, the upstream
// and the credentials. Callers must not modify the result.
//
// Errors are shared too, except that a caller whose ctx has not ended never gets the end of another
// caller's ctx: it calls ask again. If ask panics, all callers get a *[PanicError].
//
// The context of ask has the values and the deadline of the caller that runs it, and ends when no
// caller waits any more. A caller whose ctx ends gets its cause immediately; the last one waits
// until ask has returned.
func (s *Share) Do(ctx context.Context, key string, since time.Time, ask func(context.Context) (any, error)) (any, error) {
	if s == nil {
		return ask(ctx)
	}
	for q := shareKey(sha256.Sum256([]byte(key))); ; {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		a, started := s.join(ctx, q, since, ask)
		select {
		case <-a.done:
		case <-ctx.Done():
			s.leave(ctx, q, a)
			return nil, context.Cause(ctx)
		}
		if started {
			s.requests.Add(1)
			return a.value, a.err
		}
		if !a.interrupted {
			s.shared.Add(1)
			return a.value, a.err
		}
	}
}

// Counts returns how many calls of Do got their own answer, and how many got that of another call.
func (s *Share) Counts() (requests, shared int64) {
	return s.requests.Load(), s.shared.Load()
}

// join returns a kept or pending answer that was begun no earlier than since, or begins one; started
// reports whether this call began it.
func (s *Share) join(ctx context.Context, q shareKey, since time.Time, ask func(context.Context) (any, error)) (a *answer, started bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trim()
	if a = s.answers[q]; a != nil && !a.begun.Before(since) {
		a.waiters++
		return a, false
	}
	a = &answer{begun: time.Now(), waiters: 1, done: make(chan struct{})}
	a.deadline, _ = ctx.Deadline()
	s.answers[q] = a
	ctx, a.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	go s.run(askContext{ctx, a.deadline}, q, a, ask)
	return a, true
}

// An askContext returns a deadline at which it does not end, because other callers may still wait.
type askContext struct {
	context.Context
	deadline time.Time
}

func (c askContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// run gets the answer from ask, which may also panic or call runtime.Goexit.
func (s *Share) run(ctx context.Context, q shareKey, a *answer, ask func(context.Context) (any, error)) {
	value, err := any(nil), errors.New("the question was given up")
	defer func() {
		if v := recover(); v != nil {
			value, err = nil, &PanicError{v, debug.Stack()}
		}
		s.end(ctx, q, a, value, err)
	}()
	value, err = ask(ctx)
}

// end returns the answer to the waiting callers, and keeps it for others.
func (s *Share) end(ctx context.Context, q shareKey, a *answer, value any, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	expired := ctx.Err() != nil || !a.deadline.IsZero() && !time.Now().Before(a.deadline)
	a.value, a.err = value, err
	a.interrupted = expired && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
	weight := int64(minAnswer)
	if w, ok := value.(interface{ Weight() int64 }); ok && err == nil { // after a failure, the value may be a nil pointer
		weight = max(weight, w.Weight())
	}
	if keep := ctx.Err() == nil && !a.interrupted && weight <= maxAnswer; s.answers[q] == a && !keep {
		delete(s.answers, q)
	} else if s.answers[q] == a {
		s.bytes += weight
	}
	a.cancel(nil)
	a.cancel = nil // releases the values of the context
	close(a.done)
	s.trim()
}

// trim deletes all kept answers if they are too many, too large or too old.
func (s *Share) trim() {
	now := time.Now()
	if s.answers != nil && now.Sub(s.since) < maxAnswerAge && len(s.answers) < maxAnswers && s.bytes <= maxAnswerBytes-maxAnswer {
		return
	}
	underWay := make(map[shareKey]*answer)
	for q, a := range s.answers {
		if a.cancel != nil {
			underWay[q] = a
		}
	}
	s.answers, s.since, s.bytes = underWay, now, 0
}

// leave removes a caller whose ctx has ended. The last one cancels the request and waits for its
// end.
func (s *Share) leave(ctx context.Context, q shareKey, a *answer) {
	s.mu.Lock()
	a.waiters--
	last := a.waiters == 0 && a.cancel != nil
	if last {
		a.cancel(context.Cause(ctx))
		if s.answers[q] == a {
			delete(s.answers, q)
		}
	}
	s.mu.Unlock()
	if last {
		<-a.done
	}
}

// Archives lets objects that use the same artifacts read them only once. The zero value is ready to
// use. It is safe for concurrent use.
type Archives struct {
	mu   sync.Mutex
	open map[string]*openArchive // by digest
}

type openArchive struct {
	reading sync.Mutex
	tree    *artifact.Tree
	users   int
}

// linger is how long an unused archive stays open.
const linger = 5 * time.Second

// Open is [OpenArchive], but the caller calls release, which is never nil, instead of Close.
func (s *Archives) Open(ctx context.Context, from Sources, a artifact.Artifact, l artifact.Limits) (tree *artifact.Tree, release func(), err error) {
	o := s.use(a.Digest)
	o.reading.Lock()
	defer o.reading.Unlock()
	if o.tree == nil {
		o.tree, err = OpenArchive(ctx, from, a, l)
	}
	return o.tree, func() { s.release(a.Digest, o) }, err
}

// use adds a user of an archive.
func (s *Archives) use(digest string) *openArchive {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.open[digest]
	if o == nil {
		o = new(openArchive)
		put(&s.open, digest, o)
	}
	o.users++
	return o
}

// release removes a user that use added.
func (s *Archives) release(digest string, o *openArchive) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.users--; o.users == 0 {
		time.AfterFunc(linger, func() { s.close(digest, o) })
	}
}

// close closes an archive that has no users.
func (s *Archives) close(digest string, o *openArchive) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.users > 0 || s.open[digest] != o {
		return
	}
	if delete(s.open, digest); o.tree != nil {
		o.tree.Close()
	}
}

// Close closes all archives that have no users.
func (s *Archives) Close() {
	s.mu.Lock()
	all := maps.Clone(s.open)
	s.mu.Unlock()
	for digest, o := range all {
		s.close(digest, o)
	}
}
