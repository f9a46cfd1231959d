package object

import (
	"container/list"
	"sync"
)

// cacheBytes bounds the parsed trees that a [TreeFS] keeps: those of the path
// that a walk is at, and enough around it, not those of the repository.
const cacheBytes = 4 << 20

// A dirCache keeps the parsed trees used last. It is safe for concurrent use.
type dirCache struct {
	mu    sync.Mutex
	limit int
	size  int
	byID  map[ID]*list.Element
	used  *list.List // of *cached, the one used last in front
	huge  *cached    // the last one that exceeds limit alone: a walk stays in it for long
}

type cached struct {
	id  ID
	dir *dir
}

func newDirCache(limit int) *dirCache {
	return &dirCache{limit: limit, byID: make(map[ID]*list.Element), used: list.New()}
}

func (c *dirCache) get(id ID) *dir {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.huge != nil && c.huge.id == id {
		return c.huge.dir
	}
	el, ok := c.byID[id]
	if !ok {
		return nil
	}
	c.used.MoveToFront(el)
	return el.Value.(*cached).dir
}

func (c *dirCache) put(id ID, d *dir) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.weight() > c.limit {
		c.huge = &cached{id, d}
		return
	}
	if _, ok := c.byID[id]; ok {
		return
	}
	c.byID[id] = c.used.PushFront(&cached{id, d})
	c.size += d.weight()
	for c.size > c.limit {
		oldest := c.used.Back()
		e := c.used.Remove(oldest).(*cached)
		delete(c.byID, e.id)
		c.size -= e.dir.weight()
	}
}

// weight is about the number of bytes that d occupies.
func (d *dir) weight() int { return 256 + 96*len(d.entries) }
