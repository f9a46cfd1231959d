package object

import (
	"context"
	"fmt"
	"math"
	"path"
)

// Totals is the size of a tree as a file system. Numbers are capped at math.MaxInt64.
type Totals struct {
	Entries int64 // files, links, submodules and folders, without the root
	Files   int64 // entries that are not folders
	Bytes   int64 // in files and links
	Modules int64 // of Files, those that are submodules
}

// Plus returns the totals of two trees together.
func (t Totals) Plus(u Totals) Totals {
	return Totals{saturatingAdd(t.Entries, u.Entries), saturatingAdd(t.Files, u.Files), saturatingAdd(t.Bytes, u.Bytes), saturatingAdd(t.Modules, u.Modules)}
}

// Measure returns the totals of the tree root of db. A few small trees that hold each
// other many times describe a file system too large to walk; Measure reads every tree
// once and adds up. It fails where [TreeFS] would, for a tree as for a blob that db
// lacks, and names the path. With lean, db may lack blobs, and Bytes is 0.
func Measure(ctx context.Context, db Database, root ID, lean bool) (Totals, error) {
	m := &measure{ctx: ctx, tree: TreeFS(db, root), totals: make(map[ID]Totals), lean: lean}
	return m.dir(root, "", 0)
}

type measure struct {
	ctx    context.Context
	tree   *FS
	totals map[ID]Totals
	lean   bool
}

func (m *measure) dir(id ID, at string, depth int) (total Totals, err error) {
	if total, ok := m.totals[id]; ok {
		return total, nil
	}
	if depth > MaxDepth {
		return total, fmt.Errorf("%.80s…: %w: folders in folders, more than %d", at, ErrCorrupt, MaxDepth)
	}
	if err := m.ctx.Err(); err != nil {
		return total, err
	}
	entries, err := m.tree.readDir(id)
	if err != nil {
		return total, fmt.Errorf("%s: %w", path.Join(".", at), err)
	}
	for _, e := range entries {
		name := path.Join(at, e.Name)
		var part Totals
		if e.Mode.IsDir() {
			part, err = m.dir(e.ID, name, depth+1)
		} else {
			part.Files = 1
			if e.Mode&modeKind == ModeSubmodule {
				part.Modules = 1
			} else if !m.lean {
				if part.Bytes, err = m.tree.blobSize(e.ID); err != nil {
					err = fmt.Errorf("%s: %w", name, err)
				}
			}
		}
		if err != nil {
			return total, err
		}
		part.Entries = saturatingAdd(part.Entries, 1)
		total = total.Plus(part)
	}
	m.totals[id] = total
	return total, nil
}

// saturatingAdd adds numbers that are not negative, up to the largest one.
func saturatingAdd(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
