// Package objecttest provides Git objects in memory and builds packs, for tests.
package objecttest

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/headgate-io/headgate/git/internal/object"
)

// A Database is an [object.Database] in memory.
type Database map[object.ID]Object

// An Object is an object of a [Database].
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
		panic(err) // only data made to collide fails
	}
	return id
}

// Add adds an object and returns its ID.
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

// A Pack builds a SHA-1 pack, which need not be valid.
type Pack struct{ bytes.Buffer }

// NewPack returns a pack that has only a header.
func NewPack(version, objects uint32) *Pack {
	p := new(Pack)
	p.WriteString("PACK")
	binary.Write(p, binary.BigEndian, []uint32{version, objects})
	return p
}

// Header adds the header of an object and returns the offset of the object.
func (p *Pack) Header(typ byte, size int64) int {
	at := p.Len()
	first := typ<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		p.WriteByte(first | 0x80)
		first = byte(size & 0x7f)
	}
	p.WriteByte(first)
	return at
}

// Deflate adds content as a zlib stream.
func (p *Pack) Deflate(content io.Reader) {
	z := zlib.NewWriter(p)
	io.Copy(z, content)
	z.Close()
}

// Add adds an object and returns its offset. The bytes of between follow the header:
// for a delta they name its base.
func (p *Pack) Add(typ byte, content string, between ...byte) int {
	at := p.Header(typ, int64(len(content)))
	p.Write(between)
	p.Deflate(strings.NewReader(content))
	return at
}

// Sum adds the trailer and returns the pack.
func (p *Pack) Sum() []byte {
	sum := sha1.Sum(p.Bytes())
	p.Write(sum[:])
	return p.Bytes()
}
