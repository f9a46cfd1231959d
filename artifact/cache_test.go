package artifact_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func openCache(t *testing.T, c artifact.CacheConfig) (*artifact.Cache, string) {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	cache, err := artifact.OpenCache(c)
	must(t, err)
	t.Cleanup(func() { cache.Close() })
	return cache, c.Dir
}

// cached returns the content of an entry, "" if there is none.
func cached(t *testing.T, c *artifact.Cache, key string) string {
	t.Helper()
	r, err := c.Open(key)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	must(t, err)
	defer r.Close()
	b, err := io.ReadAll(r)
	must(t, err)
	return string(b)
}

func TestCache(t *testing.T) {
	c, dir := openCache(t, artifact.CacheConfig{MaxBytes: -1})
	if _, err := c.Open("key"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("empty cache: %v", err)
	}
	keys := []string{"key", "", "../../key", "https://example.org/a?b=c", "\x00", strings.Repeat("long", 9999)}
	for _, key := range keys {
		must(t, c.Put(key, text("old")))
		must(t, c.Put(key, text("content of "+key)))
	}
	other, _ := openCache(t, artifact.CacheConfig{Dir: dir})
	for _, key := range keys {
		testenv.Equal(t, cached(t, other, key), "content of "+key, "%q holds", key)
	}
	r, err := c.Open("key")
	must(t, err)
	defer r.Close()
	if n, err := r.Seek(-3, io.SeekEnd); err != nil || n != 11 {
		t.Errorf("seek: %d, %v", n, err)
	}
	if b, err := io.ReadAll(r); err != nil || string(b) != "key" {
		t.Errorf("after seek: %q, %v", b, err)
	}
	must(t, c.Put("empty", text("")))
	if r, err := c.Open("empty"); err != nil {
		t.Error(err)
	} else {
		r.Close()
	}
}

