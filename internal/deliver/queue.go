package deliver

const (
	maxQueued     = 256     // items that wait for one receiver
	maxQueuedSize = 4 << 20 // bytes of their text
)

// A queued item, with what decides whether it is dropped.
type queued[T any] struct {
	item       T
	rank, size int
}

// A queue holds what a receiver is to be told, in order.
type queue[T any] struct {
	items []queued[T]
	size  int // bytes
}

// push appends an item, and returns how many items it had to drop for it,
// which may be the new one: the oldest of the least rank, until one is left or
// the bounds are kept.
func (q *queue[T]) push(item queued[T]) (dropped int) {
	q.items = append(q.items, item)
	q.size += item.size
	for len(q.items) > 1 && (len(q.items) > maxQueued || q.size > maxQueuedSize) {
		least := 0
		for i := range q.items {
			if q.items[i].rank < q.items[least].rank {
				least = i
			}
		}
		q.remove(least)
		dropped++
	}
	return dropped
}

// pop takes the oldest item.
func (q *queue[T]) pop() (item T, ok bool) {
	if len(q.items) == 0 {
		return item, false
	}
	item = q.items[0].item
	q.remove(0)
	return item, true
}

func (q *queue[T]) remove(i int) {
	q.size -= q.items[i].size
	copy(q.items[i:], q.items[i+1:])
	last := len(q.items) - 1
	q.items[last] = queued[T]{}
	q.items = q.items[:last]
}
