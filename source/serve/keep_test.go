package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

// again returns a rig as after a restart: on the files of r, and with its upstreams and feed.
func (r *rig) again(t *testing.T) *rig {
	next := newRig(t)
	next.Store, next.Statuses = r.Store, &source.Ledger{Dir: r.ledger().Dir}
	next.origins, next.feed.now = r.origins, r.feed.now
	return next
}

// Statuses name the address that artifacts are served at now, at once after a
// restart at another one, and nothing is fetched for it.
func TestMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.feed.now.Objects = []source.Object{repo("a", site, time.Hour)}
		r.start()
		r.took()
		r.stop()
		next := r.again(t)
		moved, err := artifact.OpenStore(artifact.StoreConfig{Dir: filepath.Join(filepath.Dir(r.ledger().Dir), "store"), BaseURL: "https://moved.example"})
		if err != nil {
			t.Fatal(err)
		}
		defer moved.Close()
		next.Store = moved
		next.start()
		defer next.stop()
		next.took()
		if url := next.view("a").Object.Artifact().URL; !strings.HasPrefix(url, "https://moved.example/gitrepository/default/a/") {
			t.Errorf("the status names %s", url)
		}
		if _, opens := next.asked(site); opens != 1 {
			t.Errorf("it was fetched %d times", opens)
		}
		if saved, err := next.ledger().Object(named("a")); err != nil || saved.Artifact().URL != next.view("a").Object.Artifact().URL {
			t.Errorf("saved %v, %v", saved, err)
		}
	})
}

// files returns the files of objects in the ledger.
func (r *rig) files() []string {
	var files []string
	fs.WalkDir(os.DirFS(r.ledger().Dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, name)
		}
		return nil
	})
	return files
}

// stored returns the paths of what is in the store.
func (r *rig) stored() []string {
	var paths []string
	for a := range r.Store.All() {
		paths = append(paths, a.Path)
	}
	return paths
}

// asked returns how often the upstream at a URL was resolved and opened.
func (r *rig) asked(url string) (resolves, opens int) {
	r.up(url).set(func(u *upstream) { resolves, opens = u.resolves, u.opens })
	return resolves, opens
}

func (r *rig) view(name string) serve.View {
	r.Helper()
	v, err := r.View(named(name))
	if err != nil {
		r.Fatal(err)
	}
	return v
}

// What was up to date before is not fetched again: views are there at once, and
// runs at their time.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.up("https://one.example/bad").err = errors.New("broken")
		edited := repo("edited", site, time.Hour)
		r.feed.now.Objects = []source.Object{repo("good", site, time.Hour), repo("bad", "https://one.example/bad", time.Hour), repo("held", site, time.Hour), edited}
		r.start()
		r.took()
		if err := r.Suspend(named("held"), source.Suspension{By: "alice"}); err != nil {
			t.Fatal(err)
		}
		r.stop()
		resolves, opens := r.asked(site)
		next := r.again(t)
		next.feed.now.Objects = []source.Object{r.feed.now.Objects[0], r.feed.now.Objects[1], r.feed.now.Objects[2], repo("edited", site, 2*time.Hour)}
		next.start()
		defer next.stop()
		if v := next.view("good"); v.Object.Artifact() == nil || v.Phase != serve.Idle || v.Object.Head().Metadata.Generation != 1 || v.Next.IsZero() {
			t.Errorf("good: %+v", v)
		}
		if v := next.view("held"); v.Phase != serve.Suspended || v.Suspension.By != "alice" || v.Object.Artifact() == nil {
			t.Errorf("held: %+v", v)
		}
		var names []string
		for _, run := range next.took() {
			names = append(names, run.Object.Name)
		}
		slices.Sort(names)
		if !slices.Equal(names, []string{"bad", "edited"}) || next.view("edited").Object.Head().Metadata.Generation != 2 {
			t.Errorf("runs at once: %v", names)
		}
		time.Sleep(61 * time.Minute)
		if n := next.view("good").Last.Number; n == 0 || next.view("held").Last.Number != 0 {
			t.Errorf("good ran %d times", n)
		}
		if now, again := next.asked(site); again != opens || now <= resolves {
			t.Errorf("fetched %d times again, resolved %d times", again-opens, now-resolves)
		}
	})
}

