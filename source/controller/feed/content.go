package feed

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/headgate-io/headgate/internal/durable"
	"github.com/headgate-io/headgate/source"
)

// A content is what is known of a file.
type content struct {
	name    string
	round   int // of the last walk that came by
	stamp   durable.Stamp
	settled bool // the stamp tells for certain
	read    bool // sum is that of the file
	sum     [sha256.Size]byte

	set *source.Set // of its documents; nil when it cannot be read
	bad []error     // defects of them

	worse bool // by its last change, it holds fewer objects or has defects
}

// same reports whether the file that info describes is the one that was read.
func (c *content) same(info fs.FileInfo) bool {
	return c.read && c.settled && durable.StampOf(info) == c.stamp
}

// update reads the file, of at most limit bytes, and calls changed when its
// content is another.
func (c *content) update(limit int64, changed func(text []byte)) error {
	text, stamp, settled, err := readFile(c.name, limit)
	if err != nil {
		c.read = false
		return err
	}
	before, known := c.sum, c.read
	c.stamp, c.settled, c.read, c.sum = stamp, settled, true, sha256.Sum256(text)
	if !known || c.sum != before {
		changed(text)
	}
	return nil
}

func readFile(name string, limit int64) (text []byte, stamp durable.Stamp, settled bool, err error) {
	now := time.Now()
	f, err := os.Open(name)
	if err != nil {
		return nil, stamp, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, stamp, false, err
	}
	stamp = durable.StampOf(info)
	if info.Size() > limit {
		return nil, stamp, false, fmt.Errorf("larger than %d MiB", limit>>20)
	}
	var out bytes.Buffer
	out.Grow(int(info.Size()) + bytes.MinRead)
	if _, err := out.ReadFrom(io.LimitReader(f, limit)); err != nil { // of one that grows, what it had
		return nil, stamp, false, err
	}
	return out.Bytes(), stamp, stamp.Settled(now), nil
}

// decode brings the file up to date and reports whether its objects or its
// defects are others.
func (c *content) decode() (changed bool) {
	before, known := 0, ""
	if c.set != nil {
		before = len(c.set.Objects)
	} else if len(c.bad) > 0 {
		known = c.bad[0].Error()
	}
	err := c.update(source.MaxStream, func(text []byte) {
		c.set, changed = new(source.Set), true
		c.bad = flat(c.set.Decode(c.name, bytes.NewReader(text)))
		c.worse = len(c.bad) > 0 || len(c.set.Objects) < before
	})
	if err != nil {
		err = defect(c.name, err)
		changed = known != err.Error()
		c.set, c.bad, c.worse = nil, []error{err}, true
	}
	return changed
}

// defect says what is wrong with a file or directory as a whole.
func defect(name string, err error) error {
	if at, ok := err.(*fs.PathError); ok && at.Path == name {
		err = at.Err
	}
	return &source.DocumentError{File: name, Err: err}
}

// flat takes joined errors apart.
func flat(err error) []error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}
