package artifact

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
)

// ErrFormat is wrapped by the errors about input that is no archive this
// package reads, or a damaged one.
var ErrFormat = errors.New("not a valid tar archive, plain or compressed by gzip or zstd")

// Read reads a tar archive, plain or compressed by gzip or zstd, told apart by
// their first bytes, up to the end of r. The content of its files goes to one spool file; nothing is
// extracted. The package comment says what is accepted. Close the tree to
// remove the spool.
//
// Errors: a [*LimitError] when the archive exceeds limit; one that wraps
// [ErrFormat] when it is damaged or holds what no artifact may hold; r's own.
func Read(r io.Reader, limit Limits) (*Tree, error) {
	tree, err := read(r, limit.withDefaults())
	if err != nil {
		return nil, fmt.Errorf("read archive: %w", err)
	}
	return tree, nil
}

func read(r io.Reader, limit Limits) (*Tree, error) {
	source := &sourceReader{r: r, limit: limit.packed()}
	content, err := uncompressed(source, limit)
	if err != nil {
		return nil, damaged(err, source)
	}
	spool, err := limit.Spool()
	if err != nil {
		return nil, err
	}
	in := &intake{
		limit: limit,
		in:    content,
		out:   newSpooler(spool),
		buf:   make([]byte, 64<<10),
	}
	err = in.read()
	if err = cmp.Or(err, in.out.end()); err != nil {
		return nil, errors.Join(damaged(err, source), spool.Close())
	}
	return &Tree{spool: spool, nodes: in.nodes, report: in.report}, nil
}

// foreign names formats by their first bytes, for a helpful error.
var foreign = []struct{ magic, name string }{
	{"\xfd7zXZ\x00", "xz"},
	{"BZh", "bzip2"},
	{"PK\x03\x04", "zip"},
	{"{", "JSON"},
	{"<", "HTML or XML"},
}

// uncompressed returns the tar stream in source, guarded by the limits.
func uncompressed(source *sourceReader, limit Limits) (*guardReader, error) {
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
			plain, err := c.open(buffered)
			if err != nil {
				return nil, err
			}
			return &guardReader{r: plain, limit: limit, source: source, packed: true}, nil
		}
	}
	for _, f := range foreign {
		if bytes.HasPrefix(head, []byte(f.magic)) && !isTar {
			return nil, fmt.Errorf("%w: it looks like %s", ErrFormat, f.name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: it ends after %d bytes", ErrFormat, len(head))
	}
	return &guardReader{r: buffered, limit: limit, source: source}, nil
}

// damaged tells what went wrong: the source's own error first, then a limit;
// what else the decoders report is an error of format.
func damaged(err error, source *sourceReader) error {
	var limit *LimitError
	var spool *spoolError
	switch {
	case source.err != nil:
		return source.err
	case errors.As(err, &limit), errors.As(err, &spool), errors.Is(err, ErrFormat):
		return err
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: %w", ErrFormat, err)
}