// The retention of what is removed counts on over restarts.
func TestRemovedOverRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		both := []source.Object{repo("a", site, time.Minute), repo("b", site, time.Minute)}
		r.feed.now.Objects = both
		r.start()
		r.took()
		if err := r.Suspend(named("b"), source.Suspension{}); err != nil {
			t.Fatal(err)
		}
		r.feed.put(serve.Desired{Objects: both[:1]})
		time.Sleep(40 * time.Minute)
		r.stop()
		_, opens := r.asked(site)
		r = r.again(t)
		r.start()
		if v := r.view("b"); v.Phase != serve.Removed || v.Object.Artifact() == nil {
			t.Errorf("%+v", v)
		}
		r.feed.put(serve.Desired{Objects: both})
		if v := r.view("b"); v.Phase != serve.Suspended || v.Object.Artifact() == nil {
			t.Errorf("came back: %+v", v)
		}
		if _, again := r.asked(site); again != opens {
			t.Errorf("fetched %d times again", again-opens)
		}
		r.feed.put(serve.Desired{Objects: both[:1]}) // and its retention begins again
		time.Sleep(40 * time.Minute)
		r.stop()
		r = r.again(t)
		r.start()
		time.Sleep(19 * time.Minute)
		if v := r.view("b"); v.Phase != serve.Removed || len(r.stored()) != 2 {
			t.Errorf("%+v", v)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if _, err := r.View(named("b")); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		if files := r.files(); len(files) != 1 || len(r.stored()) != 1 || !strings.Contains(files[0], "/a.yaml") {
			t.Errorf("left %v, %v", files, r.stored())
		}
		r.stop()
	})
}

// An object that comes back while what is left of it is removed has all that it
// had or nothing: it is suspended now when it is after a restart, and no status
// names an artifact that is not there.
func TestBackWhileRetired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for i := range 64 {
			r.feed.now.Objects = append(r.feed.now.Objects, repo(fmt.Sprint("r", i), site, time.Hour))
		}
		objects := r.feed.now.Objects
		r.start()
		r.took()
		for _, obj := range objects {
			if err := r.Suspend(source.ReferenceTo(obj), source.Suspension{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		r.feed.put(serve.Desired{})
		time.Sleep(time.Hour) // the end of the retention: what retires them and the feed run at once
		r.feed.put(serve.Desired{Objects: objects})
		settle()
		r.consistent(objects)
		r.stop()
	})
}

// consistent says which objects are suspended and not so on the disk, or the
// other way round, and whose artifact is not in the store.
func (r *rig) consistent(objects []source.Object) {
	r.Helper()
	held, err := r.ledger().Suspensions()
	if err != nil {
		r.Fatal(err)
	}
	for _, obj := range objects {
		ref := source.ReferenceTo(obj)
		v, err := r.View(ref)
		if err != nil {
			r.Fatal(err)
		}
		if _, is := held[ref]; is != (v.Suspension != nil) {
			r.Errorf("%s: suspended %v, saved %v", ref, v.Suspension != nil, is)
		}
		if a := v.Object.Artifact(); a != nil && r.Store.Check(*a) != nil {
			r.Errorf("%s: its artifact is not there", ref)
		}
	}
}

// What cannot be removed is tried again, and an object that comes back before
// has what is still there.
func TestBackWhileRetirementFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		objects := []source.Object{repo("a", site, time.Hour)}
		r.feed.now.Objects = objects
		r.start()
		defer r.stop()
		r.took()
		if err := r.Suspend(named("a"), source.Suspension{}); err != nil {
			t.Fatal(err)
		}
		r.feed.put(serve.Desired{})
		dir := filepath.Join(filepath.Dir(r.ledger().Dir), "store", "gitrepository", "default")
		if err := errors.Join(os.Rename(dir, dir+".away"), os.WriteFile(dir, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour + time.Second)
		if events := r.heard(); events[len(events)-1].Reason != "GarbageCollectionFailed" {
			t.Fatalf("told %+v", events)
		}
		if err := errors.Join(os.RemoveAll(dir+".away"), os.Remove(dir)); err != nil { // half of it went
			t.Fatal(err)
		}
		r.feed.put(serve.Desired{Objects: objects})
		r.took()
		r.consistent(objects)
		if v := r.view("a"); v.Phase != serve.Idle || v.Object.Artifact() == nil {
			t.Errorf("%+v", v)
		}
		r.feed.put(serve.Desired{})
		time.Sleep(2 * time.Hour)
		if files := r.files(); len(files) != 0 || len(r.stored()) != 0 {
			t.Errorf("left %v, %v", files, r.stored())
		}
	})
}

