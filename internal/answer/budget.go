package answer

import (
	"encoding/json"
	"io"
	"net/http"
	"sync/atomic"
)

const (
	smallAnswer = 64 << 10 // bytes that count for nothing
	smallBody   = 4 << 10  // likewise
	inMemory    = 64 << 20 // bytes of others at a time
)

// A Budget bounds what is in memory for callers who are slow, who could have any
// number of requests: answers until they are taken, or bodies until they are there.
// Those that are small count for nothing, so that they always get through.
// Its zero value is ready.
type Budget struct {
	used atomic.Int64 // bytes
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
		defer b.used.Add(-size)
		if used := b.used.Add(size); used > inMemory && used > size {
			return ErrFull
		}
	}
	return sendJSON(w, status, body)
}

// Count returns a reader of a body that is kept in memory until the reader is closed.
// When the bodies of the budget have more than 64 MiB its error is [ErrFull], as for JSON.
func (b *Budget) Count(body io.Reader) io.ReadCloser { return &counted{budget: b, body: body} }

// A counted body is one of a budget.
type counted struct {
	budget *Budget
	body   io.Reader
	size   int64 // bytes
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	before := c.counts()
	c.size += int64(n)
	if used := c.budget.used.Add(c.counts() - before); used > inMemory && c.counts() > 0 && used > c.counts() {
		return n, ErrFull
	}
	return n, err
}

// counts returns as how much the body counts, in bytes.
func (c *counted) counts() int64 {
	if c.size <= smallBody {
		return 0
	}
	return c.size
}

// Close implements [io.Closer].
func (c *counted) Close() error {
	c.budget.used.Add(-c.counts())
	c.size = 0
	return nil
}
