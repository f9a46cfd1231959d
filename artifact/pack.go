package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/klauspost/compress/gzip"
)

// maxLeftOut bounds the entries a [Report] names.
const maxLeftOut = 1000

// A Report says what an archive holds and what was left out of it.
type Report struct {
	Files        int       // regular files
	Dirs         int       // directories, the root included
	Bytes        int64     // content bytes of the files
	LeftOut      []LeftOut // entries that an archive never holds: links, devices, submodules; the first 1,000
	LeftOutTotal int       // how many there were
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

// Pack writes tree to w as a gzip-compressed archive in normal form.
func Pack(ctx context.Context, w io.Writer, tree fs.FS) (Report, error) {
	zw := gzip.NewWriter(w)
	report, err := Tar(ctx, zw, tree)
	if err != nil {
		return report, err
	}
	return report, zw.Close()
}

// Tar writes tree to w as an uncompressed archive in normal form.
func Tar(ctx context.Context, w io.Writer, tree fs.FS) (Report, error) {
	var report Report
	omits, _ := tree.(interface{ Omits(dir string) bool })
	tw := tar.NewWriter(w)
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if bytes.ContainsAny([]byte(path.Base(name)), "\\\x00") {
			return &fs.PathError{Op: "pack", Path: name, Err: errors.New("no artifact can hold a name with a backslash or NUL: rename it or ignore it")}
		}
		switch mode := info.Mode(); {
		case mode.IsDir():
			if omits != nil && name != "." && omits.Omits(name) {
				return nil
			}
			report.Dirs++
			return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o750})
		case !mode.IsRegular():
			report.leaveOut(name, mode)
			return nil
		}
		perm := int64(0o600)
		if info.Mode()&0o111 != 0 {
			perm = 0o700
		}
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: perm, Size: info.Size()}); err != nil {
			return err
		}
		f, err := tree.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		n, err := io.Copy(tw, f)
		if err == nil && n != info.Size() {
			err = fmt.Errorf("pack %s: size changed from %d to %d while reading", name, info.Size(), n)
		}
		report.Files++
		report.Bytes += n
		return err
	})
	if err != nil {
		return report, err
	}
	return report, tw.Close()
}
