package packfile_test

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
)

// frozen is a frozen pack in memory.
type frozen struct {
	*bytes.Reader
	closed int
}

func (f *frozen) Close() error { f.closed++; return nil }

// empty returns a pack of no objects, to which objects of db are added.
func empty(t testing.TB, db object.Database, format object.Format, temp func() (*os.File, error), ids ...object.ID) (*packfile.Pack, error) {
	t.Helper()
	data := []byte("PACK\x00\x00\x00\x02\x00\x00\x00\x00")
	sum1, sum256 := sha1.Sum(data), sha256.Sum256(data)
	data = append(data, map[object.Format][]byte{object.SHA1: sum1[:], object.SHA256: sum256[:]}[format]...)
	p, err := packfile.Read(t.Context(), bytes.NewReader(data), packfile.Options{Format: format, Temp: temp})
	must(t, err)
	return p, p.Add(t.Context(), db, ids)
}

// freeze adds the objects of db to a file and returns what Freeze makes of it.
func freeze(t testing.TB, db object.Database, format object.Format, ids ...object.ID) []byte {
	t.Helper()
	name := filepath.Join(t.TempDir(), "spool")
	p, err := empty(t, db, format, func() (*os.File, error) { return os.Create(name) }, ids...)
	if err == nil {
		err = p.Freeze([]byte("a note"))
	}
	must(t, err)
	data, err := os.ReadFile(name)
	must(t, err)
	must(t, p.Close())
	return data
}

// blobs is a database of blobs.
type blobs map[object.ID]string

func (b blobs) add(format object.Format, text string) object.ID {
	h := object.NewHasher(format)
	h.Begin(object.Blob, int64(len(text)))
	h.Write([]byte(text))
	id, _ := h.ID()
	b[id] = text
	return id
}

func (b blobs) Stat(id object.ID) (object.Type, int64, error) {
	if text, ok := b[id]; ok {
		return object.Blob, int64(len(text)), nil
	}
	return 0, 0, fs.ErrNotExist
}

func (b blobs) Open(id object.ID) (object.Type, int64, io.ReadCloser, error) {
	t, n, err := b.Stat(id)
	return t, n, io.NopCloser(strings.NewReader(b[id])), err
}

func TestFreezeAndThaw(t *testing.T) {
	for _, format := range []object.Format{object.SHA1, object.SHA256} {
		db := blobs{}
		ids := []object.ID{db.add(format, "one"), db.add(format, ""), db.add(format, "three")}
		data := freeze(t, db, format, append(ids, ids[0])...)
		f := &frozen{Reader: bytes.NewReader(data)}
		p, note, err := packfile.Thaw(f)
		if err != nil || string(note) != "a note" {
			t.Fatalf("note %q, %v", note, err)
		}
		if p.Spooled() != 0 {
			t.Errorf("%d bytes spooled", p.Spooled())
		}
		for _, id := range ids {
			if got, err := object.Read(p, id, object.Blob, 100); err != nil || string(got) != db[id] {
				t.Errorf("%v: %q, %v", id, got, err)
			}
		}
		if _, _, err := p.Stat(db.add(format, "other")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("object that is not there: %v", err)
		}
		if p.Close(); f.closed != 1 {
			t.Errorf("closed %d times", f.closed)
		}
	}
}

func TestAddAbsent(t *testing.T) {
	p, err := empty(t, blobs{}, object.SHA1, nil, blobs{}.add(object.SHA1, "absent"))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent object: %v", err)
	}
	p.Close()
}

// thawHostile are changes to a frozen pack of two blobs, "one" and "two", that
// no Freeze makes. A row of its index has 37 bytes, the footer 36.
var thawHostile = map[string]func(b []byte) []byte{
	"empty":            func(b []byte) []byte { return nil },
	"truncated":        func(b []byte) []byte { return b[:len(b)-1] },
	"magic":            func(b []byte) []byte { b[len(b)-2] ^= 1; return b },
	"width of ids":     func(b []byte) []byte { b[len(b)-20] = 21; return b },
	"other width":      func(b []byte) []byte { b[len(b)-20] = 32; return b },
	"too many objects": func(b []byte) []byte { binary.BigEndian.PutUint64(b[len(b)-36:], 3); return b },
	"2^63 objects":     func(b []byte) []byte { b[len(b)-36] = 0x80; return b },
	"note too large":   func(b []byte) []byte { b[len(b)-22] = 0xff; return b },
	"2^63 of a note":   func(b []byte) []byte { b[len(b)-28] = 0x80; return b },
	"negative offset":  func(b []byte) []byte { b[6+20] = 0xff; return b },
	"offset too large": func(b []byte) []byte { b[6+20+6] = 1; return b },
	"negative size":    func(b []byte) []byte { b[6+20+8] = 0xff; return b },
	"size too large":   func(b []byte) []byte { b[6+20+15] = 100; return b },
	"type 0":           func(b []byte) []byte { b[6+36] = 0; return b },
	"type of a delta":  func(b []byte) []byte { b[6+36] = 7; return b },
	"out of order":     func(b []byte) []byte { b[6] = 0xff; return b },
	"object twice":     func(b []byte) []byte { copy(b[6+37:], b[6:6+37]); return b },
}

func frozenPair(t testing.TB) []byte {
	db := blobs{}
	return freeze(t, db, object.SHA1, db.add(object.SHA1, "one"), db.add(object.SHA1, "two"))
}

func TestThawHostile(t *testing.T) {
	good := frozenPair(t)
	for defect, do := range thawHostile {
		f := &frozen{Reader: bytes.NewReader(do(bytes.Clone(good)))}
		if _, _, err := packfile.Thaw(f); !errors.Is(err, object.ErrCorrupt) {
			t.Errorf("%s: %v", defect, err)
		}
		if f.closed > 0 {
			t.Errorf("%s: closed what it did not take", defect)
		}
	}
}
