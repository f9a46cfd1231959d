package artifact

import (
	"context"
	"fmt"
	"io"
	"io/fs"
)

// maxLeftOut bounds the entries that each list of a [Report] names.
const maxLeftOut = 1000

// A Report says what an archive holds and what was left out of it.
type Report struct {
	Files        int       // regular files
	Dirs         int       // directories, the root included
	Bytes        int64     // content bytes of the files
	LeftOut      []LeftOut // what an archive never holds: links, devices, submodules; the first 1,000
	LeftOutTotal int       // how many there were
	Replaced     []string  // files that an archive being read has more than once, the last of which counts; the first 1,000
	Respelled    []string  // files that an archive being read spells otherwise, for example ./NAME or DIR//NAME; the first 1,000
}

// LeftOut names one entry that was left out and the mode that says why. A
// hard link in an archive has mode [fs.ModeIrregular].
type LeftOut struct {
	Name string
	Mode fs.FileMode
}

func (r *Report) leaveOut(name string, mode fs.FileMode) {
	if r.LeftOutTotal++; len(r.LeftOut) < maxLeftOut {
		r.LeftOut = append(r.LeftOut, LeftOut{Name: name, Mode: mode})
	}
}

// Pack writes tree to w as a gzip-compressed archive in normal form: [Tar]
// compressed in parallel, the same bytes on any machine.
func Pack(ctx context.Context, w io.Writer, tree fs.FS) (Report, error) {
	var none *Cache
	return none.Pack(ctx, w, tree)
}

// Tar writes tree to w as an uncompressed archive in normal form, which the
// package comment specifies. Files of up to 256 KiB are read ahead, several at
// a time and at most 5 MiB in all, so tree must be safe for concurrent use;
// larger ones are streamed. A directory for which the tree's method
//
//	Omits(dir string) bool
//
// reports true, if it has one, gets no entry of its own; what it holds does.
//
// When ctx ends, Tar fails with its cause as soon as reads of the tree that
// are under way return; a tree that waits for a network should watch ctx too.
// Nothing runs on after Tar has returned. Errors name the entry: the tree's
// own; one that wraps [fs.ErrInvalid] for a name that no consumer would accept;
// one that wraps [ErrChanged] when a file does not have the size it announced.
// With an error the report is incomplete, and so is what was written.
func Tar(ctx context.Context, w io.Writer, tree fs.FS) (Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	p := newPacker(ctx, tree)
	err := p.writeTo(w)
	cancel()
	p.running.Wait()
	if err != nil {
		return p.report, fmt.Errorf("pack: %w", err)
	}
	return p.report, nil
}
