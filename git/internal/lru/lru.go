// Package lru holds a cache of bounded weight that forgets what was used the
// longest time ago.
package lru

import (
	"container/list"
	"sync"
)

// A Cache keeps the values used last, up to a total weight. A value that is
// heavier than that alone has a place of its own, which the next such value
// takes over. A Cache is safe for concurrent use; the values are shared.
type Cache[K comparable, V any] struct {
	mu    sync.Mutex
	limit int
	total int
	byKey map[K]*list.Element
	used  *list.List // of *entry, the one used last in front
	heavy *entry[K, V]
}

type entry[K comparable, V any] struct {
	key    K
	value  V
	weight int
}

// New returns a cache for values of the given total weight.
func New[K comparable, V any](limit int) *Cache[K, V] {
	return &Cache[K, V]{limit: limit, byKey: make(map[K]*list.Element), used: list.New()}
}

// Find returns the value of key, if it is kept.
func (c *Cache[K, V]) Find(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heavy != nil && c.heavy.key == key {
		return c.heavy.value, true
	}
	el, ok := c.byKey[key]
	if !ok {
		return value, false
	}
	c.used.MoveToFront(el)
	return el.Value.(*entry[K, V]).value, true
}

// Keep keeps the value of key. A key has one value for ever: keeping it twice
// changes nothing.
func (c *Cache[K, V]) Keep(key K, value V, weight int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := &entry[K, V]{key, value, weight}
	if weight > c.limit {
		c.heavy = e
		return
	}
	if _, ok := c.byKey[key]; ok {
		return
	}
	c.byKey[key] = c.used.PushFront(e)
	for c.total += weight; c.total > c.limit; {
		last := c.used.Remove(c.used.Back()).(*entry[K, V])
		delete(c.byKey, last.key)
		c.total -= last.weight
	}
}
