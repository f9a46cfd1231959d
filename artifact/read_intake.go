package artifact

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// An intake reads one archive into a spool and an index.
type intake struct {
	limit   Limits
	in      *guardReader
	out     *spooler
	buf     []byte
	offset  int64 // bytes in the spool
	entries int
	names   int64 // bytes of all names that are kept
	nodes   []node
	report  Report
}

func (in *intake) read() error {
	for tr := tar.NewReader(in.in); ; {
		last := in.in.n // where the content of the last entry ended
		hdr, err := tr.Next()
		if err == io.EOF {
			return in.finish(last + int64(padding(last)))
		}
		if err == nil {
			err = in.entry(hdr, tr)
		}
		if err != nil {
			return err
		}
	}
}

// leftOut has the types of entry that are kept out of the tree and the mode
// that the report gives them.
var leftOut = map[byte]fs.FileMode{
	tar.TypeSymlink: fs.ModeSymlink,
	tar.TypeLink:    fs.ModeIrregular,
	tar.TypeChar:    fs.ModeDevice | fs.ModeCharDevice,
	tar.TypeBlock:   fs.ModeDevice,
	tar.TypeFifo:    fs.ModeNamedPipe,
}

// entry takes in one entry.
func (in *intake) entry(hdr *tar.Header, content io.Reader) error {
	if in.entries++; in.entries > in.limit.Entries {
		return &LimitError{What: "entries", Limit: int64(in.limit.Entries)}
	}
	if hdr.Typeflag == tar.TypeXGlobalHeader {
		return nil // a comment, such as git archive's; it names no entry
	}
	if len(hdr.Name) > in.limit.NameBytes {
		return &LimitError{What: "bytes in its name", Limit: int64(in.limit.NameBytes), Name: hdr.Name[:min(64, len(hdr.Name))]}
	}
	name, err := cleanName(hdr.Name)
	if err != nil {
		return fmt.Errorf("%w: entry %q: %w", ErrFormat, hdr.Name, err)
	}
	if in.names += int64(len(name)); in.names > in.limit.allNames() {
		return &LimitError{What: "bytes in all names", Limit: in.limit.allNames()}
	}
	mode, isLeftOut := leftOut[hdr.Typeflag]
	switch {
	case isLeftOut:
		in.report.leaveOut(name, mode)
	case isSparse(hdr):
		return fmt.Errorf("%w: entry %q is sparse: make the archive without holes", ErrFormat, name)
	case hdr.Typeflag == tar.TypeDir:
		in.nodes = append(in.nodes, node{name: name, kind: kindDir})
	case hdr.Typeflag == tar.TypeReg && name != ".":
		if name != hdr.Name && len(in.report.Respelled) < maxLeftOut {
			in.report.Respelled = append(in.report.Respelled, name)
		}
		return in.file(name, hdr, content)
	default:
		return fmt.Errorf("%w: entry %q has type %q", ErrFormat, name, hdr.Typeflag)
	}
	return nil
}

// file spools the content of one file.
func (in *intake) file(name string, hdr *tar.Header, content io.Reader) error {
	if hdr.Size > in.limit.FileBytes {
		return &LimitError{What: "bytes", Limit: in.limit.FileBytes, Name: name}
	}
	// The wrappers keep the copy to buf: tar.Reader would write holes by seeking.
	n, err := io.CopyBuffer(struct{ io.Writer }{in.out}, struct{ io.Reader }{content}, in.buf)
	if err != nil {
		return err
	}
	kind := kindFile
	if hdr.Mode&0o111 != 0 {
		kind = kindExec
	}
	in.nodes = append(in.nodes, node{name: name, kind: kind, offset: in.offset, size: n})
	in.offset += n
	return nil
}

// finish checks what follows the last entry, whose padding ends at end, and
// completes the index. Reading to the end lets a verifying reader below have
// its say.
func (in *intake) finish(end int64) error {
	if min(in.in.zeros, in.in.n-end) < tarBlock {
		return fmt.Errorf("%w: the end-of-archive marker is missing: it is truncated", ErrFormat)
	}
	for {
		n, err := in.in.Read(in.buf)
		if len(bytes.TrimLeft(in.buf[:n], "\x00")) > 0 {
			return fmt.Errorf("%w: data follows its end", ErrFormat)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	nodes, replaced, err := index(in.nodes, in.limit.Entries)
	if err != nil {
		return err
	}
	in.nodes, in.report.Replaced = nodes, replaced
	in.report.count(nodes)
	return nil
}

// isSparse reports whether the entry has holes, in GNU's old or PAX spelling.
func isSparse(hdr *tar.Header) bool {
	if hdr.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for key := range hdr.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// cleanName returns the name of an entry in the tree. It refuses the names
// that consumers refuse (reference A7) and any other that leads upwards. The
// result shares no memory with name, which may be a part of a PAX header of
// any size.
func cleanName(name string) (string, error) {
	switch {
	case name == "":
		return "", errors.New("its name is empty")
	case name[0] == '/':
		return "", errors.New("its name is absolute")
	case strings.ContainsAny(name, "\\\x00"):
		return "", errors.New("its name contains a backslash or NUL")
	}
	parts := strings.Split(name, "/")
	kept := parts[:0]
	for _, part := range parts {
		switch part {
		case "", ".":
		case "..":
			return "", errors.New("its name leads out of the archive")
		default:
			kept = append(kept, part)
		}
	}
	switch len(kept) {
	case 0:
		return ".", nil
	case 1:
		return strings.Clone(kept[0]), nil
	}
	return strings.Join(kept, "/"), nil
}
