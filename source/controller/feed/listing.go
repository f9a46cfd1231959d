package feed

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/durable"
)

// A listing is what a directory holds that matters, in lexical order.
type listing struct {
	stamp   durable.Stamp
	settled bool
	entries []entry
	round   int // of the last walk that came by
}

// An entry is a name in a directory.
type entry struct {
	path string
	dir  bool     // for certain
	file *content // nil when it was not looked at
}

// listings are the directories of one walk after another. What did not change
// is not listed again.
type listings struct {
	known map[string]*listing
	round int
	now   time.Time                                // when the walk began
	want  func(name string, kind fs.FileMode) bool // what matters of a directory
}

// list returns what is in the directory that info describes.
func (l *listings) list(name string, info fs.FileInfo) ([]entry, error) {
	stamp := durable.StampOf(info)
	d := l.known[name]
	if d != nil && d.settled && d.stamp == stamp {
		d.round = l.round
		return d.entries, nil
	}
	delete(l.known, name)
	list, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	d = &listing{stamp: stamp, settled: stamp.Settled(l.now), round: l.round}
	for _, e := range list {
		if l.want(e.Name(), e.Type()) {
			d.entries = append(d.entries, entry{path: filepath.Join(name, e.Name()), dir: e.IsDir()})
		}
	}
	if l.known == nil {
		l.known = make(map[string]*listing)
	}
	l.known[name] = d
	return d.entries, nil
}

// begin begins a walk.
func (l *listings) begin() {
	l.round++
	l.now = time.Now()
}

// forget drops the directories that the last walk did not come by.
func (l *listings) forget() {
	for name, d := range l.known {
		if d.round != l.round {
			delete(l.known, name)
		}
	}
}

// manifest reports whether an entry of a directory may hold documents.
func manifest(name string, kind fs.FileMode) bool {
	if kind.IsDir() {
		return !strings.HasPrefix(name, ".")
	}
	switch strings.ToLower(path.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// key reports whether an entry of a directory may hold Secrets.
func key(name string, _ fs.FileMode) bool { return !strings.HasPrefix(name, "..") }
