package artifact

import (
	"context"
	"io/fs"
	"slices"
)

// account evicts when size more bytes may have made the cache too large.
func (c *Cache) account(size int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.added += size
	slack := c.limit / 16
	if c.known >= 0 && c.added <= slack && c.known+c.added <= c.limit {
		return nil
	}
	return c.evict()
}

// evict counts the entries and removes the oldest while they exceed the limit:
// a sixteenth more than needed, so that not every Put comes here. The caller
// holds c.mu; other processes may evict at the same time.
func (c *Cache) evict() error {
	entries, total, err := c.entries()
	if err != nil {
		return err
	}
	c.known, c.added = total, 0
	if total > c.limit {
		if _, err := c.remove(entries[:max(len(entries)-1, 0)], total, c.limit-c.limit/16); err != nil { // the newest fits alone
			return err
		}
	}
	for _, dir := range []string{cacheTemp, cacheLocks} {
		if _, err := (scratch{root: c.root, dir: dir}).sweep(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

// entries lists the entries, those used longest ago first.
func (c *Cache) entries() (list []fs.FileInfo, total int64, err error) {
	all, err := readDir(c.root, cacheEntries)
	for _, e := range all {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue // another process was faster
		}
		list = append(list, info)
		total += info.Size()
	}
	slices.SortFunc(list, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	return list, total, err
}