// As long as documents are defective nothing is taken for removed, after a
// restart neither: what is missing goes on as it was saved.
func TestRestartWithDefects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.feed.now.Objects = []source.Object{repo("a", site, time.Minute)}
		r.start()
		r.took()
		r.stop()
		r = r.again(t)
		r.feed.now = serve.Desired{Defects: []error{errors.New("a.yaml: not YAML")}}
		r.start()
		time.Sleep(10 * time.Hour)
		if v := r.view("a"); !v.Missing || v.Last.Number == 0 || v.Object.Artifact() == nil {
			t.Errorf("%+v", v)
		}
		r.feed.put(serve.Desired{})
		if v := r.view("a"); v.Phase != serve.Removed || v.Missing {
			t.Errorf("%+v", v)
		}
		time.Sleep(2 * time.Hour)
		if files := r.files(); len(files) != 0 || len(r.stored()) != 0 {
			t.Errorf("left %v, %v", files, r.stored())
		}
		r.stop()
	})
}

// What cannot be read is not forgotten while documents are defective: it goes when they are not.
func TestUnreadWithDefects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.feed.now.Objects = []source.Object{repo("a", site, time.Minute)}
		r.start()
		r.took()
		r.stop()
		if err := os.WriteFile(filepath.Join(r.ledger().Dir, "gitrepository", "default", "a.yaml"), []byte("status: ["), 0o600); err != nil {
			t.Fatal(err)
		}
		r = r.again(t)
		r.feed.now = serve.Desired{Defects: []error{errors.New("a.yaml: not YAML")}}
		r.start()
		time.Sleep(10 * time.Hour)
		if files := r.files(); len(files) != 1 || len(r.stored()) != 1 {
			t.Errorf("left %v, %v", files, r.stored())
		}
		r.feed.put(serve.Desired{})
		time.Sleep(2 * time.Hour)
		if files := r.files(); len(files) != 0 || len(r.stored()) != 0 {
			t.Errorf("left %v, %v", files, r.stored())
		}
		r.stop()
	})
}

// That an object came back is made durable, with the next Desired if the disk did not take it at once.
func TestBackOnAFailingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		objects := []source.Object{repo("a", site, time.Hour)}
		r.feed.now.Objects = objects
		r.start()
		defer r.stop()
		r.took()
		r.feed.put(serve.Desired{})
		dir := filepath.Join(r.ledger().Dir, "gitrepository")
		if err := errors.Join(os.Rename(dir, dir+".away"), os.WriteFile(dir, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		r.feed.put(serve.Desired{Objects: objects})
		time.Sleep(10 * time.Second)
		if err := errors.Join(os.Remove(dir), os.Rename(dir+".away", dir)); err != nil {
			t.Fatal(err)
		}
		if files := r.files(); len(files) != 2 {
			t.Fatalf("saved %v", files)
		}
		r.feed.put(serve.Desired{Objects: []source.Object{repo("a", site, time.Hour)}})
		if files := r.files(); len(files) != 1 || !strings.HasSuffix(files[0], "/a.yaml") {
			t.Errorf("saved %v", files)
		}
	})
}

