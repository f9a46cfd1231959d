package artifact

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
)

// ratioFree is how many bytes an archive may hold before its ratio counts:
// small archives of repetitive files are legitimate.
const ratioFree = 16 << 20

// Limits bound what reading an archive may cost. The zero value of a field
// means its documented default; a negative value means no limit. Names are
// kept in memory: all of them together may have 64 bytes for each entry that
// Entries allows, 1 MiB at least.
type Limits struct {
	Bytes     int64 // uncompressed bytes of the whole archive, headers included; default 1 GiB
	FileBytes int64 // uncompressed bytes of one file; default 512 MiB
	Entries   int   // number of entries, those left out and implied directories included; default 1,000,000
	NameBytes int   // bytes of one entry's name; default 4096
	Ratio     int   // uncompressed bytes per compressed byte, beyond the first 16 MiB; default 1000

	// Temp creates the spool: an empty file that nobody else opens and that
	// disappears once it is closed, such as [Store.Temp] returns.
	// Default: a file in [os.TempDir].
	Temp func() (*os.File, error)
}

// withDefaults returns l with every number set.
func (l Limits) withDefaults() Limits {
	l.Bytes = bound(l.Bytes, 1<<30)
	l.FileBytes = bound(l.FileBytes, 512<<20)
	l.Entries = bound(l.Entries, 1_000_000)
	l.NameBytes = bound(l.NameBytes, 4096)
	l.Ratio = bound(l.Ratio, 1000)
	if l.Temp == nil {
		l.Temp = tempFile
	}
	return l
}

// Spool opens an empty file that disappears once it is closed, as Temp or its
// default does: for callers that keep what they read beside what Read makes of it.
func (l Limits) Spool() (*os.File, error) {
	f, err := l.withDefaults().Temp()
	if err != nil {
		return nil, fmt.Errorf("create spool: %w", err)
	}
	return f, nil
}

// bound resolves one limit: zero is the default, negative none.
func bound[T int | int64](limit, standard T) T {
	if limit < 0 {
		return math.MaxInt
	}
	return cmp.Or(limit, standard)
}

// allNames is how many bytes the names of all entries may have together.
func (l Limits) allNames() int64 {
	const average, least = 64, 1 << 20
	return max(least, average*min(int64(l.Entries), math.MaxInt64/average))
}

// packed is how many bytes an archive may have before it is decompressed: more
// than any encoder makes of what Bytes allows. A stream can grow without end
// and hold nothing.
func (l Limits) packed() int64 { return l.Bytes + min(l.Bytes/8+1<<20, math.MaxInt64-l.Bytes) }

// A LimitError reports an archive that exceeds one of the [Limits].
type LimitError struct {
	What  string // what there is too much of, with its unit: "bytes", "entries" …
	Limit int64
	Name  string // the entry where it happened, when it is about one
}

func (e *LimitError) Error() string {
	msg := fmt.Sprintf("more than %d %s", e.Limit, e.What)
	if e.Name != "" {
		msg = fmt.Sprintf("entry %q has %s", e.Name, msg)
	}
	return msg + ": raise the limit if the archive is trusted"
}

// A sourceReader counts what is read from r, at most limit bytes, and keeps r's
// own error, so that it can be told from those of a decoder.
type sourceReader struct {
	r     io.Reader
	n     int64
	limit int64
	err   error
}

func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.n += int64(n)
	if s.n > s.limit {
		err = &LimitError{What: "compressed bytes", Limit: s.limit}
	}
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// A guardReader counts the tar stream in r and fails as soon as there is more
// of it than the limits allow.
type guardReader struct {
	r      io.Reader
	n      int64
	zeros  int64 // length of the run of zero bytes at n, at most tarBlock for one read
	limit  Limits
	source *sourceReader
	packed bool // r decompresses source
}

func (g *guardReader) Read(p []byte) (int, error) {
	n, err := g.r.Read(p)
	g.n += int64(n)
	if tail := trailingZeros(p[:n]); tail == n {
		g.zeros += int64(tail)
	} else {
		g.zeros = int64(tail)
	}
	if g.n > g.limit.Bytes {
		return n, &LimitError{What: "bytes in the archive", Limit: g.limit.Bytes}
	}
	if g.packed && g.n > ratioFree && g.n/int64(g.limit.Ratio) > g.source.n {
		return n, &LimitError{What: "bytes for each compressed byte", Limit: int64(g.limit.Ratio)}
	}
	return n, err
}

// trailingZeros returns how many of the last bytes of p are zero, looking at
// one block of it.
func trailingZeros(p []byte) int {
	p = p[max(0, len(p)-tarBlock):]
	return len(p) - len(bytes.TrimRight(p, "\x00"))
}
