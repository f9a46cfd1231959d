package artifact_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
)

// operations are all operations that can fail because of the file system of a store.
var operations = map[string]func(ctx context.Context, s *artifact.Store, a artifact.Artifact) error{
	"Put": func(ctx context.Context, s *artifact.Store, a artifact.Artifact) error {
		_, err := s.Put(ctx, object, "new.tar.gz", text("new"))
		return err
	},
	"Point": func(_ context.Context, s *artifact.Store, a artifact.Artifact) error {
		_, err := s.Point(object, "latest.tar.gz", a)
		return err
	},
	"Lock": func(ctx context.Context, s *artifact.Store, _ artifact.Artifact) error {
		unlock, err := s.Lock(ctx, object)
		if err == nil {
			unlock()
		}
		return err
	},
	"Temp": func(_ context.Context, s *artifact.Store, _ artifact.Artifact) error {
		f, err := s.Temp()
		if err == nil {
			f.Close()
		}
		return err
	},
	"Open": func(_ context.Context, s *artifact.Store, a artifact.Artifact) error {
		r, err := s.Open(a)
		if err == nil {
			r.Close()
		}
		return err
	},
	"All": func(_ context.Context, s *artifact.Store, _ artifact.Artifact) error {
		var all error
		for _, err := range s.All() {
			all = errors.Join(all, err)
		}
		return all
	},
	"GC": func(ctx context.Context, s *artifact.Store, _ artifact.Artifact) error {
		return second(s.GC(ctx, keepAll))
	},
	"Sweep": func(ctx context.Context, s *artifact.Store, _ artifact.Artifact) error {
		return second(s.Sweep(ctx))
	},
	"Check":  func(_ context.Context, s *artifact.Store, a artifact.Artifact) error { return s.Check(a) },
	"Verify": func(ctx context.Context, s *artifact.Store, a artifact.Artifact) error { return s.Verify(ctx, a) },
	"Prune":  func(_ context.Context, s *artifact.Store, a artifact.Artifact) error { return s.Prune(object, a) },
	"Remove": func(_ context.Context, s *artifact.Store, _ artifact.Artifact) error { return s.Remove(object) },
}

func TestClosedStore(t *testing.T) {
	s, dir := openStore(t, artifact.StoreConfig{})
	a := put(t, s, object, "a.tar.gz", "content")
	must(t, s.Close())
	for name, do := range operations {
		if err := do(t.Context(), s, a); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	testenv.Equal(t, files(t, dir), []string{a.Path}, "left")
}

// If a file is in the place of a directory of the store, operations that need the directory fail
// immediately and leave nothing behind. Remove removes as much as it can.
func TestStoreObstacles(t *testing.T) {
	for obstacle, fails := range map[string][]string{
		".store":                  {"Put", "Point", "Lock", "Temp", "GC", "Sweep"},
		".store/tmp":              {"Put", "Point", "Temp", "Sweep"},
		".store/object":           {"Point", "Lock", "GC", "Remove"},
		".store/object/" + object: {"Point", "Lock", "GC", "Remove"},
		"gitrepository":           {"Put", "Point", "Open", "Check", "Verify", "Prune", "Remove"},
		object:                    {"Put", "Point", "Open", "Check", "Verify", "Prune"},
	} {
		for _, name := range fails {
			t.Run(obstacle+"/"+name, func(t *testing.T) {
				s, dir := openStore(t, artifact.StoreConfig{})
				a := put(t, s, object, "a.tar.gz", "content")
				obstaclePath := filepath.Join(dir, obstacle)
				must(t, errors.Join(os.RemoveAll(obstaclePath), os.MkdirAll(filepath.Dir(obstaclePath), 0o700), os.WriteFile(obstaclePath, nil, 0o600)))
				before := files(t, dir)
				if err := operations[name](t.Context(), s, a); err == nil {
					t.Error("no error")
				}
				if after := files(t, dir); name != "Remove" && !slices.Equal(after, before) {
					t.Errorf("left %v, want %v", after, before)
				}
			})
		}
	}
}

func TestOperationsObeyContext(t *testing.T) {
	s, dir := openStore(t, artifact.StoreConfig{})
	a := put(t, s, object, "a.tar.gz", "content")
	must(t, os.WriteFile(filepath.Join(dir, ".store/tmp/dead"), nil, 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, name := range []string{"Put", "Lock", "Sweep", "Verify", "GC"} {
		if err := operations[name](ctx, s, a); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Check(a); err != nil {
		t.Error(err)
	}
}

func TestCacheObstacles(t *testing.T) {
	for _, obstacle := range []string{"tmp", "entry"} {
		c, dir := openCache(t, artifact.CacheConfig{})
		must(t, os.WriteFile(filepath.Join(dir, obstacle), nil, 0o600))
		if err := c.Put("key", text("content")); err == nil {
			t.Errorf("%s is a file: no error", obstacle)
		}
		testenv.Equal(t, files(t, dir), []string{obstacle}, "left")
	}
	c, dir := openCache(t, artifact.CacheConfig{})
	must(t, c.Put("key", text("content")))
	c.Close()
	if err := c.Put("key", text("content")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("closed cache: %v", err)
	}
	if _, err := c.Open("key"); !errors.Is(err, os.ErrClosed) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("closed cache: %v", err)
	}
	testenv.Equal(t, len(files(t, dir)), 1, "left")
}
