package artifact

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// ErrFormat is wrapped by the errors about input that is no archive this
// package reads, or a damaged one.
var ErrFormat = errors.New("not a valid tar or tar.gz archive")

// Read reads a tar or tar.gz archive, told apart by their first bytes, up to
// the end of r. The content of its files goes to one spool file; nothing is
// extracted. The package comment says what is accepted. Close the tree to
// remove the spool.
//
// Errors: a [*LimitError] when the archive exceeds limit; one that wraps
// [ErrFormat] when it is damaged or holds what no artifact may hold; r's own.
func Read(r io.Reader, limit Limits) (*Tree, error) {
	limit = limit.withDefaults()
	content, err := uncompressed(r, limit)
	if err != nil {
		return nil, fmt.Errorf("read archive: %w", err)
	}
	spool, err := limit.Temp()
	if err != nil {
		return nil, fmt.Errorf("read archive: create spool: %w", err)
	}
	in := &intake{limit: limit, in: content, spool: spool, out: bufio.NewWriterSize(spool, 256<<10), buf: make([]byte, 64<<10)}
	tree, err := in.read()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read archive: %w", err), spool.Close())
	}
	return tree, nil
}

// foreign names formats by their first bytes, for a helpful error.
var foreign = []struct{ magic, name string }{
	{"\x28\xb5\x2f\xfd", "zstd"},
	{"\xfd7zXZ\x00", "xz"},
	{"BZh", "bzip2"},
	{"PK", "zip"},
	{"{", "JSON"},
	{"<", "HTML or XML"},
}

// uncompressed returns the tar stream in r, guarded by the limits.
func uncompressed(r io.Reader, limit Limits) (*guardReader, error) {
	packed := &countReader{r: r}
	buffered := bufio.NewReaderSize(packed, 64<<10)
	head, err := buffered.Peek(8)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if len(head) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrFormat)
	}
	for _, f := range foreign {
		if bytes.HasPrefix(head, []byte(f.magic)) {
			return nil, fmt.Errorf("%w: it looks like %s", ErrFormat, f.name)
		}
	}
	if !bytes.HasPrefix(head, []byte("\x1f\x8b")) {
		return &guardReader{countReader: countReader{r: buffered}, limit: limit}, nil
	}
	zr, err := gzip.NewReader(buffered)
	if err != nil {
		return nil, damaged(err)
	}
	return &guardReader{countReader: countReader{r: zr}, limit: limit, packed: packed}, nil
}

// damaged marks what the decoders report as errors of format; limits and the
// errors of the input itself pass.
func damaged(err error) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	for _, e := range []error{io.ErrUnexpectedEOF, gzip.ErrHeader, gzip.ErrChecksum, tar.ErrHeader, tar.ErrFieldTooLong} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", ErrFormat, err)
		}
	}
	return err
}

// An intake reads one archive into a spool and an index.
type intake struct {
	limit   Limits
	in      *guardReader
	spool   *os.File
	out     *bufio.Writer
	buf     []byte
	offset  int64 // bytes in the spool
	entries int
	nodes   []node
	report  Report
}

func (in *intake) read() (*Tree, error) {
	tr := tar.NewReader(in.in)
	for {
		end := in.in.n // of the last entry's content
		hdr, err := tr.Next()
		if err == io.EOF {
			return in.finish(end)
		}
		if err != nil {
			return nil, damaged(err)
		}
		if err := in.entry(hdr, tr); err != nil {
			return nil, err
		}
	}
}

// entry takes in one entry.
func (in *intake) entry(hdr *tar.Header, content io.Reader) error {
	if hdr.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	if in.entries++; in.entries > in.limit.Entries {
		return &LimitError{What: "entries", Limit: int64(in.limit.Entries)}
	}
	if len(hdr.Name) > in.limit.NameBytes {
		return &LimitError{What: "bytes in its name", Limit: int64(in.limit.NameBytes), Name: hdr.Name[:64] + "…"}
	}
	name, err := cleanName(hdr.Name)
	if err != nil {
		return fmt.Errorf("%w: entry %q: %w", ErrFormat, hdr.Name, err)
	}
	mode, sparse := hdr.FileInfo().Mode(), isSparse(hdr)
	switch {
	case sparse:
		return fmt.Errorf("%w: entry %q is sparse: pack it without holes", ErrFormat, name)
	case hdr.Typeflag == tar.TypeDir:
		in.nodes = append(in.nodes, node{name: name, kind: kindDir})
		return nil
	case hdr.Typeflag == tar.TypeReg:
		return in.file(name, mode, hdr.Size, content)
	case hdr.Typeflag == tar.TypeLink:
		in.report.leaveOut(name, fs.ModeIrregular)
		return nil
	case mode.Type() != 0:
		in.report.leaveOut(name, mode)
		return nil
	}
	return fmt.Errorf("%w: entry %q has the unknown type %q", ErrFormat, name, hdr.Typeflag)
}

// file spools the content of one file.
func (in *intake) file(name string, mode fs.FileMode, size int64, content io.Reader) error {
	if name == "." {
		return fmt.Errorf("%w: the root is a file", ErrFormat)
	}
	if size > in.limit.FileBytes {
		return &LimitError{What: "bytes", Limit: in.limit.FileBytes, Name: name}
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{in.out}, struct{ io.Reader }{content}, in.buf)
	if err != nil {
		return damaged(err)
	}
	kind := kindFile
	if mode&0o111 != 0 {
		kind = kindExec
	}
	in.nodes = append(in.nodes, node{name: name, kind: kind, offset: in.offset, size: n})
	in.offset += n
	return nil
}

// finish checks what follows the last entry and builds the tree. Reading to
// the end lets a verifying reader below have its say.
func (in *intake) finish(end int64) (*Tree, error) {
	padding := -end & 511
	if in.in.n < end+padding+512 {
		return nil, fmt.Errorf("%w: it ends without an end-of-archive marker: it is truncated", ErrFormat)
	}
	for {
		n, err := in.in.Read(in.buf)
		if len(bytes.Trim(in.buf[:n], "\x00")) > 0 {
			return nil, fmt.Errorf("%w: data follows its end", ErrFormat)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, damaged(err)
		}
	}
	if err := in.out.Flush(); err != nil {
		return nil, fmt.Errorf("write spool: %w", err)
	}
	return newTree(in.spool, in.nodes, in.report)
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

// cleanName returns the [fs.FS] name of an entry.
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
	if len(kept) == 0 {
		return ".", nil
	}
	return strings.Join(kept, "/"), nil
}
