package bucket_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// The vectors of reference A4.
func TestRevision(t *testing.T) {
	d := newMemory()
	d.set("foo", memoryObject{etag: "bar"})
	d.set("bar", memoryObject{etag: "baz"})
	for want, d := range map[string]*memoryDriver{
		"5da7dfe37b54ea1d5ebffb643d67b09d888635b2fe031763fbb856ea5290fda0": d,
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855": newMemory(),
	} {
		rev, err := resolve(t, d, nil)
		if err != nil || rev.ID != "sha256:"+want || rev.File != want+".tar.gz" {
			t.Errorf("%+v, %v", rev, err)
		}
	}
}

// The order in which a store lists does not count.
func TestOrders(t *testing.T) {
	d := newMemory("a-b", "1", "a/b", "2", "a/b/", "", "a0", "3", "é", "4", "Z", "5", "a.txt", "6")
	for i := range 300 {
		d.put(fmt.Sprintf("many/%d", i), fmt.Sprint(i))
	}
	want, err := resolve(t, d, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, order := range map[string]func([]bucket.Object){
		"backwards": slices.Reverse[[]bucket.Object],
		"shuffled":  func(l []bucket.Object) { rand.Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] }) },
	} {
		d.order = order
		if rev, err := resolve(t, d, nil); err != nil || rev.ID != want.ID {
			t.Errorf("%s: %s, %v; want %s", name, rev.ID, err, want.ID)
		}
	}
}

// What counts for the revision, and what does not.
func TestRevisionDepends(t *testing.T) {
	base := func() *memoryDriver { return newMemory("a/b", "1", "c.png", "2", "d/e/f", "3") }
	want, err := resolve(t, base(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*memoryDriver)
		edit   func(*source.BucketSpec)
		same   bool
	}{
		"another ETag":       {change: func(d *memoryDriver) { d.put("a/b", "x") }},
		"another key":        {change: func(d *memoryDriver) { d.put("a/c", "1") }},
		"one less":           {change: func(d *memoryDriver) { d.remove("c.png") }},
		"marker":             {change: func(d *memoryDriver) { d.put("x/", ""); d.put("/", ""); d.put("a/", "") }, same: true},
		"ignored":            {change: func(d *memoryDriver) { d.put("x.log", "1") }, edit: ignoring("*.log"), same: true},
		"ignored by a file":  {change: func(d *memoryDriver) { d.put("x/y", "1"); d.put(".sourceignore", "/x/\n") }, same: true},
		"file below the top": {change: func(d *memoryDriver) { d.put("a/.sourceignore", "b\n") }},
		"more ignored":       {edit: ignoring("*.png")},
		"spec.ignore last":   {change: func(d *memoryDriver) { d.put(".sourceignore", "*.png\n") }, edit: ignoring("!c.png"), same: true},
		"no defaults":        {change: func(d *memoryDriver) { d.put(".git/config", "1") }},
		"prefix":             {edit: func(s *source.BucketSpec) { s.Prefix = "a/" }},
		"prefix of nothing":  {edit: func(s *source.BucketSpec) { s.Prefix = "zzz" }},
	} {
		d := base()
		if c.change != nil {
			c.change(d)
		}
		rev, err := resolve(t, d, c.edit)
		if err != nil || (rev.ID == want.ID) != c.same {
			t.Errorf("%s: %s, %v; was %s", name, rev.ID, err, want.ID)
		}
	}
}

func ignoring(patterns string) func(*source.BucketSpec) {
	return func(s *source.BucketSpec) { s.Ignore = &patterns }
}

