package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// count fetches through the front and notes the requests: for all objects, for
// none, for one that changed. What the last made must be what an empty store
// makes, and what the bucket holds.
func (b *bench) count(ctx context.Context) error {
	b.asked = map[string]asked{}
	kept, fresh := filepath.Join(b.temp, "counted"), filepath.Join(b.temp, "fresh")
	b.front.took()
	for _, name := range []string{whole, unchanged, changed} {
		if name == changed {
			if err := b.store.change(ctx); err != nil {
				return err
			}
		}
		if err := b.fetch(ctx, b.front.host, kept); err != nil {
			return err
		}
		b.asked[name] = b.front.took()
	}
	if err := b.fetch(ctx, b.front.host, fresh); err != nil {
		return err
	}
	return sameArchives(kept, fresh)
}

// sameArchives compares the archives in two stores with each other and with the objects.
func sameArchives(kept, fresh string) error {
	one, err := archive(kept)
	if err != nil {
		return err
	}
	other, err := archive(fresh)
	if err != nil {
		return err
	}
	a, err := digest(one)
	if err != nil {
		return err
	}
	b, err := digest(other)
	if err != nil {
		return err
	}
	if a != b {
		return fmt.Errorf("%s made another artifact than %s", changed, whole)
	}
	return complete(other)
}

// archive returns the newest archive in a store.
func archive(store string) (found string, err error) {
	var newest time.Time
	err = filepath.WalkDir(store, func(path string, d fs.DirEntry, err error) error {
		switch hidden := strings.HasPrefix(d.Name(), "."); { // what the store notes
		case err != nil:
			return err
		case hidden && d.IsDir():
			return fs.SkipDir
		case hidden || !strings.HasSuffix(path, ".tar.gz"):
			return nil
		}
		info, err := os.Lstat(path)
		if err == nil && info.Mode().IsRegular() && info.ModTime().After(newest) {
			found, newest = path, info.ModTime()
		}
		return err
	})
	if err == nil && found == "" {
		err = fmt.Errorf("the store %s holds no archive", store)
	}
	return found, err
}

func digest(path string) (sum [sha256.Size]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return sum, err
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// complete says whether an archive holds all objects as they are, but for the one that changed.
func complete(path string) error {
	want := map[string][sha256.Size]byte{}
	for key, content := range objects() {
		want[key] = sha256.Sum256(content)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for in := tar.NewReader(z); ; {
		head, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if head.Typeflag != tar.TypeReg {
			continue
		}
		h := sha256.New()
		if _, err := io.Copy(h, in); err != nil {
			return err
		}
		sum, ok := want[head.Name]
		if !ok || !bytes.Equal(h.Sum(nil), sum[:]) && head.Name != changedKey {
			return fmt.Errorf("the artifact holds another %s", head.Name)
		}
		delete(want, head.Name)
	}
	if len(want) > 0 {
		return fmt.Errorf("the artifact lacks %d objects", len(want))
	}
	return nil
}
