package artifact_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
)

// sources returns a tree of n files of 16 KiB that compress by half.
func sources(n int) fstest.MapFS {
	tree := fstest.MapFS{}
	for i := range n {
		rng := rand.New(rand.NewPCG(uint64(i), 0))
		b := make([]byte, 16<<10)
		for j := range b {
			b[j] = 'a' + byte(rng.Uint32N(16))
		}
		tree[fmt.Sprintf("dir%d/file%03d", i%3, i)] = &fstest.MapFile{Data: b}
	}
	return tree
}

func packWith(t *testing.T, c *artifact.Cache, tree fs.FS) []byte {
	t.Helper()
	var out bytes.Buffer
	must(t, second(c.Pack(t.Context(), &out, tree)))
	return out.Bytes()
}

// After a change, only the changed blocks are compressed again, even if the change moves the rest.
// The cache does not change the output.
func TestCachePack(t *testing.T) {
	c, dir := openCache(t, artifact.CacheConfig{})
	tree := sources(300)
	packWith(t, c, tree)
	all := len(files(t, dir))
	if all < 5 {
		t.Fatalf("%d blocks in the cache", all)
	}
	middle := "dir1/file151"
	for name, change := range map[string]func(){
		"a file grows":     func() { tree[middle].Data = append(tree[middle].Data, make([]byte, 700)...) },
		"a file is edited": func() { tree[middle].Data[5] = '!' },
		"a file is new":    func() { tree["dir1/file151a"] = &fstest.MapFile{Data: []byte("new")} },
		"a file is gone":   func() { delete(tree, "dir1/file154") },
		"nothing":          func() {},
	} {
		before := len(files(t, dir))
		change()
		got := packWith(t, c, tree)
		if newBlocks := len(files(t, dir)) - before; newBlocks > 4 {
			t.Errorf("%s: %d of %d blocks were compressed again", name, newBlocks, all)
		}
		if !bytes.Equal(got, packWith(t, nil, tree)) {
			t.Errorf("%s: other bytes with the cache", name)
		}
	}
}

// The cache may have damaged or missing entries, or be unwritable.
func TestCachePackDamage(t *testing.T) {
	tree := sources(100)
	want := packWith(t, nil, tree)
	for defect, do := range map[string]func(dir, entry string) error{
		"flipped":   func(_, entry string) error { return overwrite(entry, 1000) },
		"truncated": func(_, entry string) error { return os.Truncate(entry, 1000) },
		"empty":     func(_, entry string) error { return os.Truncate(entry, 0) },
		"gone":      func(_, entry string) error { return os.Remove(entry) },
		"no cache":  func(dir, _ string) error { return os.RemoveAll(dir) },
		"no space": func(dir, _ string) error { // temporary files cannot be created
			return errors.Join(os.RemoveAll(filepath.Join(dir, "tmp")), os.RemoveAll(filepath.Join(dir, "entry")), os.WriteFile(filepath.Join(dir, "tmp"), nil, 0o600))
		},
	} {
		c, dir := openCache(t, artifact.CacheConfig{})
		packWith(t, c, tree)
		for _, name := range files(t, dir) {
			if err := do(dir, filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(packWith(t, c, tree), want) {
			t.Errorf("%s: other bytes", defect)
		}
	}
}

func TestCachePackErrors(t *testing.T) {
	c, _ := openCache(t, artifact.CacheConfig{})
	ctx, cancel := context.WithCancelCause(t.Context())
	if _, err := c.Pack(ctx, brokenWriter{}, sources(100)); !errors.Is(err, errBroken) {
		t.Errorf("writer that fails: %v", err)
	}
	cancel(errBroken)
	if _, err := c.Pack(ctx, &bytes.Buffer{}, sources(1)); !errors.Is(err, errBroken) {
		t.Errorf("context that has ended: %v", err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }
