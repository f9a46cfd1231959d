package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/headgate-io/headgate/internal/bolt"
)

// waste makes a file of some 8 MB that holds no more than one key and an empty bucket in a bucket.
func waste(t *testing.T, path string) {
	db, err := bolt.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	name := []byte("runs")
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket(name)
		if err != nil {
			return err
		}
		_, err = b.CreateBucket([]byte("inner"))
		err = errors.Join(err, b.SetSequence(7), b.Put([]byte("kept"), []byte("value")))
		for i := range 32 {
			err = errors.Join(err, b.Put(fmt.Appendf(nil, "%d", i), make([]byte, 256<<10)))
		}
		return err
	})
	err = errors.Join(err, db.Update(func(tx *bbolt.Tx) (err error) {
		for i := range 32 {
			err = errors.Join(err, tx.Bucket(name).Delete(fmt.Appendf(nil, "%d", i)))
		}
		return err
	}))
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// holds checks what waste has left in the database.
func holds(t *testing.T, db *bbolt.DB) {
	t.Helper()
	err := db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("runs"))
		if b == nil || !bytes.Equal(b.Get([]byte("kept")), []byte("value")) || b.Sequence() != 7 || b.Bucket([]byte("inner")) == nil {
			return errors.New("something is lost")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	return info.Size()
}

// A file does not stay as large as it ever was, and is locked also as a new one.
func TestFilesShrink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	waste(t, path)
	if n := size(t, path); n < 8<<20 {
		t.Fatalf("%d bytes are no waste", n)
	}
	killed := path + ".new" // what a process leaves that is killed while it copies
	if err := os.WriteFile(killed, []byte("half a copy"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		db, err := bolt.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := size(t, path); n > 1<<20 {
			t.Errorf("%d bytes", n)
		}
		holds(t, db)
		if _, err := bolt.Open(path); !errors.Is(err, bolt.ErrInUse) {
			t.Errorf("open twice: %v", err)
		}
		if _, err := os.Stat(killed); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the copy is there: %v", err)
		}
		if err := errors.Join(read(db), db.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// A file that cannot be copied is used as it is: here something stands where the
// copy would be.
func TestFilesThatCannotShrink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	waste(t, path)
	if err := os.MkdirAll(filepath.Join(path+".new", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	holds(t, db)
	if n := size(t, path); n < 8<<20 {
		t.Errorf("%d bytes", n)
	}
}
