package artifact

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/klauspost/readahead"

	"github.com/headgate-io/headgate/internal/durable"
)

// ErrFormat is wrapped by errors about input that is damaged or not a supported archive.
var ErrFormat = errors.New("not a valid tar archive, plain or compressed by gzip or zstd")

// Read reads a tar archive, plain or compressed by gzip or zstd, up to the end of r. It recognizes
// the compression by the first bytes, writes the content of all files to one spool file and
// extracts nothing. The package comment says what is accepted. The caller must close the tree,
// which removes the spool.
//
// The error is a [*LimitError] if the archive exceeds limit. It wraps [ErrFormat] if the archive is
// damaged or has content that no artifact may have. Otherwise it is an error of r or of the spool.
func Read(r io.Reader, limit Limits) (_ *Tree, err error) {
	defer wrap(&err, "read archive")
	limit = limit.withDefaults()
	source := &sourceReader{r: r, limit: limit.packed()}
	content, err := decompress(source, limit)
	if err != nil {
		return nil, readError(err, source)
	}
	spool, err := limit.Spool()
	if err != nil {
		return nil, errors.Join(err, content.Close())
	}
	in := &archiveIndexer{limit: limit, in: content, out: bufio.NewWriterSize(spool, spoolBuffer), buf: make([]byte, 64<<10), dirs: map[string][]node{}}
	err = in.read()
	_ = content.Close() // only waits; errors of source are checked below
	if err != nil {
		err = readError(err, source)
	}
	if failed := in.out.Flush(); failed != nil { // includes errors of earlier writes
		err = fmt.Errorf("write spool: %w", failed)
	}
	if err != nil {
		return nil, errors.Join(err, spool.Close())
	}
	return &Tree{spool: spool, dirs: in.dirs, report: in.report}, nil
}

// otherFormats has the first bytes of other formats, for a helpful error.
var otherFormats = []struct{ magic, name string }{
	{"\xfd7zXZ\x00", "xz"},
	{"BZh", "bzip2"},
	{"PK\x03\x04", "zip"},
	{"{", "JSON"},
	{"<", "HTML or XML"},
}

