package pool_test

import (
	"bytes"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
	"github.com/headgate-io/headgate/git/internal/pool"
	"github.com/headgate-io/headgate/git/internal/wire"
)

// A remote has objects; it serves them as fetches do.
type remote struct {
	t       *testing.T
	objects map[object.ID]content
}

type content struct {
	object.Type
	text string
}

func (r *remote) add(t object.Type, text string) object.ID {
	h := object.NewHasher(object.SHA1)
	h.Begin(t, int64(len(text)))
	io.WriteString(h, text)
	id, err := h.ID()
	if err != nil {
		r.t.Fatal(err)
	}
	r.objects[id] = content{t, text}
	return id
}

func (r *remote) Stat(id object.ID) (object.Type, int64, error) {
	if c, ok := r.objects[id]; ok {
		return c.Type, int64(len(c.text)), nil
	}
	return 0, 0, fs.ErrNotExist
}

func (r *remote) Open(id object.ID) (object.Type, int64, io.ReadCloser, error) {
	t, n, err := r.Stat(id)
	return t, n, io.NopCloser(strings.NewReader(r.objects[id].text)), err
}

// commit makes a commit of one file and returns all its objects, the commit first.
func (r *remote) commit(text string, parents ...object.ID) []object.ID {
	blob := r.add(object.Blob, text)
	tree := r.add(object.Tree, "100644 file\x00"+string(blob.Bytes()))
	head := fmt.Sprintf("tree %v\n", tree)
	for _, p := range parents {
		head += fmt.Sprintf("parent %v\n", p)
	}
	who := "tester <t@example.com> 1700000000 +0000\n"
	return []object.ID{r.add(object.Commit, head+"author "+who+"committer "+who+"\n"+text), tree, blob}
}

func (r *remote) tag(id object.ID, kind, name string) object.ID {
	return r.add(object.Tag, fmt.Sprintf("object %v\ntype %s\ntag %s\ntagger tester <t@example.com> 1700000000 +0000\n\n%s\n", id, kind, name, name))
}

// send returns a pack of some objects, as a fetch on base brings it.
func (r *remote) send(base *pool.Base, ids ...object.ID) *packfile.Pack {
	r.t.Helper()
	data := []byte("PACK\x00\x00\x00\x02\x00\x00\x00\x00")
	sum := sha1.Sum(data)
	p, err := packfile.Read(r.t.Context(), bytes.NewReader(append(data, sum[:]...)), packfile.Options{Temp: base.Temp()})
	if err == nil {
		err = p.Add(r.t.Context(), r, ids)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

func newPool(t *testing.T) (*pool.Pool, *remote) {
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cache.Close() })
	return pool.New(cache, "scope"), &remote{t: t, objects: map[object.ID]content{}}
}

func lock(t *testing.T, p *pool.Pool) *pool.Base {
	t.Helper()
	base, err := p.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return base
}

// fetch completes and holds what a fetch of id brings, and reads all of files.
func fetch(t *testing.T, p *pool.Pool, r *remote, id object.ID, whole bool, sent []object.ID, files ...object.ID) error {
	t.Helper()
	base := lock(t, p)
	defer base.Close()
	pack := r.send(base, sent...)
	defer pack.Close()
	err := base.Complete(t.Context(), pack, id, whole)
	for _, blob := range files {
		if _, err := object.Read(pack, blob, object.Blob, 1000); err != nil {
			t.Error(err)
		}
	}
	return err
}

// A commit is held with the tag that led to it, until another takes its place.
func TestTags(t *testing.T) {
	p, r := newPool(t)
	c, d := r.commit("one"), r.commit("two")
	inner := r.tag(c[0], "commit", "inner")
	outer := r.tag(inner, "tag", "outer")
	if err := fetch(t, p, r, outer, false, append(c, inner, outer), c[2]); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[object.ID]bool{outer: true, c[0]: true, inner: false, d[0]: false} {
		base := lock(t, p)
		pack := base.Take(id)
		if (pack != nil) != want || base.Commit != c[0] {
			t.Errorf("%v: taken %v, the commit is %v", id, pack != nil, base.Commit)
		}
		if pack != nil {
			if _, _, err := pack.Stat(inner); err != nil {
				t.Error(err)
			}
			pack.Close()
		}
		base.Close()
	}
	if err := fetch(t, p, r, d[0], false, d, d[2]); err != nil {
		t.Fatal(err)
	}
	base := lock(t, p)
	defer base.Close()
	if base.Commit != d[0] || base.Take(c[0]) != nil {
		t.Errorf("%v is held", base.Commit)
	}
	if _, _, err := base.Objects.Stat(c[2]); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what the commit does not lead to is held: %v", err)
	}
}