// Saved files that cannot be read count as not saved, and are told of.
func TestRestartWithDamagedFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.feed.now.Objects = []source.Object{repo("a", site, time.Hour), repo("b", site, time.Hour), repo("c", site, time.Hour)}
		r.start()
		r.took()
		r.stop()
		dir := filepath.Join(r.ledger().Dir, "gitrepository", "default")
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("status: ["), 0o600),
			os.WriteFile(filepath.Join(dir, "b.yaml"), []byte("{"), 0o600), os.WriteFile(filepath.Join(dir, "b.state"), []byte("x"), 0o600),
			os.WriteFile(filepath.Join(dir, "c.hold"), []byte("["), 0o600),
			os.WriteFile(filepath.Join(dir, "gone.removed"), []byte("yesterday"), 0o600)); err != nil {
			t.Fatal(err)
		}
		r = r.again(t)
		r.feed.now.Objects = slices.Delete(slices.Clone(r.feed.now.Objects), 1, 2)
		r.start()
		defer r.stop()
		if runs := r.took(); len(runs) != 1 || runs[0].Object.Name != "a" || r.view("a").Object.Artifact() == nil {
			t.Errorf("runs %+v", runs)
		}
		if v := r.view("c"); v.Phase != serve.Suspended {
			t.Errorf("c: %+v", v)
		}
		told, events := 0, r.heard()
		for _, e := range events {
			if e.Reason == "ReadOperationFailed" {
				told++
			}
		}
		if told < 4 { // a by its run, b, the suspension, the time
			t.Errorf("told %+v", events)
		}
		time.Sleep(2 * time.Hour)
		if files := r.files(); len(files) != 3 || len(r.stored()) != 2 { // a, c and its suspension
			t.Errorf("left %v, %v", files, r.stored())
		}
	})
}

// Who is suspended, and what is removed, is not known without the ledger: a
// controller that cannot list it does not begin.
func TestRestartWithoutLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.feed.now.Objects = []source.Object{repo("a", site, time.Hour)}
		r.start()
		if err := r.Suspend(named("a"), source.Suspension{}); err != nil {
			t.Fatal(err)
		}
		r.took()
		r.stop()
		dir := filepath.Join(r.ledger().Dir, "gitrepository")
		if err := errors.Join(os.Rename(dir, dir+".away"), os.WriteFile(dir, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		feed := r.feed.now
		r = r.again(t)
		r.feed.now = feed
		r.start()
		if err := <-r.ended; err == nil || !strings.Contains(err.Error(), "gitrepository") {
			t.Errorf("Run: %v", err)
		}
		if runs := r.took(); len(runs) > 0 {
			t.Errorf("runs %+v", runs)
		}
	})
}

// A saved status whose artifact is gone is not trusted: it is fetched again at the
// start, after what it is made of, and consumers are told of nothing new.
func TestRestartWithoutArtifacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.feed.now.Objects = []source.Object{repo("app", "https://two.example/app", time.Hour, "base"), repo("base", site, time.Hour), repo("whole", site, time.Hour)}
		r.start()
		r.took()
		r.stop()
		for _, name := range []string{"app", "base"} {
			if err := os.RemoveAll(filepath.Join(filepath.Dir(r.ledger().Dir), "store", "gitrepository", "default", name)); err != nil {
				t.Fatal(err)
			}
		}
		revision := r.view("app").Object.Artifact().Digest
		r = r.again(t)
		r.start()
		defer r.stop()
		runs := r.took()
		if order(runs) != "base app" || runs[1].Trigger != serve.Repair || runs[1].Result.Outcome != source.Stored {
			t.Errorf("%+v", runs)
		}
		if a := r.view("app").Object.Artifact(); a.Digest != revision || r.Store.Check(*a) != nil {
			t.Errorf("%+v", a)
		}
	})
}

// What neither the feed nor the ledger knows goes at the start: objects that
// were removed while nobody looked, and what a killed retirement left.
func TestStartCleans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.feed.now.Objects = []source.Object{repo("a", site, time.Hour), repo("b", site, time.Hour), repo("c", site, time.Hour)}
		r.start()
		r.took()
		r.stop()
		if err := r.ledger().Remove(named("b")); err != nil { // and killed before its artifact went
			t.Fatal(err)
		}
		dir := filepath.Join(r.ledger().Dir, "gitrepository", "default")
		if err := errors.Join(os.Remove(filepath.Join(dir, "c.yaml")), os.WriteFile(filepath.Join(dir, "c.state"), []byte("x"), 0o600)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		r = r.again(t)
		r.feed.now.Objects = r.feed.now.Objects[:1]
		r.start()
		defer r.stop()
		time.Sleep(time.Second)
		synctest.Wait()
		if paths := r.stored(); len(paths) != 2 || strings.Contains(strings.Join(paths, " "), "/b/") {
			t.Errorf("stored %v", paths)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if paths, files := r.stored(), r.files(); len(paths) != 1 || len(files) != 1 || !strings.Contains(paths[0], "/a/") {
			t.Errorf("stored %v, saved %v", paths, files)
		}
	})
}

