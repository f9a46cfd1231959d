package bundle

import (
	"fmt"
	"sync"

	"github.com/headgate-io/headgate/artifact"
)

// A Budget is what several archives may hold together, in bytes before
// compression. It is safe for concurrent use.
type Budget struct {
	limit int64 // negative for none

	mu    sync.Mutex
	spent int64
}

// NewBudget returns a budget of l.Bytes, or of its default.
func NewBudget(l artifact.Limits) *Budget { return &Budget{limit: Limits(l).Bytes} }

// Spend takes what a holds. The error, when there is not so much left, wraps
// [ErrChart] and an [*artifact.LimitError].
func (b *Budget) Spend(a *Archive) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := a.tree.Report()
	b.spent += r.Bytes + 512*int64(r.Files+r.Dirs) // with the headers
	if b.limit >= 0 && b.spent > b.limit {
		return fmt.Errorf("%w: %w", ErrChart, &artifact.LimitError{What: "bytes in all archives together", Limit: b.limit})
	}
	return nil
}