func TestCachePutFails(t *testing.T) {
	c, dir := openCache(t, artifact.CacheConfig{MaxBytes: 100})
	must(t, c.Put("key", text("old")))
	broken := errors.New("broken")
	if err := c.Put("key", func(w io.Writer) error { io.WriteString(w, "half"); return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
	var limit *artifact.LimitError
	if err := c.Put("key", func(w io.Writer) error { io.WriteString(w, strings.Repeat("x", 90)); return nil }); !errors.As(err, &limit) || limit.Limit != 68 {
		t.Errorf("larger than the cache: %v", err)
	}
	testenv.Equal(t, cached(t, c, "key"), "old", "the entry")
	testenv.Equal(t, len(files(t, dir)), 1, "left")
}

func TestCacheDamageIsAMiss(t *testing.T) {
	damage := map[string]func(name string) error{
		"emptied":      func(name string) error { return os.Truncate(name, 0) },
		"torn trailer": func(name string) error { return os.Truncate(name, 30) },
		"torn end":     func(name string) error { return os.Truncate(name, 46) },
		"grown":        func(name string) error { return appendFile(name, "x") },
		"first byte":   func(name string) error { return overwrite(name, 0) },
		"digest":       func(name string) error { return overwrite(name, 20) },
		"zeros":        func(name string) error { return os.WriteFile(name, make([]byte, 47), 0o600) },
	}
	for defect, do := range damage {
		t.Run(defect, func(t *testing.T) {
			c, dir := openCache(t, artifact.CacheConfig{})
			must(t, c.Put("key", text("content")))
			name := filepath.Join(dir, files(t, dir)[0])
			must(t, do(name))
			if _, err := c.Open("key"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("got %v", err)
			}
			testenv.Equal(t, files(t, dir), nil, "left")
		})
	}
}

// An entry under the name of another key, as after a manual copy, counts as missing.
func TestCacheBindsKey(t *testing.T) {
	c, dir := openCache(t, artifact.CacheConfig{})
	must(t, c.Put("a", text("content")))
	a := filepath.Join(dir, files(t, dir)[0])
	must(t, c.Put("b", text("other")))
	for _, name := range files(t, dir) {
		if b := filepath.Join(dir, name); b != a {
			must(t, os.Rename(a, b))
		}
	}
	testenv.Equal(t, cached(t, c, "b"), "", "b holds")
}

func appendFile(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func overwrite(name string, at int64) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte{0xff}, at)
	return errors.Join(err, f.Close())
}

func TestCacheEvictsOldest(t *testing.T) {
	c, dir := openCache(t, artifact.CacheConfig{MaxBytes: 1000})
	entry := strings.Repeat("x", 168) // 200 bytes with its trailer
	put := func(key string) {
		t.Helper()
		must(t, c.Put(key, text(entry)))
	}
	old := time.Now().Add(-time.Hour)
	for i := range 5 {
		put(fmt.Sprint(i))
		for _, name := range files(t, dir) { // one minute apart
			name = filepath.Join(dir, name)
			if info, err := os.Stat(name); err != nil || info.ModTime().After(old.Add(30*time.Minute)) {
				at := old.Add(time.Duration(i) * time.Minute)
				must(t, errors.Join(err, os.Chtimes(name, at, at)))
			}
		}
	}
	testenv.Equal(t, cached(t, c, "0"), entry, "an entry is gone while all of them fit")
	put("5")
	for i, want := range []bool{true, false, false, true, true, true} {
		testenv.Equal(t, cached(t, c, fmt.Sprint(i)) != "", want, "entry %d: there", i)
	}
}

func TestCacheStaysInBudget(t *testing.T) {
	const limit = 64 << 10
	dir := t.TempDir()
	var wg sync.WaitGroup
	for p := range 3 {
		c, _ := openCache(t, artifact.CacheConfig{Dir: dir, MaxBytes: limit})
		wg.Go(func() {
			for i := range 60 {
				content := strings.Repeat("x", 100*i)
				if err := c.Put(fmt.Sprint(p, i), text(content)); err != nil {
					t.Error(err)
				}
				if got := cached(t, c, fmt.Sprint(p, i)); got != content && got != "" {
					t.Errorf("entry %d holds %d bytes", i, len(got))
				}
			}
		})
	}
	wg.Wait()
	var total int64
	for _, name := range files(t, dir) {
		info, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		total += info.Size()
	}
	if total > limit+3*limit/16 || total < limit/2 {
		t.Errorf("%d bytes, limit %d", total, limit)
	}
}

// A draft can be written in any order, and stays readable whatever happens to its entry.
func TestCacheDraft(t *testing.T) {
	c, dir := openCache(t, artifact.CacheConfig{MaxBytes: 1000})
	d, err := c.Create()
	must(t, err)
	defer d.File().Close()
	for at, s := range []string{"c", "o", "n", "t"} {
		must(t, second(d.File().WriteAt([]byte(s), int64(3-at))))
	}
	must(t, d.Commit("key"))
	d.Discard()
	testenv.Equal(t, cached(t, c, "key"), "tnoc", "the entry holds")
	e, err := c.Open("key")
	must(t, err)
	defer e.Close()
	if err := c.Remove("key"); err != nil {
		t.Error(err)
	}
	if err := c.Remove("key"); err != nil {
		t.Errorf("removed twice: %v", err)
	}
	for name, f := range map[string]io.ReaderAt{"draft": d.File(), "entry": e} {
		if b := make([]byte, 4); e.Size() != 4 {
			t.Errorf("size %d", e.Size())
		} else if _, err := f.ReadAt(b, 0); err != nil || string(b) != "tnoc" {
			t.Errorf("%s after removal: %q, %v", name, b, err)
		}
	}

	for name, size := range map[string]int64{"discarded": 10, "too large": 2000} {
		d, err := c.Create()
		must(t, err)
		must(t, d.File().Truncate(size))
		var limit *artifact.LimitError
		if size > 1000 && !errors.As(d.Commit("key"), &limit) {
			t.Errorf("%s: committed", name)
		}
		d.Discard()
		if _, err := d.File().ReadAt(make([]byte, 1), 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		d.File().Close()
	}
	if _, err := c.Open("key"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("entry that was not committed: %v", err)
	}
	testenv.Equal(t, files(t, dir), nil, "left")
}
