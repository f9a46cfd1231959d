package source

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/headgate-io/headgate/internal/durable"
)

// A record is what a [Ledger] knows of a file that it read or wrote. The zero
// record knows nothing. The same content may come with another stamp; another
// content with the same stamp only while the record is not settled.
type record struct {
	stamp   durable.Stamp // zero: there was no such file
	sum     [sha256.Size]byte
	known   bool // stamp and sum are those of the file
	settled bool // the stamp tells for certain
	safe    bool // the file, or its absence, has reached the disk
}

// same reports whether a file is as f says, and settles f.
func (l *Ledger) same(name string, f *record) bool {
	if !f.known {
		return false
	}
	info, err := os.Lstat(l.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return f.stamp == durable.Stamp{}
	}
	if err != nil || durable.StampOf(info) != f.stamp {
		return false
	}
	return f.settled || l.settle(name, f)
}

// has reports whether a file is as f says, and has reached the disk.
func (l *Ledger) has(name string, f *record) bool { return f.safe && l.same(name, f) }

// settle reads a file that was changed so lately that its stamp may be that of
// another content.
func (l *Ledger) settle(name string, f *record) bool {
	root, err := l.open()
	if root == nil || err != nil {
		return false
	}
	defer root.Close()
	now := record{}
	if _, err := now.read(root, name); err != nil || now.sum != f.sum {
		return false
	}
	now.safe = f.safe && now.stamp == f.stamp
	*f = now
	return true
}

// holds reports whether data is the content of the file.
func (f *record) holds(data []byte) bool {
	if len(data) == 0 {
		return f.known && f.stamp == durable.Stamp{}
	}
	return f.known && f.stamp != durable.Stamp{} && f.sum == sha256.Sum256(data)
}

// read returns the content of a file and takes note of it.
func (f *record) read(root *os.Root, name string) ([]byte, error) {
	*f = record{}
	file, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		f.known, f.settled = true, true
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	now := time.Now()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	data, err := readAll(file, name, maxSaved)
	if err != nil {
		return nil, err
	}
	*f = record{stamp: durable.StampOf(info), sum: sha256.Sum256(data), known: true}
	f.settled = f.stamp.Settled(now)
	return data, nil
}

// read returns the content of a file of at most limit bytes, a number of MiB.
func read(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, name, limit)
}

func readAll(r io.Reader, name string, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is larger than %d MiB", name, limit>>20)
	}
	return data, nil
}

// write makes data the content of a file, durably; no data removes it. What is
// there already is not written again.
func (f *record) write(root *os.Root, name string, data []byte) error {
	old, err := f.read(root, name)
	switch exists := err == nil; {
	case exists && len(data) == 0:
		err = root.Remove(name)
		*f = record{known: true, settled: true}
	case !exists && len(data) == 0, exists && bytes.Equal(old, data):
		err = nil
	default:
		err = f.replace(root, name, data)
	}
	if err == nil {
		err = syncDirs(root, path.Dir(name))
	}
	if err != nil {
		*f = record{}
		return err
	}
	f.safe = true
	return nil
}

// replace writes data to a file beside name, and moves it there once it has
// reached the disk. That file has a fixed name, so that a crash leaves at most one.
func (f *record) replace(root *os.Root, name string, data []byte) error {
	temp := tempOf(name)
	file, err := create(root, temp)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	err = errors.Join(err, file.Sync())
	written, err1 := file.Stat()
	if err := errors.Join(err, err1, file.Close()); err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	if err := root.Rename(temp, name); err != nil {
		return err
	}
	*f = record{sum: sha256.Sum256(data)}
	if now, err := root.Lstat(name); err == nil { // moving it has changed the inode
		f.stamp = durable.StampOf(now)
		f.known = f.stamp.SameFile(durable.StampOf(written))
	}
	return nil
}

// tempOf returns the name of a file while it is written.
func tempOf(name string) string {
	dir, base := path.Split(name)
	return dir + "." + base
}

// create creates a file with its directories, while somebody may be removing
// those because they are empty.
func create(root *os.Root, name string) (file *os.File, err error) {
	for range 100 {
		file, err = root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
		if err = root.MkdirAll(path.Dir(name), 0o700); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return nil, err
}
