package source

import (
	"container/list"
	"context"
	"crypto/sha256"
	"errors"
	"runtime/debug"
	"sync"
	"time"
)

// Bounds of the answers that are kept once nobody waits for them.
const (
	maxAnswers     = 4096             // the newest count
	maxAnswerAge   = 10 * time.Minute // since they were asked for
	maxAnswerBytes = 16 << 20         // of all, as far as they tell
	maxAnswer      = 1 << 20          // of one, in bytes
	leastAnswer    = 1 << 10          // bytes of one that does not tell
)

// A Share lets origins that ask an upstream the same question at about the
// same time use one answer. The zero value is ready to use; a nil Share has
// everybody ask for himself. It is safe for concurrent use.
//
// What it keeps is bounded: 4096 answers of 1 MiB at most, 16 MiB of all, for
// 10 minutes. An answer that has a method Weight() int64 tells its bytes; one
// that is heavier than that is for those who wait for it alone.
type Share struct {
	mu     sync.Mutex
	asking map[question]*asking       // the last begun of each question that is under way
	kept   map[question]*list.Element // of answers
	oldest list.List                  // answers in the order in which they came
	bytes  int64                      // of all that are kept

	asked, shared int64 // calls of Do by whose answer they got
}

// A question is the hash of a key, which may be long, or made of what is secret.
type question [sha256.Size]byte

// An asking is a question under way, or its answer.
type asking struct {
	question question
	begun    time.Time
	done     chan struct{} // closed when there is an answer

	// Of the answer nothing is changed once done is closed.
	value  any
	err    error
	weight int64
	cut    bool // it ended because the time of some was up, not of all

	// The following is guarded by the mutex of the Share.
	cancel  context.CancelCauseFunc // nil when there is an answer
	waiters int
	latest  time.Time // deadline of those who have waited
	endless bool      // one of them has none
	shown   time.Time // the first deadline that ask was told
}

// Do returns the answer to a question: the one that another caller is about to
// get or has got, when he began to ask no earlier than since, or else that of
// ask. The key says what is asked, of whom, and with which credentials. Who
// takes an answer that others have too must not change it.
//
// Errors are answers too, except that a caller whose ctx has not ended is never
// told of the end of another's. A panic of ask is a *[PanicError] for all.
//
// The context of ask has the values of the first caller's, ends when nobody
// waits any more, and tells the latest deadline of those who do. A caller whose
// ctx ends gets its cause at once; the last one when ask has returned.
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
			s.leave(ctx, a)
			return nil, context.Cause(ctx)
		}
		if own || !a.cut {
			s.count(own)
			return a.value, a.err
		}
	}
}

// count counts an answer, the caller's own or another's.
func (s *Share) count(own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if own {
		s.asked++
	} else {
		s.shared++
	}
}

// Counts returns how many callers of Do got the answer to a question of their
// own, and how many got that of another.
func (s *Share) Counts() (asked, shared int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked, s.shared
}

// join returns what is asked, or was, no earlier than since; own tells that it is this caller's.
func (s *Share) join(ctx context.Context, q question, since time.Time, ask func(context.Context) (any, error)) (a *asking, own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.expire(now)
	if e, found := s.kept[q]; found && !e.Value.(*asking).begun.Before(since) {
		return e.Value.(*asking), false
	}
	a, found := s.asking[q]
	if !found || a.begun.Before(since) {
		a, own = s.begin(ctx, q, now, ask), true
	}
	a.waiters++
	deadline, ends := ctx.Deadline()
	a.endless = a.endless || !ends
	if deadline.After(a.latest) {
		a.latest = deadline
	}
	return a, own
}

// begin asks.
func (s *Share) begin(ctx context.Context, q question, now time.Time, ask func(context.Context) (any, error)) *asking {
	a := &asking{question: q, begun: now, done: make(chan struct{})}
	ctx, a.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if s.asking == nil {
		s.asking, s.kept = map[question]*asking{}, map[question]*list.Element{}
	}
	s.asking[q] = a
	go func() {
		var value any
		err := errNoAnswer // which stays when ask ends the goroutine
		defer func() {
			if v := recover(); v != nil {
				value, err = nil, &PanicError{v, debug.Stack()}
			}
			s.end(ctx, a, value, err)
		}()
		value, err = ask(&askContext{ctx, s, a})
	}()
	return a
}

var errNoAnswer = errors.New("the question was given up")

// end tells those who wait.
func (s *Share) end(ctx context.Context, a *asking, value any, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.value, a.err = value, err
	ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	passed := !a.shown.IsZero() && !time.Now().Before(a.shown)
	a.cut = ended && (ctx.Err() != nil || passed)
	if s.asking[a.question] == a {
		delete(s.asking, a.question)
	}
	if !a.cut && ctx.Err() == nil {
		s.keep(a)
	}
	a.cancel(nil)
	a.cancel = nil // with the values of the context
	close(a.done)
}

// leave is for a caller whose ctx has ended. The last one ends the asking.
func (s *Share) leave(ctx context.Context, a *asking) {
	s.mu.Lock()
	a.waiters--
	last := a.waiters == 0 && a.cancel != nil
	if last {
		a.cancel(context.Cause(ctx))
		if s.asking[a.question] == a {
			delete(s.asking, a.question)
		}
	}
	s.mu.Unlock()
	if last {
		<-a.done
	}
}

// keep keeps an answer in the place of an earlier one.
func (s *Share) keep(a *asking) {
	a.weight = leastAnswer
	if w, ok := a.value.(interface{ Weight() int64 }); ok {
		a.weight = max(a.weight, w.Weight())
	}
	old, found := s.kept[a.question]
	if found && old.Value.(*asking).begun.After(a.begun) {
		return
	}
	if found {
		s.drop(old)
	}
	if a.weight > maxAnswer {
		return
	}
	s.kept[a.question] = s.oldest.PushBack(a)
	s.bytes += a.weight
	for s.oldest.Len() > maxAnswers || s.bytes > maxAnswerBytes {
		s.drop(s.oldest.Front())
	}
}

func (s *Share) drop(e *list.Element) {
	a := s.oldest.Remove(e).(*asking)
	delete(s.kept, a.question)
	s.bytes -= a.weight
}

// expire drops what is too old. What took long to come may stay a little longer.
func (s *Share) expire(now time.Time) {
	for e := s.oldest.Front(); e != nil && now.Sub(e.Value.(*asking).begun) > maxAnswerAge; e = s.oldest.Front() {
		s.drop(e)
	}
}

// An askContext tells the latest deadline of those who wait.
type askContext struct {
	context.Context
	share *Share
	of    *asking
}

// Deadline implements [context.Context].
func (c *askContext) Deadline() (time.Time, bool) {
	c.share.mu.Lock()
	defer c.share.mu.Unlock()
	a := c.of
	if a.endless {
		return time.Time{}, false
	}
	if a.shown.IsZero() || a.latest.Before(a.shown) {
		a.shown = a.latest
	}
	return a.latest, true
}
