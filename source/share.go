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

// Bounds of the answers that a Share keeps.
const (
	maxAnswers     = 4096
	maxAnswerAge   = 10 * time.Minute
	maxAnswerBytes = 16 << 20 // of all answers, as far as they tell
	maxAnswer      = 1 << 20  // of one answer
	leastAnswer    = 1 << 10  // bytes of an answer that does not tell
)

// A Share lets origins that ask an upstream the same question at about the
// same time use one answer. The zero value is ready to use; with a nil Share each
// caller asks for itself. It is safe for concurrent use.
//
// What it keeps is bounded: 4096 answers of 1 MiB at most, 16 MiB of all, for
// 10 minutes. An answer that has a method Weight() int64 tells its bytes; a
// heavier one is given to the callers that wait for it, and not kept.
type Share struct {
	mu    sync.Mutex
	known map[shareKey]*answer // the last one begun of each question, under way or kept
	since time.Time            // when the first of those that are kept came
	bytes int64                // of those that are kept

	asked, shared atomic.Int64 // calls of Do by whose answer they got
}

// A shareKey is the hash of a key, which may be long, or made of what is secret.
type shareKey [sha256.Size]byte

// An answer is one that is kept, or a question under way.
type answer struct {
	begun    time.Time
	deadline time.Time // of the caller that asks; zero if it has none
	cancel   context.CancelCauseFunc
	waiters  int           // guarded by the mutex of the Share
	done     chan struct{} // closed when there is an answer; what follows does not change then

	value any
	err   error
	cut   bool // it ended because the time of a caller was up, or all callers left
}

// Do returns the answer to a question: the one that another caller is about to
// get or has got, when it began to ask no earlier than since, or else that of
// ask. The key says what is asked, of which upstream, and with which credentials.
// A caller must not change an answer.
//
// Errors are answers too, except that a caller whose ctx has not ended is never
// told of the end of another's: it asks again. A panic of ask is a *[PanicError]
// for all.
//
// The context of ask has the values and the deadline of the caller that asks, and
// ends when no caller waits any more. A caller whose ctx ends gets its cause at
// once; the last one when ask has returned.
func (s *Share) Do(ctx context.Context, key string, since time.Time, ask func(context.Context) (any, error)) (any, error) {
	if s == nil {
		return ask(ctx)
	}
	for q := shareKey(sha256.Sum256([]byte(key))); ; {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		a, own := s.join(ctx, q, since, ask)
		select {
		case <-a.done:
		case <-ctx.Done():
			s.leave(ctx, q, a)
			return nil, context.Cause(ctx)
		}
		if own {
			s.asked.Add(1)
			return a.value, a.err
		}
		if !a.cut {
			s.shared.Add(1)
			return a.value, a.err
		}
	}
}

// Counts returns how many callers of Do got the answer to a question of their
// own, and how many got that of another.
func (s *Share) Counts() (asked, shared int64) {
	return s.asked.Load(), s.shared.Load()
}

// join returns an answer, or a question under way, that was begun no earlier
// than since; own tells that this call began it.
func (s *Share) join(ctx context.Context, q shareKey, since time.Time, ask func(context.Context) (any, error)) (a *answer, own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trim()
	if a = s.known[q]; a != nil && !a.begun.Before(since) {
		a.waiters++
		return a, false
	}
	a = &answer{begun: time.Now(), waiters: 1, done: make(chan struct{})}
	a.deadline, _ = ctx.Deadline()
	s.known[q] = a
	ctx, a.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	go s.run(askContext{ctx, a.deadline}, q, a, ask)
	return a, true
}

// An askContext tells a deadline at which it does not end: others may still wait.
type askContext struct {
	context.Context
	deadline time.Time
}

func (c askContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// run gets the answer from ask, which may also panic or end the goroutine.
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

// end hands the answer to the callers that wait, and keeps it for others.
func (s *Share) end(ctx context.Context, q shareKey, a *answer, value any, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	over := ctx.Err() != nil || !a.deadline.IsZero() && !time.Now().Before(a.deadline)
	a.value, a.err = value, err
	a.cut = over && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
	weight := int64(leastAnswer)
	if w, ok := value.(interface{ Weight() int64 }); ok && err == nil { // the value of a failure may be a nil pointer
		weight = max(weight, w.Weight())
	}
	if keep := ctx.Err() == nil && !a.cut && weight <= maxAnswer; s.known[q] == a && !keep {
		delete(s.known, q)
	} else if s.known[q] == a {
		s.bytes += weight
	}
	a.cancel(nil)
	a.cancel = nil // it holds the values of the context
	close(a.done)
	s.trim()
}

// trim forgets the answers that are kept if they are too many or too old.
func (s *Share) trim() {
	now := time.Now()
	if s.known != nil && now.Sub(s.since) < maxAnswerAge && len(s.known) < maxAnswers && s.bytes <= maxAnswerBytes-maxAnswer {
		return
	}
	underWay := make(map[shareKey]*answer)
	for q, a := range s.known {
		if a.cancel != nil {
			underWay[q] = a
		}
	}
	s.known, s.since, s.bytes = underWay, now, 0
}

// leave is called for a caller whose ctx has ended. The last one ends the asking.
func (s *Share) leave(ctx context.Context, q shareKey, a *answer) {
	s.mu.Lock()
	a.waiters--
	last := a.waiters == 0 && a.cancel != nil
	if last {
		a.cancel(context.Cause(ctx))
		if s.known[q] == a {
			delete(s.known, q)
		}
	}
	s.mu.Unlock()
	if last {
		<-a.done
	}
}

// Archives lets objects that are made of the same artifacts read them once. The zero
// value is ready to use. It is safe for concurrent use.
type Archives struct {
	mu   sync.Mutex
	open map[string]*openArchive // by digest
}

type openArchive struct {
	reading sync.Mutex
	tree    *artifact.Tree
	users   int
}

// linger is how long an archive that has no user stays open.
const linger = 5 * time.Second

// Open is [OpenArchive]. Release, which is never nil, is called in the place of Close.
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

// release ends what use began.
func (s *Archives) release(digest string, o *openArchive) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.users--; o.users == 0 {
		time.AfterFunc(linger, func() { s.close(digest, o) })
	}
}

// close closes an archive that has no user.
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

// Close closes the archives that have no user.
func (s *Archives) Close() {
	s.mu.Lock()
	all := maps.Clone(s.open)
	s.mu.Unlock()
	for digest, o := range all {
		s.close(digest, o)
	}
}
