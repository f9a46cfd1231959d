package bolt_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/headgate-io/headgate/internal/bolt"
)

// A power cut while a file is made leaves a part of what it begins with. It is
// new then, and not damaged.
func TestUnmade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	db, err := bolt.Open(path)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	if len(whole) != 4*page {
		t.Fatalf("a new file has %d bytes", len(whole))
	}
	var left [][]byte
	for _, size := range []int{0, 512, page / 2, page, page + 512, 2 * page, 3 * page, 4*page - 512, 4 * page} {
		left = append(left, whole[:size], make([]byte, size))
	}
	for missing := range 1 << 4 { // pages that did not reach the disk
		text := bytes.Clone(whole)
		for i := range 4 {
			if missing&(1<<i) != 0 {
				clear(text[i*page : (i+1)*page])
			}
		}
		left = append(left, text)
	}
	for i, text := range left {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := bolt.Open(path)
		if err != nil {
			t.Errorf("case %d: %v", i, err)
			continue
		}
		if err := errors.Join(read(db), db.Close()); err != nil {
			t.Errorf("case %d: %v", i, err)
		}
	}
}

// What a transaction was in is not taken for a new file, whatever is left of it.
func TestDamagedIsNotUnmade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	db, err := bolt.Open(path)
	if err == nil {
		err = db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("b")); return err })
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	used, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	for _, text := range [][]byte{
		used[:512], used[:page], used[:2*page], used[:4*page],
		slices.Concat(make([]byte, 2*page), used[2*page:]),
		make([]byte, 5*page),
		[]byte("x"),
	} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if db, err := bolt.Open(path); !errors.Is(err, bolt.ErrCorrupt) {
			t.Errorf("%d bytes: %v", len(text), err)
			if err == nil {
				db.Close()
			}
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, text) {
			t.Errorf("%d bytes: the file was changed: %v", len(text), err)
		}
	}
}

func TestSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	damaged, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if aside, err := bolt.SetAside(path, damaged); err != nil || aside != path+".corrupt-1" {
		t.Fatalf("%s, %v", aside, err)
	}
	// Another process comes late: there is no file, and then a new one.
	if aside, err := bolt.SetAside(path, damaged); err != nil || aside != "" {
		t.Errorf("no file: %s, %v", aside, err)
	}
	fill(t, path, 5)
	if aside, err := bolt.SetAside(path, damaged); err != nil || aside != "" {
		t.Errorf("a new file: %s, %v", aside, err)
	}
	db, err := bolt.Open(path)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path + ".corrupt-1"); string(text) != "damaged" {
		t.Errorf("aside: %q, %v", text, err)
	}
	// The last place is taken again.
	for range 10 {
		if err := os.WriteFile(path, []byte("damaged again"), 0o600); err != nil {
			t.Fatal(err)
		}
		if damaged, err = os.Stat(path); err != nil {
			t.Fatal(err)
		}
		aside, err := bolt.SetAside(path, damaged)
		if err != nil || aside == "" {
			t.Fatalf("%s, %v", aside, err)
		}
	}
	if found, err := filepath.Glob(path + ".corrupt-*"); len(found) != 9 {
		t.Errorf("%v, %v", found, err)
	}
}
