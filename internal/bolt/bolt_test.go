package bolt_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/headgate-io/headgate/internal/bolt"
)

// fill makes a file with large and small buckets, long values and free pages.
func fill(t *testing.T, path string, values int) {
	db, err := bolt.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		err = errors.Join(err, db.Update(func(tx *bbolt.Tx) error {
			small, err := tx.CreateBucketIfNotExists([]byte("small"))
			if err != nil {
				return err
			}
			large, err := tx.CreateBucketIfNotExists([]byte("large"))
			if err != nil {
				return err
			}
			inner, err := large.CreateBucketIfNotExists([]byte("a bucket in it"))
			err = errors.Join(err, small.Put([]byte("k"), []byte("v")))
			for i := range values {
				key := fmt.Appendf(nil, "key %05d", i*7919%values)
				err = errors.Join(err, large.Put(key, fmt.Append(nil, "value ", round, i)), inner.Put(key, []byte("x")))
			}
			return errors.Join(err, large.Put([]byte("long"), make([]byte, 20000)))
		}))
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// read reads everything, and writes something.
func read(db *bbolt.DB) error {
	return bolt.Guard(func() error {
		err := db.View(func(tx *bbolt.Tx) error {
			return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error { return b.ForEach(func(k, v []byte) error { return nil }) })
		})
		return errors.Join(err, db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("large"))
			for i := range 20 {
				err = errors.Join(err, b.Put(fmt.Appendf(nil, "new %d", i), []byte("x")))
			}
			return err
		}))
	})
}

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	for _, values := range []int{0, 5, 3000} {
		fill(t, path, values)
	}
	db, err := bolt.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := bolt.Open(path); !errors.Is(err, bolt.ErrInUse) || !strings.HasPrefix(err.Error(), path+": ") {
		t.Errorf("open twice: %v", err)
	}
	if err := errors.Join(read(db), db.Close()); err != nil {
		t.Error(err)
	}
	if db, err = bolt.Open(path); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if _, err := bolt.Open(filepath.Join(t.TempDir(), "missing", "x.db")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

// TestDamage opens files with wrong bytes and missing ends: each is refused, or
// can be read and written.
func TestDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	fill(t, path, 500)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	refused := 0
	const rounds = 200
	for round := range rounds {
		text := append([]byte(nil), sound...)
		switch round % 4 {
		case 0: // one bit, where structure is likely
			page := random.IntN(len(text) / 4096)
			text[page*4096+random.IntN(64)] ^= 1 << random.IntN(8)
		case 1:
			text[random.IntN(len(text))] = byte(random.Uint32())
		case 2:
			text = text[:random.IntN(len(text))]
		case 3: // a page of another place
			from, to := random.IntN(len(text)/4096), random.IntN(len(text)/4096)
			copy(text[to*4096:(to+1)*4096], sound[from*4096:])
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := bolt.Open(path)
		if err != nil {
			if refused++; !errors.Is(err, bolt.ErrCorrupt) || !strings.Contains(err.Error(), path) {
				t.Fatalf("round %d: %v", round, err)
			}
			continue
		}
		if err := read(db); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		if err := db.Close(); err != nil {
			t.Errorf("round %d: close: %v", round, err)
		}
	}
	if refused < rounds/4 {
		t.Errorf("%d of %d were refused", refused, rounds)
	}
}

// FuzzDamage writes bytes over a sound file.
func FuzzDamage(f *testing.F) {
	f.Add(uint32(0), []byte("x"))
	f.Add(uint32(8192), []byte{2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, at uint32, text []byte) {
		path := filepath.Join(t.TempDir(), "x.db")
		fill(t, path, 50)
		sound, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		copy(sound[int(at)%len(sound):], text)
		if err := os.WriteFile(path, sound, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := bolt.Open(path)
		if err != nil {
			return
		}
		if err := errors.Join(read(db), db.Close()); err != nil {
			t.Error(err)
		}
	})
}
