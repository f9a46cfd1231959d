package artifact

import (
	"context"
	"errors"
	"io"
	"io/fs"
)

// A Report says what [Pack] put into an archive and what it left out.
type Report struct {
	Files   int       // regular files written
	Dirs    int       // directories written, the root included
	Bytes   int64     // content bytes of the files written
	LeftOut []LeftOut // entries that an archive never holds: links, devices, submodules
}

// LeftOut names one entry that was not packed and the mode that says why.
type LeftOut struct {
	Name string
	Mode fs.FileMode
}

// Pack writes tree to w as a gzip-compressed archive in normal form.
func Pack(ctx context.Context, w io.Writer, tree fs.FS) (Report, error) {
	return Report{}, errors.ErrUnsupported
}

// Tar writes tree to w as an uncompressed archive in normal form.
func Tar(ctx context.Context, w io.Writer, tree fs.FS) (Report, error) {
	return Report{}, errors.ErrUnsupported
}