// What a fetch leaves out because it is held is copied.
func TestCompleted(t *testing.T) {
	p, r := newPool(t)
	c := r.commit("one")
	if err := fetch(t, p, r, c[0], false, c, c[2]); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		next := r.commit("one", c[0]) // with the tree that is held
		if err := fetch(t, p, r, next[0], false, next[:1], c[2]); err != nil {
			t.Fatal(err)
		}
		base := lock(t, p)
		if base.Commit != next[0] || base.Whole || base.Objects.Len() != 3 {
			t.Errorf("%d: %d objects are held", i, base.Objects.Len())
		}
		base.Close()
		c = next
	}
}

// What is not complete is not held.
func TestIncomplete(t *testing.T) {
	p, r := newPool(t)
	c := r.commit("one")
	blob := r.add(object.Blob, "not a tree")
	bad := r.add(object.Commit, strings.Replace(r.objects[c[0]].text, c[1].String(), blob.String(), 1))
	loop := r.tag(c[2], "blob", "of a blob")
	long := r.tag(c[0], "commit", "long")
	tags := []object.ID{long}
	for range object.MaxTags {
		long = r.tag(long, "tag", "long")
		tags = append(tags, long)
	}
	for name, row := range map[string]struct {
		id   object.ID
		sent []object.ID
	}{
		"nothing":          {c[0], nil},
		"no tree":          {c[0], c[:1]},
		"no blob":          {c[0], c[:2]},
		"no commit":        {c[0], c[1:]},
		"tree is a blob":   {bad, []object.ID{bad, blob}},
		"tag of a blob":    {loop, []object.ID{loop, c[2]}},
		"tag of what?":     {loop, []object.ID{loop}},
		"a blob is wanted": {c[2], c[2:]},
		"too many tags":    {long, append(tags, c...)},
	} {
		if err := fetch(t, p, r, row.id, false, row.sent); err == nil {
			t.Errorf("%s: no error", name)
		}
		base := lock(t, p)
		if base.Objects != nil {
			t.Fatalf("%s: something is held", name)
		}
		base.Close()
	}
}

// A history counts as held only if it has no holes.
func TestHistory(t *testing.T) {
	p, r := newPool(t)
	root := r.commit("root")
	tip := r.commit("tip", root[0])
	for _, row := range []struct {
		sent  []object.ID
		whole bool
	}{{tip, false}, {append(tip, root...), true}, {tip, true}} { // the last builds on the one before
		if err := fetch(t, p, r, tip[0], true, row.sent, tip[2]); err != nil {
			t.Fatal(err)
		}
		base := lock(t, p)
		if base.Whole != row.whole {
			t.Errorf("%d objects: whole %v", len(row.sent), base.Whole)
		}
		base.Close()
	}
}

// A file of the cache that cannot be written is told from other failures.
func TestUnwritable(t *testing.T) {
	p, _ := newPool(t)
	base := lock(t, p)
	defer base.Close()
	f, err := base.Temp()()
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	_, full := f.Write([]byte("x")) // as when the disk is full
	_, other := os.Open(filepath.Join(t.TempDir(), "absent"))
	for err, want := range map[error]bool{fmt.Errorf("read pack: %w", full): true, other: false, errors.New("broken"): false} {
		if base.Unwritable(t.Context(), err) != want {
			t.Errorf("%v: want %v", err, want)
		}
	}
}

// Of several spools the last one counts; a pack that is spooled elsewhere is not held.
func TestSpools(t *testing.T) {
	p, r := newPool(t)
	c := r.commit("one")
	base := lock(t, p)
	pack := r.send(new(pool.Base), c...)
	if err := base.Complete(t.Context(), pack, c[0], false); err != nil {
		t.Fatal(err)
	}
	pack.Close()
	base.Close()
	base = lock(t, p)
	if base.Objects != nil {
		t.Error("a pack that is elsewhere is held")
	}
	r.send(base, c[:1]...).Close()
	pack = r.send(base, c...)
	if err := base.Complete(t.Context(), pack, c[0], false); err != nil {
		t.Fatal(err)
	}
	pack.Close()
	base.Close()
	base = lock(t, p)
	defer base.Close()
	if base.Commit != c[0] {
		t.Error("nothing is held")
	}
}

func TestDoubtful(t *testing.T) {
	p, r := newPool(t)
	c := r.commit("one")
	corrupt := fmt.Errorf("read pack: %w", object.ErrCorrupt)
	base := lock(t, p)
	if base.Doubtful(t.Context(), corrupt) {
		t.Error("nothing was held")
	}
	base.Close()
	if err := fetch(t, p, r, c[0], false, c, c[2]); err != nil {
		t.Fatal(err)
	}
	base = lock(t, p)
	defer base.Close()
	for err, want := range map[error]bool{corrupt: true, wire.ErrProtocol: true, wire.ErrAuth: false, wire.ErrBusy: false, errors.New("broken"): false} {
		if base.Doubtful(t.Context(), err) != want {
			t.Errorf("%v: want %v", err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if base.Doubtful(ended, corrupt) {
		t.Error("the context has ended")
	}
}
