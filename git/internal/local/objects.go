package local

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/klauspost/compress/zlib"

	"github.com/headgate-io/headgate/git/internal/object"
)

// Stat implements [object.Database].
func (r *Repo) Stat(id object.ID) (t object.Type, size int64, err error) {
	at, loose, err := r.find(id)
	switch {
	case err != nil:
	case loose != nil:
		var content io.ReadCloser
		if t, size, content, err = openLoose(loose); err == nil {
			content.Close()
		}
	default:
		t, size, err = r.statPacked(at)
	}
	return t, size, wrap(id, err)
}

// Open implements [object.Database]. If the content does not have the ID id, reading
// it fails before the last byte, with an error that wraps [object.ErrCorrupt].
func (r *Repo) Open(id object.ID) (t object.Type, size int64, content io.ReadCloser, err error) {
	at, loose, err := r.find(id)
	switch {
	case err != nil:
	case loose != nil:
		t, size, content, err = openLoose(loose)
	default:
		t, size, content, err = r.openPacked(at)
	}
	if err == nil && size > r.max {
		content.Close()
		err = fmt.Errorf("it has %d bytes, more than the limit of %d", size, r.max)
	}
	if err != nil {
		return 0, 0, nil, wrap(id, err)
	}
	c := &verifyingReader{ReadCloser: content, id: id, left: size, hasher: object.NewHasher(id.Format())}
	c.hasher.Begin(t, size)
	if size == 0 {
		if err := c.check(); err != nil {
			c.Close()
			return 0, 0, nil, err
		}
	}
	return t, size, c, nil
}

func wrap(id object.ID, err error) error {
	if err != nil {
		err = fmt.Errorf("object %v: %w", id, err)
	}
	return err
}

// corruptError wraps an error of reading an object in [object.ErrCorrupt]. It returns
// errors of the file system unchanged.
func corruptError(err error) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok || err == nil {
		return err
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: %w", object.ErrCorrupt, err)
}

// find returns where an object is: in a pack or in a file of its own.
func (r *Repo) find(id object.ID) (packOffset, *os.File, error) {
	for {
		at, searched, err := r.findPacked(id)
		if err != nil || at.pack != nil {
			return at, nil, err
		}
		for _, store := range r.objectDirs {
			name := id.String()
			f, err := openFile(filepath.Join(store, name[:2], name[2:]))
			if err == nil || !errors.Is(err, fs.ErrNotExist) {
				return packOffset{}, f, err
			}
		}
		// Git may have moved the object into a pack meanwhile, or into another pack.
		if open, err := r.openPacks(); err != nil || open == searched {
			if err == nil {
				err = fmt.Errorf("not in the repository: %w%s", fs.ErrNotExist, r.missingHint)
			}
			return packOffset{}, nil, err
		}
	}
}

// findPacked returns the place of an object in one of the open packs, and how many
// packs are open.
func (r *Repo) findPacked(id object.ID) (at packOffset, searched int, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, p := range r.packs {
		if id.Format() != object.SHA1 {
			break
		}
		if offset, ok, err := p.find(plumbing.Hash(id.Bytes())); err != nil || ok {
			return packOffset{p, offset}, len(r.packs), err
		}
	}
	return packOffset{}, len(r.packs), nil
}

// openLoose opens an object in a file of its own: type, size and NUL, then the
// content. It takes ownership of f.
func openLoose(f *os.File) (t object.Type, size int64, content io.ReadCloser, err error) {
	z, err := zlib.NewReader(f)
	if err != nil {
		f.Close()
		return 0, 0, nil, corruptError(err)
	}
	var head []byte
	var b [1]byte
	for len(head) < 32 && err == nil {
		if _, err = io.ReadFull(z, b[:]); b[0] == 0 {
			break
		}
		head = append(head, b[0])
	}
	typeName, digits, _ := strings.Cut(string(head), " ")
	if err == nil {
		size, err = strconv.ParseInt(digits, 10, 64)
	}
	if t = object.TypeNamed(typeName); err != nil || t == 0 || size < 0 {
		f.Close()
		return 0, 0, nil, fmt.Errorf("%w: it begins with %q", object.ErrCorrupt, head)
	}
	return t, size, looseContent{z, f}, nil
}

// looseContent is the content of an object in a file of its own.
type looseContent struct {
	io.Reader
	io.Closer
}

// A verifyingReader reads content of a known size. It returns the last byte only if the
// content has the right ID.
type verifyingReader struct {
	io.ReadCloser
	id     object.ID
	left   int64
	hasher *object.Hasher
	err    error
}

func (c *verifyingReader) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	if c.left == 0 {
		return 0, io.EOF
	}
	n, err := c.ReadCloser.Read(p[:min(int64(len(p)), c.left)])
	c.hasher.Write(p[:n])
	c.left -= int64(n)
	switch {
	case c.left == 0:
		c.err = c.check()
	case err != nil:
		c.err = wrap(c.id, corruptError(err))
	}
	if c.err != nil {
		return 0, c.err
	}
	return n, nil
}

// Close implements [io.Closer]. It closes the reader below only once, because that
// returns to a pool.
func (c *verifyingReader) Close() error {
	if c.err == fs.ErrClosed {
		return c.err
	}
	c.err = fs.ErrClosed
	return c.ReadCloser.Close()
}

// check compares the content that was read with the ID.
func (c *verifyingReader) check() error {
	got, err := c.hasher.ID()
	if err == nil && got != c.id {
		err = fmt.Errorf("object %v: %w: its content is that of %v", c.id, object.ErrCorrupt, got)
	}
	return err
}
