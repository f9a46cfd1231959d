package source

import (
	"context"
	"crypto/sha256"
	"errors"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of one of the two generations of answers that a Share keeps.
const (
	maxAnswers     = 2048
	maxAnswerAge   = 5 * time.Minute
	maxAnswerBytes = 8 << 20 // of all answers, as far as they tell
	maxAnswer      = 1 << 20 // of one answer
	leastAnswer    = 1 << 10 // bytes of an answer that does not tell
)

// A Share lets origins that ask an upstream the same question at about the
// same time use one answer. The zero value is ready to use; with a nil Share each
// caller asks for itself. It is safe for concurrent use.
//
// What it keeps is bounded: 4096 answers of 1 MiB at most, 16 MiB of all, for
// 10 minutes. An answer that has a method Weight() int64 tells its bytes; a
// heavier one is given to the callers that wait for it, and not kept.
type Share struct {
	mu      sync.Mutex
	running map[question]*asking // the last one begun of each question
	kept    map[question]*asking // answers that came since begun
	older   map[question]*asking // answers of the generation before
	begun   time.Time
	bytes   int64 // of kept

	asked, shared atomic.Int64 // calls of Do by whose answer they got
}

// A question is the hash of a key, which may be long, or made of what is secret.
type question [sha256.Size]byte

// An asking is a question under way, or its answer.
type asking struct {
	begun   time.Time
	cancel  context.CancelCauseFunc
	waiters int           // guarded by the mutex of the Share
	latest  atomic.Int64  // deadline of the callers, in nanoseconds since 1970; noDeadline if one has none
	done    chan struct{} // closed when there is an answer

	// The answer does not change once done is closed.
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
// The context of ask has the values of the caller that asks, tells the latest
// deadline of those that wait, and ends when no caller waits any more. A caller
// whose ctx ends gets its cause at once; the last one when ask has returned.
func (s *Share) Do(ctx context.Context, key string, since time.Time, ask func(context.Context) (any, error)) (any, error) {
	if s == nil {
		return ask(ctx)
	}
	for q := question(sha256.Sum256([]byte(key))); ; {
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
func (s *Share) join(ctx context.Context, q question, since time.Time, ask func(context.Context) (any, error)) (a *asking, own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.turn(now)
	for _, answers := range []map[question]*asking{s.kept, s.older, s.running} {
		if a = answers[q]; a != nil && !a.begun.Before(since) {
			a.waiters++
			a.extend(ctx)
			return a, false
		}
	}
	a = &asking{begun: now, waiters: 1, done: make(chan struct{})}
	s.running[q] = a
	a.extend(ctx)
	first := a.latest.Load()
	of, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	a.cancel = cancel
	go s.run(of, first, q, a, ask)
	return a, true
}

const noDeadline = math.MaxInt64

// extend notes the deadline of a caller. The caller of extend holds the mutex of the Share.
func (a *asking) extend(ctx context.Context) {
	latest := int64(noDeadline)
	if deadline, ok := ctx.Deadline(); ok {
		latest = deadline.UnixNano()
	}
	a.latest.Store(max(a.latest.Load(), latest))
}

// An askContext is the context of a question. Its deadline is the latest of the callers.
type askContext struct {
	context.Context
	latest *atomic.Int64
}

func (c askContext) Deadline() (time.Time, bool) {
	latest := c.latest.Load()
	return time.Unix(0, latest), latest != noDeadline
}

var errNoAnswer = errors.New("the question was given up")

// run gets the answer from ask, which may also panic or end the goroutine.
func (s *Share) run(ctx context.Context, first int64, q question, a *asking, ask func(context.Context) (any, error)) {
	value, err := any(nil), errNoAnswer
	defer func() {
		if v := recover(); v != nil {
			value, err = nil, &PanicError{v, debug.Stack()}
		}
		s.end(ctx, first, q, a, value, err)
	}()
	value, err = ask(askContext{ctx, &a.latest})
}

// end hands the answer to the callers that wait, and keeps it for others. An ask
// that looked at its deadline early may have ended by that of its first caller.
func (s *Share) end(ctx context.Context, first int64, q question, a *asking, value any, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	over := ctx.Err() != nil || time.Now().UnixNano() >= first
	a.value, a.err = value, err
	a.cut = over && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
	if s.running[q] == a {
		delete(s.running, q)
	}
	weight := int64(leastAnswer)
	if w, ok := value.(interface{ Weight() int64 }); ok && err == nil { // the value of a failure may be a nil pointer
		weight = max(weight, w.Weight())
	}
	newer := s.kept[q] != nil && s.kept[q].begun.After(a.begun)
	if ctx.Err() == nil && !a.cut && !newer && weight <= maxAnswer {
		s.turn(time.Now())
		s.kept[q] = a
		s.bytes += weight
	}
	a.cancel(nil)
	a.cancel = nil // it holds the values of the context
	close(a.done)
}

// turn begins another generation of answers when the current one is full or old.
func (s *Share) turn(now time.Time) {
	age := now.Sub(s.begun)
	if s.kept != nil && age < maxAnswerAge && len(s.kept) < maxAnswers && s.bytes <= maxAnswerBytes-maxAnswer {
		return
	}
	if s.older = s.kept; age >= 2*maxAnswerAge {
		s.older = nil
	}
	if s.running == nil {
		s.running = make(map[question]*asking)
	}
	s.kept, s.begun, s.bytes = make(map[question]*asking), now, 0
}

// leave is called for a caller whose ctx has ended. The last one ends the asking.
func (s *Share) leave(ctx context.Context, q question, a *asking) {
	s.mu.Lock()
	a.waiters--
	last := a.waiters == 0 && a.cancel != nil
	if last {
		a.cancel(context.Cause(ctx))
		if s.running[q] == a {
			delete(s.running, q)
		}
	}
	s.mu.Unlock()
	if last {
		<-a.done
	}
}
