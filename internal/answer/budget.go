package answer

import (
	"container/list"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	smallAnswer = 64 << 10 // bytes that count for nothing
	smallBody   = 4 << 10  // likewise
	inMemory    = 64 << 20 // bytes of others at a time
)

// A Budget bounds what is in memory for callers who are slow, who could have any
// number of requests: answers until they are taken, or bodies until they are there.
// Those that are small count for nothing, so that they always get through. Of
// bodies that do not fit the one gives way that has been on its way the longest:
// whoever is slow keeps nobody out. Its zero value is ready.
type Budget struct {
	mu       sync.Mutex
	used     int64     // bytes
	arriving list.List // of *counted, the one that was large first in front
}

// ErrFull is the refusal of what does not fit into a [Budget].
var ErrFull = Refuse(http.StatusServiceUnavailable, "too much is sent and read slowly: come again")

// JSON answers as [JSON] does. When the answers that are being taken have more
// than 64 MiB with this one, the error is [ErrFull]; one that is alone may be
// of any size.
func (b *Budget) JSON(w http.ResponseWriter, status int, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if size := int64(len(body)); size > smallAnswer {
		defer b.add(-size)
		if used := b.add(size); used > inMemory && used > size {
			return ErrFull
		}
	}
	return sendJSON(w, status, body)
}

// add counts bytes and returns how many there are now.
func (b *Budget) add(n int64) (used int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += n
	return b.used
}

// Count returns a reader of the body of a request that w answers, which is kept
// in memory until the reader is closed. When the bodies of the budget have more
// than 64 MiB, the error of the one that gives way is [ErrFull], also when it
// waits for more to come.
func (b *Budget) Count(w http.ResponseWriter, body io.Reader) io.ReadCloser {
	return &counted{budget: b, w: w, body: body}
}

// A counted body is one of a budget, whose lock guards what follows the size.
type counted struct {
	budget *Budget
	w      http.ResponseWriter
	body   io.Reader
	size   int64 // bytes

	counts int64         // bytes of it, that the budget has
	place  *list.Element // among those that arrive
	out    bool          // it gave way
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	if c.size += int64(n); c.size <= smallBody {
		return n, err
	}
	b := c.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.out {
		return n, ErrFull
	}
	if c.counts == 0 {
		c.place = b.arriving.PushBack(c)
	}
	b.used += c.size - c.counts
	c.counts = c.size
	if err == io.EOF {
		c.leave() // it is not slow any more
	}
	for b.used > inMemory && b.used > c.counts {
		first := b.arriving.Front()
		if first == nil {
			c.giveWay()
			break
		}
		first.Value.(*counted).giveWay()
	}
	if c.out {
		return n, ErrFull
	}
	return n, err
}

// giveWay ends the reading of a body. It is called with the lock held, before
// its handler has returned.
func (c *counted) giveWay() {
	c.budget.used -= c.counts
	c.counts, c.out = 0, true
	c.leave()
	http.NewResponseController(c.w).SetReadDeadline(time.Unix(1, 0)) // whoever cannot sees it with the next bytes
}

// leave takes a body off those that arrive. It is called with the lock held.
func (c *counted) leave() {
	if c.place != nil {
		c.budget.arriving.Remove(c.place)
		c.place = nil
	}
}

// Close implements [io.Closer].
func (c *counted) Close() error {
	if c.size > smallBody {
		c.budget.mu.Lock()
		defer c.budget.mu.Unlock()
		c.budget.used -= c.counts
		c.counts, c.size = 0, 0
		c.leave()
	}
	return nil
}
