package pool_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
	"github.com/headgate-io/headgate/git/internal/pool"
)

// A remote has objects; it serves them as fetches do.
type remote struct {
	t       *testing.T
	objects map[object.ID]content
	asked   []pool.Base
	whole   bool
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

// send returns a fetch that brings some objects.
func (r *remote) send(ids ...object.ID) pool.Fetch {
	return func(ctx context.Context, base pool.Base) (*packfile.Pack, bool, error) {
		r.asked = append(r.asked, base)
		p, err := packfile.Copy(ctx, r, ids, packfile.Options{Temp: base.Temp})
		return p, r.whole, err
	}
}

func newPool(t *testing.T) (*pool.Pool, *remote) {
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cache.Close() })
	return pool.New(cache, "scope"), &remote{t: t, objects: map[object.ID]content{}}
}

// must obtains an object and reads the file of the commit that it leads to.
func must(t *testing.T, p *pool.Pool, id object.ID, fetch pool.Fetch, blob object.ID) {
	t.Helper()
	o, err := p.Obtain(t.Context(), id, fetch)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if _, err := object.Read(o, blob, object.Blob, 1000); err != nil {
		t.Error(err)
	}
}

// Tags are held with what they lead to, also when layers are merged.
func TestTags(t *testing.T) {
	p, r := newPool(t)
	c := r.commit("one")
	inner := r.tag(c[0], "commit", "inner")
	outer := r.tag(inner, "tag", "outer")
	must(t, p, outer, r.send(append(c, inner, outer)...), c[2])
	for range 2 {
		for _, id := range []object.ID{outer, c[0]} {
			must(t, p, id, r.send(), c[2])
		}
		if len(r.asked) != 1 {
			t.Fatalf("%d fetches", len(r.asked))
		}
	}
	must(t, p, inner, r.send(), c[2]) // which it was not asked for so far, but has
	for i := range 20 {
		d := r.commit(fmt.Sprint("other ", i))
		must(t, p, d[0], r.send(d...), d[2])
		n := len(r.asked)
		if must(t, p, outer, r.send(append(c, inner, outer)...), c[2]); len(r.asked) > n {
			t.Fatalf("forgotten after %d fetches", i+1)
		}
	}
}

// What is not complete is not held.
func TestIncomplete(t *testing.T) {
	p, r := newPool(t)
	c := r.commit("one")
	blob := r.add(object.Blob, "not a tree")
	bad := r.add(object.Commit, strings.Replace(r.objects[c[0]].text, c[1].String(), blob.String(), 1))
	loop := r.tag(c[2], "blob", "of a blob")
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
	} {
		if _, err := p.Obtain(t.Context(), row.id, r.send(row.sent...)); err == nil {
			t.Errorf("%s: no error", name)
		}
		if p.Warm() {
			t.Fatalf("%s: something is held", name)
		}
	}
}

// A history that turns out to have holes cannot be merged: all is forgotten, nothing fails.
func TestHolesInHistory(t *testing.T) {
	p, r := newPool(t)
	r.whole = true
	last := r.commit("root")
	for i := range 30 {
		next := r.commit(fmt.Sprint(i), last[0])
		must(t, p, next[0], r.send(next...), next[2])
		last = next
	}
	fresh := 0
	for _, base := range r.asked {
		if base.Commits == nil {
			fresh++
		}
		for _, c := range base.Commits {
			if !c.Whole {
				t.Error("a whole history is taken for a shallow one")
			}
		}
	}
	if fresh != 2 {
		t.Errorf("%d fetches without a base, want the first and one after the merge that failed", fresh)
	}
}

// A file of the cache that cannot be written does not fail the fetch.
func TestSpoolFails(t *testing.T) {
	p, r := newPool(t)
	c := r.commit("one")
	calls := 0
	must(t, p, c[0], func(ctx context.Context, base pool.Base) (*packfile.Pack, bool, error) {
		if calls++; base.Temp == nil {
			return r.send(c...)(ctx, base)
		}
		f, err := base.Temp()
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		_, err = f.Write([]byte("x")) // as when the disk is full
		return nil, false, fmt.Errorf("read pack: %w", err)
	}, c[2])
	if calls != 2 || p.Warm() {
		t.Errorf("%d calls, warm %v", calls, p.Warm())
	}
}

// Of several spools the last one counts; a pack that is spooled elsewhere is not held.
func TestSpools(t *testing.T) {
	p, r := newPool(t)
	c := r.commit("one")
	must(t, p, c[0], func(ctx context.Context, base pool.Base) (*packfile.Pack, bool, error) {
		base.Temp = nil
		return r.send(c...)(ctx, base)
	}, c[2])
	if p.Warm() {
		t.Error("a pack that is elsewhere is held")
	}
	must(t, p, c[0], func(ctx context.Context, base pool.Base) (*packfile.Pack, bool, error) {
		first, _, err := r.send(c[:1]...)(ctx, base)
		if err != nil {
			return nil, false, err
		}
		first.Close()
		return r.send(c...)(ctx, base)
	}, c[2])
	if !p.Warm() {
		t.Error("nothing is held")
	}
	must(t, p, c[0], func(context.Context, pool.Base) (*packfile.Pack, bool, error) {
		return nil, false, os.ErrInvalid // not called
	}, c[2])
}

func TestErrorsAreThoseOfTheFetch(t *testing.T) {
	p, r := newPool(t)
	broken := errors.New("broken")
	fail := func(context.Context, pool.Base) (*packfile.Pack, bool, error) { return nil, false, broken }
	if _, err := p.Obtain(t.Context(), r.commit("one")[0], fail); !errors.Is(err, broken) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	if _, err := p.Obtain(ctx, r.commit("one")[0], r.send()); !errors.Is(err, broken) {
		t.Error(err)
	}
}
