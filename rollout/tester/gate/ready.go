package gate

import "time"

// troubled is how long a change that could not be written counts: whoever is
// not ready is asked nothing, and would never find out that it is.
const troubled = time.Minute

// A trouble is a change that could not be written.
type trouble struct {
	err  error
	when time.Time
}

// Ready returns why the book takes no changes: that it is closed, or what went
// wrong with the last one, if that was within a minute.
func (b *Book) Ready() error {
	b.queue.mu.Lock()
	closed := b.queue.closed
	b.queue.mu.Unlock()
	if closed {
		return ErrClosed
	}
	if last := b.trouble.Load(); last != nil && b.now().Sub(last.when).Abs() < troubled { // clocks are set back, too
		return last.err
	}
	return nil
}