// decompress returns the tar stream in source, with the limits enforced.
func decompress(source *sourceReader, limit Limits) (*guardReader, error) {
	buffered := bufio.NewReaderSize(source, 64<<10)
	head, err := buffered.Peek(tarBlock)
	if source.err != nil {
		return nil, source.err
	}
	if len(head) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrFormat)
	}
	isTar := len(head) == tarBlock && string(head[257:262]) == "ustar" // whatever its first name begins with
	for _, c := range compressions {
		if c.begins(head) && !isTar {
			decompressed, err := c.open(buffered)
			if err != nil {
				return nil, err
			}
			ahead, err := readahead.NewReaderSize(decompressed, 4, 128<<10) // decompress and read tar on different processors
			return &guardReader{ReadCloser: ahead, limit: limit, source: source, packed: true}, err
		}
	}
	for _, f := range otherFormats {
		if bytes.HasPrefix(head, []byte(f.magic)) && !isTar {
			return nil, fmt.Errorf("%w: it looks like %s", ErrFormat, f.name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: it ends after %d bytes", ErrFormat, len(head))
	}
	return &guardReader{ReadCloser: io.NopCloser(buffered), limit: limit, source: source}, nil
}

// readError returns the cause of err: the source's own error first, then a limit; any other error of
// the decoders becomes an ErrFormat.
func readError(err error, source *sourceReader) error {
	var limit *LimitError
	switch {
	case source.err != nil:
		return source.err
	case errors.As(err, &limit), errors.Is(err, ErrFormat):
		return err
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: %w", ErrFormat, err)
}

// ratioFree is the number of uncompressed bytes for which the ratio is not checked: small archives
// of repetitive files are legitimate.
const ratioFree = 16 << 20

// Limits bound the cost of reading an archive. The zero value of a field means its documented
// default; a negative value means no limit. Names are kept in memory: their total is limited to 64
// bytes for each entry that Entries allows, but at least 1 MiB.
type Limits struct {
	Bytes     int64 // uncompressed bytes of the whole archive, headers included; default 1 GiB
	FileBytes int64 // uncompressed bytes of one file; default 512 MiB
	Entries   int   // number of entries, including those left out and implied directories; default 1,000,000
	NameBytes int   // bytes of one entry's name; default 4096
	Ratio     int   // uncompressed bytes per compressed byte, beyond the first 16 MiB; default 1000

	// Temp creates the spool: an empty file that no other process opens and that
	// disappears once it is closed, such as [Store.Temp] returns.
	// Default: a file in [os.TempDir].
	Temp func() (*os.File, error)
}

// withDefaults returns l with every number set.
func (l Limits) withDefaults() Limits {
	l.Bytes = limitOrDefault(l.Bytes, 1<<30)
	l.FileBytes = limitOrDefault(l.FileBytes, 512<<20)
	l.Entries = limitOrDefault(l.Entries, 1_000_000)
	l.NameBytes = limitOrDefault(l.NameBytes, 4096)
	l.Ratio = limitOrDefault(l.Ratio, 1000)
	if l.Temp == nil {
		l.Temp = durable.TempFile
	}
	return l
}

// Spool opens an empty file that is deleted when it is closed, as Temp or its default does. It is
// for callers that also need a copy of the input of Read.
func (l Limits) Spool() (*os.File, error) {
	f, err := l.withDefaults().Temp()
	if err != nil {
		return nil, fmt.Errorf("create spool: %w", err)
	}
	return f, nil
}

// limitOrDefault resolves one limit: zero means the default, negative means none.
func limitOrDefault[T int | int64](limit, standard T) T {
	if limit < 0 {
		return math.MaxInt
	}
	return cmp.Or(limit, standard)
}

// allNames returns the maximum total size of the names of all entries, in bytes.
func (l Limits) allNames() int64 {
	const average, least = 64, 1 << 20
	return max(least, average*min(int64(l.Entries), math.MaxInt64/average))
}

// packed returns the maximum size of an archive before decompression: more than any encoder makes
// of Bytes. Without it, a stream could grow without end and contain nothing.
func (l Limits) packed() int64 { return l.Bytes + min(l.Bytes/8+1<<20, math.MaxInt64-l.Bytes) }

// A LimitError reports an archive that exceeds one of the [Limits].
type LimitError struct {
	What  string // what exceeds the limit, with its unit: "bytes", "entries" …
	Limit int64
	Name  string // the entry concerned, if any
}

func (e *LimitError) Error() string {
	msg := fmt.Sprintf("more than %d %s", e.Limit, e.What)
	if e.Name != "" {
		msg = fmt.Sprintf("entry %q has %s", e.Name, msg)
	}
	return msg + ": raise the limit if the archive is trusted"
}

// A sourceReader counts the bytes read from r, allows at most limit of them, and keeps r's own
// error, so that it can be distinguished from errors of a decoder.
type sourceReader struct {
	r     io.Reader
	n     atomic.Int64 // read by guardReader while another goroutine decompresses
	limit int64
	err   error
}

func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if s.n.Add(int64(n)) > s.limit {
		err = &LimitError{What: "compressed bytes", Limit: s.limit}
	}
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// A guardReader counts the bytes of the tar stream and fails as soon as they exceed the limits.
type guardReader struct {
	io.ReadCloser
	n      int64
	zeros  int64 // length of the run of zero bytes that ends at n; a single read adds at most tarBlock
	limit  Limits
	source *sourceReader
	packed bool // the stream decompresses source
}

func (g *guardReader) Read(p []byte) (int, error) {
	n, err := g.ReadCloser.Read(p)
	g.n += int64(n)
	if tail := trailingZeros(p[:n]); tail == n {
		g.zeros += int64(tail)
	} else {
		g.zeros = int64(tail)
	}
	if g.n > g.limit.Bytes {
		return n, &LimitError{What: "bytes in the archive", Limit: g.limit.Bytes}
	}
	if g.packed && g.n > ratioFree && g.n/int64(g.limit.Ratio) > g.source.n.Load() {
		return n, &LimitError{What: "bytes for each compressed byte", Limit: int64(g.limit.Ratio)}
	}
	return n, err
}

// trailingZeros returns how many of the last bytes of p are zero. It looks at the last block only.
func trailingZeros(p []byte) int {
	p = p[max(0, len(p)-tarBlock):]
	return len(p) - len(bytes.TrimRight(p, "\x00"))
}

// maxWindow bounds the window of a zstd frame, which the decoder keeps in memory. It is the default
// limit of the zstd program, which writes windows of at most 8 MiB up to level 19, and of 128 MiB
// at level 22 and with --long.
const maxWindow = 128 << 20

// compressions are the supported compressions of [Read]. Reading the result of open up to its end
// reads all of r, or fails. It starts no goroutine and needs no Close.
var compressions = []struct {
	begins func(head []byte) bool
	open   func(r io.Reader) (io.Reader, error)
}{
	{isGzip, func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
	{isZstd, openZstd},
}

func isGzip(head []byte) bool { return bytes.HasPrefix(head, []byte("\x1f\x8b")) }

// isZstd reports whether head begins with a data frame or with a skippable frame, which parallel
// encoders write first.
func isZstd(head []byte) bool {
	return bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")) ||
		len(head) >= 4 && head[0]&0xf0 == 0x50 && string(head[1:4]) == "\x2a\x4d\x18"
}

// openZstd returns the content of the frames in r.
func openZstd(r io.Reader) (io.Reader, error) {
	d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(maxWindow))
	if err != nil {
		return nil, err
	}
	return zstdReader{d}, nil
}

// A zstdReader adds the format and advice to errors.
type zstdReader struct{ r io.Reader }

func (z zstdReader) Read(p []byte) (int, error) {
	n, err := z.r.Read(p)
	switch {
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		err = fmt.Errorf("zstd: %w: its window may have %d MiB: compress it without --ultra and --long", err, maxWindow>>20)
	case errors.Is(err, zstd.ErrUnknownDictionary):
		err = fmt.Errorf("zstd: %w: compress it without a dictionary", err)
	case err != nil && err != io.EOF:
		err = fmt.Errorf("zstd: %w", err)
	}
	return n, err
}

// An archiveIndexer reads one archive into a spool and an index.
type archiveIndexer struct {
	limit   Limits
	in      *guardReader
	out     *bufio.Writer
	buf     []byte
	offset  int64 // bytes in the spool
	entries int
	folders int               // number of directories in dirs
	names   int64             // bytes of all names that are kept
	dirs    map[string][]node // as in a Tree, once it is complete
	report  Report
}

func (in *archiveIndexer) read() error {
	for tr := tar.NewReader(in.in); ; {
		last := in.in.n // where the content of the last entry ended
		hdr, err := tr.Next()
		if err == io.EOF {
			return in.finish(last + int64(padding(last)))
		}
		if err == nil {
			err = in.addEntry(hdr, tr)
		}
		if err != nil {
			return err
		}
	}
}

// leftOut has the types of entries that are left out of the tree, and the mode of each in the
// report.
var leftOut = map[byte]fs.FileMode{
	tar.TypeSymlink: fs.ModeSymlink,
	tar.TypeLink:    fs.ModeIrregular,
	tar.TypeChar:    fs.ModeDevice | fs.ModeCharDevice,
	tar.TypeBlock:   fs.ModeDevice,
	tar.TypeFifo:    fs.ModeNamedPipe,
}

// addEntry processes one entry.
func (in *archiveIndexer) addEntry(hdr *tar.Header, content io.Reader) error {
	if in.entries++; in.entries > in.limit.Entries {
		return &LimitError{What: "entries", Limit: int64(in.limit.Entries)}
	}
	if hdr.Typeflag == tar.TypeXGlobalHeader {
		return nil // a comment, such as that of git archive; it is not an entry
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
		in.report.addLeftOut(name, mode)
	case isSparse(hdr):
		return fmt.Errorf("%w: entry %q is sparse: make the archive without holes", ErrFormat, name)
	case hdr.Typeflag == tar.TypeDir:
		return in.add(node{name: name})
	case hdr.Typeflag == tar.TypeReg && name != ".":
		if name != hdr.Name && len(in.report.Respelled) < maxLeftOut {
			in.report.Respelled = append(in.report.Respelled, name)
		}
		return in.addFile(name, hdr, content)
	default:
		return fmt.Errorf("%w: entry %q has type %q", ErrFormat, name, hdr.Typeflag)
	}
	return nil
}

// addFile spools the content of one file.
func (in *archiveIndexer) addFile(name string, hdr *tar.Header, content io.Reader) error {
	if hdr.Size > in.limit.FileBytes {
		return &LimitError{What: "bytes", Limit: in.limit.FileBytes, Name: name}
	}
	// The wrappers make the copy use buf: tar.Reader would write holes by seeking.
	n, err := io.CopyBuffer(struct{ io.Writer }{in.out}, struct{ io.Reader }{content}, in.buf)
	if err != nil {
		return err
	}
	kind := kindFile
	if hdr.Mode&0o111 != 0 {
		kind = kindExec
	}
	in.offset += n
	return in.add(node{name: name, kind: kind, offset: in.offset - n, size: n})
}

// add adds a node and its implied directories. A long name can imply many, so they are counted.
func (in *archiveIndexer) add(n node) error {
	if n.name == "." {
		return nil
	}
	dir, _ := split(n.name)
	if in.dirs[dir] == nil {
		if in.folders++; in.folders > in.limit.Entries {
			return &LimitError{What: "directories", Limit: int64(in.limit.Entries)}
		}
		if err := in.add(node{name: dir}); err != nil {
			return err
		}
	}
	in.dirs[dir] = append(in.dirs[dir], n)
	return nil
}

// finish checks what follows the last entry, whose padding ends at end, and completes the index. It
// reads to the end so that an underlying verifying reader checks the content.
func (in *archiveIndexer) finish(end int64) error {
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
	in.report.Dirs = 1 // the root
	for _, dir := range slices.Sorted(maps.Keys(in.dirs)) {
		if err := in.finishDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// finishDir sorts the nodes of a directory, keeps the last of each name, and counts the nodes.
func (in *archiveIndexer) finishDir(dir string) error {
	all := in.dirs[dir]
	slices.SortStableFunc(all, byName)
	kept := all[:0]
	for i, n := range all {
		if i+1 < len(all) && all[i+1].name == n.name {
			if all[i+1].IsDir() != n.IsDir() {
				return fmt.Errorf("%w: %q is both a file and a directory", ErrFormat, n.name)
			}
			if !n.IsDir() && len(in.report.Replaced) < maxLeftOut {
				in.report.Replaced = append(in.report.Replaced, n.name)
			}
			continue
		}
		kept = append(kept, n)
		if n.IsDir() {
			in.report.Dirs++
		} else {
			in.report.Files++
			in.report.Bytes += n.size
		}
	}
	in.dirs[dir] = slices.Clip(kept)
	return nil
}

// isSparse reports whether the entry is sparse, in GNU's old format or as PAX records.
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

// cleanName returns the name of an entry in the tree. It refuses the names that consumers refuse
// (reference A7) and any other name with "..". The result shares no memory with name, which may be
// a part of a PAX header of any size.
func cleanName(name string) (string, error) {
	switch {
	case name == "":
		return "", errors.New("its name is empty")
	case name[0] == '/':
		return "", errors.New("its name is absolute")
	case strings.ContainsAny(name, "\\\x00"):
		return "", errors.New("its name contains a backslash or NUL")
	}
	if slices.Contains(strings.Split(name, "/"), "..") {
		return "", errors.New("its name leads out of the archive")
	}
	return strings.Clone(path.Clean(name)), nil
}

// spoolBuffer is the number of bytes written to a spool at a time.
const spoolBuffer = 256 << 10
