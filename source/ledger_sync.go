package source

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
)

// Sync makes what Load has read durable, all of it at once: another process may
// have died before it did. Save needs no more than a look at a file then, as
// long as nothing changes.
func (l *Ledger) Sync() error {
	root, err := l.open()
	if root == nil {
		return err
	}
	defer root.Close()
	l.mu.Lock()
	before := maps.Clone(l.known)
	l.mu.Unlock()
	dirs := make(map[string]bool)
	for address, m := range before {
		if !m.document.safe || !m.state.safe {
			dirs[path.Dir(address)] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		if err := syncDirs(root, dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("ledger: %w", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for address, m := range before {
		now, known := l.known[address]
		if known && dirs[path.Dir(address)] {
			now.document.safe = now.document.safe || now.document.stamp == m.document.stamp
			now.state.safe = now.state.safe || now.state.stamp == m.state.stamp
			l.known[address] = now
		}
	}
	return nil
}
