package artifact

import (
	"errors"
	"io"
	"io/fs"
)

// Limits bound what reading an archive may cost. The zero value of a field
// means its documented default; a negative value means no limit.
type Limits struct {
	Bytes     int64 // uncompressed bytes of the whole archive; default 1 GiB
	FileBytes int64 // uncompressed bytes of one file; default 512 MiB
	Entries   int   // number of entries; default 1,000,000
	Ratio     int   // uncompressed bytes per compressed byte, beyond the first 16 MiB; default 1000
}

// A Tree is an archive opened as a file system, without extracting it.
type Tree struct{}

// Read reads a tar or tar.gz archive.
func Read(r io.Reader, limit Limits) (*Tree, error) { return nil, errors.ErrUnsupported }

// Open implements [fs.FS].
func (t *Tree) Open(name string) (fs.File, error) { return nil, errors.ErrUnsupported }

// Close removes the spool.
func (t *Tree) Close() error { return nil }
