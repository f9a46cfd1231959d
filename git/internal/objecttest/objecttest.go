// Package objecttest has objects of Git in memory, for tests.
package objecttest

import (
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/headgate-io/headgate/git/internal/object"
)

// A Database is an [object.Database] in memory.
type Database map[object.ID]Object

// An Object is one of a [Database].
type Object struct {
	Type object.Type
	Data string
}

// ID returns the ID of an object.
func ID(format object.Format, t object.Type, data string) object.ID {
	h := object.NewHasher(format)
	h.Begin(t, int64(len(data)))
	io.WriteString(h, data)
	id, err := h.ID()
	if err != nil {
		panic(err) // of data made to collide
	}
	return id
}

// Add puts an object in and returns its ID.
func (d Database) Add(format object.Format, t object.Type, data string) object.ID {
	id := ID(format, t, data)
	d[id] = Object{t, data}
	return id
}

// Stat implements [object.Database].
func (d Database) Stat(id object.ID) (object.Type, int64, error) {
	o, ok := d[id]
	if !ok {
		return 0, 0, fmt.Errorf("object %v: %w", id, fs.ErrNotExist)
	}
	return o.Type, int64(len(o.Data)), nil
}

// Open implements [object.Database].
func (d Database) Open(id object.ID) (object.Type, int64, io.ReadCloser, error) {
	t, size, err := d.Stat(id)
	return t, size, io.NopCloser(strings.NewReader(d[id].Data)), err
}