// spoil changes the artifact of an object on the disk, so that a look does not show it.
func (r *rig) spoil(name string) {
	r.Helper()
	file := filepath.Join(filepath.Dir(r.ledger().Dir), "store", filepath.FromSlash(r.view(name).Object.Artifact().Path))
	info, err := os.Stat(file)
	if err != nil {
		r.Fatal(err)
	}
	text, _ := os.ReadFile(file)
	text[0] ^= 1
	if err := errors.Join(os.WriteFile(file, text, 0o600), os.Chtimes(file, info.ModTime(), info.ModTime())); err != nil {
		r.Fatal(err)
	}
}

// serves returns the status of the answer to who fetches the artifact of an object.
func (r *rig) serves(name string) int {
	w := httptest.NewRecorder()
	r.Store.Handler().ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), "GET", "/"+r.view(name).Object.Artifact().Path, nil))
	return w.Code
}

func TestScrub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Scrub = 0
		r.feed.now.Objects = []source.Object{repo("a", site, 1000*time.Hour), repo("b", site, 1000*time.Hour), repo("held", site, 1000*time.Hour)}
		r.start()
		defer r.stop()
		r.took()
		if err := r.Suspend(named("held"), source.Suspension{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Hour)
		if runs := r.took(); len(runs) != 0 {
			t.Errorf("runs of intact objects: %+v", runs)
		}
		r.spoil("a")
		r.spoil("held")
		if err := os.Remove(filepath.Join(filepath.Dir(r.ledger().Dir), "store", filepath.FromSlash(r.view("b").Object.Artifact().Path))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		runs := r.took()
		if len(runs) != 2 || runs[0].Trigger != serve.Repair || runs[1].Trigger != serve.Repair {
			t.Errorf("runs %+v", runs)
		}
		if r.serves("a") != 200 || r.serves("b") != 200 || r.serves("held") == 200 {
			t.Errorf("served %d, %d, %d", r.serves("a"), r.serves("b"), r.serves("held"))
		}
		told, events := 0, r.heard()
		for _, e := range events {
			if e.Reason == "ArtifactVerificationFailed" && e.InvolvedObject.Name == "held" {
				told++
			}
		}
		if told == 0 {
			t.Errorf("told %+v", events)
		}
		if err := r.Resume(named("held")); err != nil {
			t.Fatal(err)
		}
		if synctest.Wait(); r.serves("held") != 200 {
			t.Errorf("served %d after it was resumed", r.serves("held"))
		}
	})
}

// Hashing is spread evenly over its time, and ends at once.
func TestScrubIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for _, name := range []string{"a", "b", "c", "d"} {
			r.feed.now.Objects = append(r.feed.now.Objects, repo(name, site, 1000*time.Hour))
		}
		r.start()
		r.took()
		size := r.view("a").Object.Artifact().Size
		for _, name := range []string{"a", "b", "c", "d"} {
			r.spoil(name)
		}
		r.stop()
		r = r.again(t)
		r.Scrub = size
		began := time.Now()
		r.start()
		time.Sleep(time.Minute)
		for i, run := range r.took() {
			if took := run.Started.Sub(began); took < time.Duration(i)*900*time.Millisecond || took > time.Duration(i+1)*1100*time.Millisecond {
				t.Errorf("repair %d after %s", i, took)
			}
			if i == 4 {
				t.Error("more repairs than damages")
			}
		}
		for _, name := range []string{"a", "b", "c", "d"} {
			if r.serves(name) != 200 {
				t.Errorf("%s was not repaired", name)
			}
		}
		r.stop()
		r = r.again(t)
		r.Scrub = 1 // would take minutes
		r.start()
		time.Sleep(time.Second)
		began = time.Now()
		if r.stop(); time.Since(began) != 0 {
			t.Errorf("ended after %s", time.Since(began))
		}
	})
}