// A bucket that did not change costs one listing.
func TestRequests(t *testing.T) {
	d := newMemory("a", "1", "b", "2")
	o := d.origin(newBucket(nil), source.Env{})
	var state source.State
	step := func(name string, lists, opens int, renew string) source.Revision {
		t.Helper()
		rev, next, err := o.Resolve(t.Context(), state)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if l, r := d.counts(); l != lists || r != opens {
			t.Errorf("%s: %d listings and %d reads, want %d and %d", name, l, r, lists, opens)
		}
		if rev.Renew != renew {
			t.Errorf("%s: renew %q, want %q", name, rev.Renew, renew)
		}
		state = next
		return rev
	}
	const changed = "changed: .sourceignore"
	first := step("first", 1, 0, "")
	step("unchanged", 1, 0, "")
	d.put(".sourceignore", "# nothing\n")
	step("rules appear", 1, 1, changed)
	step("unchanged with rules", 1, 0, "")
	d.set(".sourceignore", memoryObject{data: "# nothing\n", etag: "touched"})
	step("the same rules once more", 1, 1, "")
	d.put(".sourceignore", "# nothing much\n")
	if rev := step("other rules", 1, 1, changed); rev.ID != first.ID {
		t.Errorf("revision %s, was %s", rev.ID, first.ID)
	}
	d.remove(".sourceignore")
	step("rules disappear", 1, 0, changed)
	d.put("a", "3")
	second := step("changed", 1, 0, "")
	if _, err := o.Open(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if l, r := d.counts(); l+r != 0 {
		t.Errorf("opened with %d listings and %d reads", l, r)
	}
	if _, err := o.Open(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if l, r := d.counts(); l != 1 || r != 0 {
		t.Errorf("opened again with %d listings and %d reads", l, r)
	}
	step("unchanged once more", 1, 0, "")
	_, err := o.Open(t.Context(), first)
	if !errors.Is(err, source.ErrMoved) || !strings.Contains(err.Error(), first.ID) || !strings.Contains(err.Error(), second.ID) {
		t.Errorf("another revision: %v", err)
	}
}

// What is remembered of another bucket, or cannot be read, is nothing.
func TestForeignState(t *testing.T) {
	d := newMemory("a", "1", ".sourceignore", "b\n")
	_, state, err := d.origin(newBucket(nil), source.Env{}).Resolve(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(state), `"generic store.example/stuff"`) {
		t.Errorf("state %s", state)
	}
	d.counts()
	for name, c := range map[string]struct {
		state source.State
		edit  func(*source.BucketSpec)
		reads int
	}{
		"own":             {state, nil, 0},
		"same place":      {state, func(s *source.BucketSpec) { s.Provider = "generic"; s.Endpoint += "/" }, 0},
		"other bucket":    {state, func(s *source.BucketSpec) { s.BucketName = "other" }, 1},
		"other endpoint":  {state, func(s *source.BucketSpec) { s.Endpoint = "other.example" }, 1},
		"damaged":         {state[:len(state)-1], nil, 1},
		"of another size": {source.State(strings.Replace(string(state), `"b\n"`, `"b\nc"`, 1)), nil, 1},
		"not JSON":        {source.State("{{"), nil, 1},
	} {
		if _, _, err := d.origin(newBucket(c.edit), source.Env{}).Resolve(t.Context(), c.state); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if lists, opens := d.counts(); lists != 1 || opens != c.reads {
			t.Errorf("%s: %d listings, %d reads", name, lists, opens)
		}
	}
}

// A state holds nothing of a signature.
func TestStateHasNoSignature(t *testing.T) {
	b := newBucket(func(s *source.BucketSpec) { s.Provider, s.Endpoint = "azure", "https://acc.example/?sv=1&sig=canary" })
	o := bucket.New(b, source.Env{}, map[string]bucket.Provider{"azure": newMemory("a", "1").provide})
	_, state, err := o.Resolve(t.Context(), nil)
	if err != nil || strings.Contains(string(state), "canary") {
		t.Errorf("%s, %v", state, err)
	}
}

// With a prefix, .sourceignore at the root is looked for by itself.
func TestPrefixHidesRules(t *testing.T) {
	for name, c := range map[string]struct {
		prefix string
		change func(*memoryDriver)
		lists  int
		files  string
		note   string
	}{
		"found":          {"dir/", func(d *memoryDriver) { d.put(".sourceignore", "*.log\n") }, 2, ".sourceignore dir/a", ""},
		"none":           {"dir/", func(*memoryDriver) {}, 2, "dir/a dir/b.log", ""},
		"others like it": {"dir/", func(d *memoryDriver) { d.put(".sourceignore.bak", "*\n"); d.put(".sourceignore/x", "*\n") }, 2, "dir/a dir/b.log", ""},
		"in the prefix":  {".source", func(d *memoryDriver) { d.put(".sourceignore", "*.log\n"); d.put(".source.log", "") }, 1, ".sourceignore", ""},
		"all of the key": {".sourceignore", func(d *memoryDriver) { d.put(".sourceignore", "*.log\n") }, 1, ".sourceignore", ""},
		"behind others": {"dir/", func(d *memoryDriver) {
			d.put(".sourceignore", "*.log\n")
			d.put(".sourceignore-", "")
			d.order = slices.Reverse[[]bucket.Object]
		}, 2, ".sourceignore dir/a", ""},
		"part of a name": {"di", func(*memoryDriver) {}, 2, "dir/a dir/b.log", ""},
		"must not be seen": {"dir/", func(d *memoryDriver) {
			d.onList = func(prefix string, _ int) error {
				if prefix == ".sourceignore" {
					return &bucket.StatusError{Doing: "list objects", Status: 403, Code: "AccessDenied"}
				}
				return nil
			}
		}, 2, "dir/a dir/b.log", "AccessDenied"},
	} {
		d := newMemory("dir/a", "1", "dir/b.log", "2", "other", "3")
		c.change(d)
		report, files := d.fetch(t, prefix(c.prefix))
		if lists, _ := d.counts(); lists != c.lists || files != c.files {
			t.Errorf("%s: %d listings, files %s", name, lists, files)
		}
		if notes := strings.Join(report.Notes, "; "); c.note == "" && notes != "" || !strings.Contains(notes, c.note) {
			t.Errorf("%s: notes %q", name, notes)
		}
	}
}

// fetch returns the report about an artifact of d, and its files.
func (d *memoryDriver) fetch(t *testing.T, edit func(*source.BucketSpec)) (source.Report, string) {
	t.Helper()
	o := d.origin(newBucket(edit), source.Env{})
	rev, _, err := o.Resolve(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := o.Open(t.Context(), rev)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	out := new(strings.Builder)
	report, err := c.WriteTo(t.Context(), out)
	if err != nil {
		t.Fatal(err)
	}
	return report, strings.Join(filesOf(t, strings.NewReader(out.String())), " ")
}

// filesOf lists the files of an archive.
func filesOf(t *testing.T, archive io.Reader) (files []string) {
	t.Helper()
	tree, err := artifact.Read(archive, artifact.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	walk(t, tree, func(name string) { files = append(files, name) })
	return files
}

func TestMarkersWithContent(t *testing.T) {
	d := newMemory("a/", "lost", "b/", "", "c/", "ignored", "a/x", "1")
	report, files := d.fetch(t, ignoring("/c"))
	if files != "a/x" || len(report.Notes) != 1 || report.Notes[0] != `the content of 1 directory markers is left out: "a/"` {
		t.Errorf("files %s, notes %q", files, report.Notes)
	}
}

// Rules that are replaced while they are read are read again, with what is listed then.
func TestRulesMove(t *testing.T) {
	for name, change := range map[string]func(*memoryDriver){
		"replaced": func(d *memoryDriver) { d.put(".sourceignore", "b\n") },
		"removed":  func(d *memoryDriver) { d.remove(".sourceignore") },
	} {
		d := newMemory("a", "1", ".sourceignore", "a\n")
		d.onOpen = func(bucket.Object, int64) error { change(d); return nil }
		_, err := resolve(t, d, nil)
		if !errors.Is(err, source.ErrMoved) {
			t.Errorf("%s: %v", name, err)
		}
		d.onOpen = nil
		if _, err := resolve(t, d, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Progress tells how far a listing is that takes long.
func TestProgress(t *testing.T) {
	d := newMemory()
	for i := range 12_000 {
		d.set(fmt.Sprint(i), memoryObject{etag: "e"})
	}
	var told []source.Progress
	o := d.origin(newBucket(nil), source.Env{Progress: func(p source.Progress) { told = append(told, p) }})
	if _, _, err := o.Resolve(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	want := source.Progress{Object: "bucket/default/app", Phase: "listing", Done: 10_000, Unit: "objects"}
	if len(told) != 2 || told[0].Done != 5000 || told[1] != want {
		t.Errorf("%+v", told)
	}
}

// What Resolve leaves for an Open that does not come holds no goroutine when nothing changed.
func TestNothingLeaks(t *testing.T) {
	d := newMemory("a", "1")
	server := serving(t, "ok")
	d.connect = func(ctx context.Context, a *bucket.Access) error { return ask(ctx, a, server) }
	var state source.State
	for i := range 3 {
		o := d.origin(newBucket(nil), source.Env{})
		resolve := func(ctx context.Context) {
			_, next, err := o.Resolve(ctx, state)
			if err != nil {
				t.Fatal(err)
			}
			state = next
		}
		if i == 0 {
			resolve(t.Context())
			continue
		}
		sourcetest.NoLeaks(t, resolve)
	}
}
