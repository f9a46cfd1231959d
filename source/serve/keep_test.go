package serve_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

// ledgerPath returns the path of the files of Git repositories in the ledger, or of one of them.
func (r *fixture) ledgerPath(name ...string) string {
	return filepath.Join(append([]string{r.ledger().Dir, "gitrepository"}, name...)...)
}

// storePath returns the path of the directory of Git repositories in the store, or of an entry below it.
func (r *fixture) storePath(name ...string) string {
	return filepath.Join(append([]string{filepath.Dir(r.ledger().Dir), "store", "gitrepository"}, name...)...)
}

// wantFiles expects the names of the files in the ledger, and a number of artifacts in the store.
func (r *fixture) wantFiles(files string, artifacts int) {
	r.Helper()
	synctest.Wait()
	var found []string
	fs.WalkDir(os.DirFS(r.ledger().Dir), ".", func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = append(found, d.Name())
		}
		return nil
	})
	var paths []string
	for a := range r.Store.All() {
		paths = append(paths, a.Path)
	}
	if got := strings.Join(found, " "); got != files || len(paths) != artifacts {
		r.Errorf("left are %s, %q; want %s, %d", got, paths, files, artifacts)
	}
}

// upstreamCounts returns how often the upstream at a URL was resolved and opened.
func (r *fixture) upstreamCounts(url string) (resolves, opens int) {
	r.upstream(url).set(func(u *upstream) { resolves, opens = u.resolves, u.opens })
	return resolves, opens
}

// wantEvents expects at least want events with a reason.
func (r *fixture) wantEvents(reason string, want int) {
	r.Helper()
	n := 0
	for _, e := range r.emittedEvents() {
		if e.Reason == reason {
			n++
		}
	}
	if n < want {
		r.Errorf("%d events %s: %+v", n, reason, r.emittedEvents())
	}
}

// After a restart, objects that were up to date are not fetched again: their views exist at once, and they run at their
// next tick. The URLs in statuses use the current base URL of the store.
func TestRestart(t *testing.T) {
	badURL := "https://one.example/bad"
	objects := list(repo("good", site, time.Hour), repo("bad", badURL, time.Hour), repo("held", site, time.Hour), repo("edited", site, time.Hour))
	withFixture(t, objects, func(r *fixture) { r.upstream(badURL).err = errRefused }, func(r *fixture) {
		r.must(r.Suspend(repoRef("held"), source.Suspension{By: "alice"}))
		resolves, opens := r.upstreamCounts(site)
		r.restart(func() {
			r.feed.now.Objects = list(objects[0], objects[1], objects[2], repo("edited", site, 2*time.Hour))
		})
		if v := r.view("good"); v.Object.Artifact() == nil || v.Phase != serve.Idle || v.Object.Head().Metadata.Generation != 1 || v.Next.IsZero() {
			r.Errorf("good: %+v", v)
		}
		if v := r.view("held"); v.Phase != serve.Suspended || v.Suspension.By != "alice" || v.Object.Artifact() == nil {
			r.Errorf("held: %+v", v)
		}
		if got := describe(r.takeRuns()); got != "bad start failed, edited start unchanged" && got != "edited start unchanged, bad start failed" {
			r.Errorf("ran %s", got)
		}
		testenv.Equal(r.TB, r.view("edited").Object.Head().Metadata.Generation, 2, "edited: %+v", r.view("edited"))
		time.Sleep(63 * time.Minute)
		if n := r.view("good").Last.Number; n == 0 || r.view("held").Last.Number != 0 {
			r.Errorf("good ran %d times", n)
		}
		if now, again := r.upstreamCounts(site); again != opens || now <= resolves {
			r.Errorf("fetched %d times again, resolved %d times", again-opens, now-resolves)
		}
		moved, err := artifact.OpenStore(artifact.StoreConfig{Dir: filepath.Dir(r.storePath()), BaseURL: "https://moved.example"})
		r.must(err)
		defer moved.Close()
		r.restart(func() { r.Store = moved })
		r.takeRuns()
		saved, err := r.ledger().Object(repoRef("good"))
		if url := r.view("good").Object.Artifact().URL; err != nil || !strings.HasPrefix(url, "https://moved.example/gitrepository/default/good/") || saved.Artifact().URL != url {
			r.Errorf("the status names %s, %v", url, err)
		}
		if _, again := r.upstreamCounts(site); again != opens {
			r.Errorf("fetched %d times again", again-opens)
		}
	})
}

// A removed object is not run and keeps its artifacts for the retention, which continues over restarts. If it comes back
// meanwhile, it has all its state.
func TestRemoved(t *testing.T) {
	both := list(repo("a", site, time.Minute), repo("b", site, time.Minute))
	withFixture(t, both, nil, func(r *fixture) {
		r.must(r.Suspend(repoRef("b"), source.Suspension{}))
		r.put(both[0])
		time.Sleep(40 * time.Minute)
		_, opens := r.upstreamCounts(site)
		r.restart(nil)
		if v := r.view("b"); v.Phase != serve.Removed || v.Object.Artifact() == nil || !v.Next.IsZero() || len(r.Views()) != 2 {
			r.Errorf("%+v", v)
		}
		if _, err := r.Request(repoRef("b"), serve.Request); !errors.Is(err, fs.ErrNotExist) {
			r.Errorf("%v", err)
		}
		r.put(both...)
		if v := r.view("b"); v.Phase != serve.Suspended || v.Object.Artifact() == nil {
			r.Errorf("came back: %+v", v)
		}
		if _, again := r.upstreamCounts(site); again != opens {
			r.Errorf("fetched %d times again", again-opens)
		}
		r.put(both[0]) // the retention starts anew
		time.Sleep(40 * time.Minute)
		r.restart(nil)
		time.Sleep(19 * time.Minute)
		r.wantPhase(serve.Removed, "b")
		r.wantFiles("a.yaml b.hold b.removed b.yaml", 2)
		time.Sleep(2 * time.Minute)
		r.wantFiles("a.yaml", 1)
		if _, err := r.View(repoRef("b")); !errors.Is(err, fs.ErrNotExist) || len(r.Views()) != 1 {
			r.Error(err)
		}
	})
}

// An object that comes back while its files are being deleted has all its state or none: it is suspended
// in memory exactly if it is suspended on disk, and no status names a missing artifact.
func TestReturnDuringDeletion(t *testing.T) {
	var objects []source.Object
	for i := range 32 {
		objects = append(objects, repo(fmt.Sprint("r", i), site, time.Hour))
	}
	withFixture(t, objects, nil, func(r *fixture) {
		for _, obj := range objects {
			r.must(r.Suspend(source.ReferenceTo(obj), source.Suspension{}))
		}
		time.Sleep(time.Second)
		r.put()
		time.Sleep(time.Hour) // the end of the retention: deletion and feed run concurrently
		r.put(objects...)
		settle()
		r.checkConsistent(objects)
	})
}

// checkConsistent reports objects whose suspensions in memory and on disk differ, and objects whose artifact is missing from
// the store.
func (r *fixture) checkConsistent(objects []source.Object) {
	r.Helper()
	for _, obj := range objects {
		ref := source.ReferenceTo(obj)
		v := r.view(ref.Name)
		if held, err := r.ledger().Suspension(ref); err != nil || (held != nil) != (v.Suspension != nil) {
			r.Errorf("%s: suspended %v, saved %v, %v", ref, v.Suspension != nil, held, err)
		}
		if a := v.Object.Artifact(); a != nil && r.Store.Check(*a) != nil {
			r.Errorf("%s: its artifact is not there", ref)
		}
	}
}

// The server retries failed disk operations, and an object that comes back has the state that still exists.
func TestFailingDisk(t *testing.T) {
	objects := list(repo("a", site, time.Hour))
	withFixture(t, objects, nil, func(r *fixture) {
		r.must(r.Suspend(repoRef("a"), source.Suspension{}))
		r.put()
		dir := r.storePath("default")
		r.must(os.Rename(dir, dir+".away"), os.WriteFile(dir, nil, 0o600))
		time.Sleep(time.Hour + time.Second)
		r.wantEvents("GarbageCollectionFailed", 1)
		r.must(os.RemoveAll(dir+".away"), os.Remove(dir)) // the object is half deleted
		r.put(objects...)
		r.takeRuns()
		r.checkConsistent(objects)
		if v := r.view("a"); v.Phase != serve.Idle || v.Object.Artifact() == nil {
			r.Errorf("%+v", v)
		}
		r.put()
		dir = r.ledgerPath()
		r.must(os.Rename(dir, dir+".away"), os.WriteFile(dir, nil, 0o600))
		r.put(objects...) // the change of the removal cannot be saved
		time.Sleep(10 * time.Second)
		r.must(os.Remove(dir), os.Rename(dir+".away", dir))
		r.wantFiles("a.removed a.yaml", 1)
		r.put(repo("a", site, time.Hour))
		r.wantFiles("a.yaml", 1)
		r.put()
		time.Sleep(2 * time.Hour)
		r.wantFiles("", 0)
	})
}

// While documents are defective, no object counts as removed, even after a restart: missing objects continue with
// their saved state, and objects whose saved state cannot be read are not deleted.
func TestRestartWithDefects(t *testing.T) {
	for name, damage := range map[string]bool{"saved": false, "not to be read": true} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, list(repo("a", site, time.Hour)), nil, func(r *fixture) {
				r.restart(func() {
					if damage {
						r.must(os.WriteFile(r.ledgerPath("default", "a.yaml"), []byte("status: ["), 0o600))
					}
					r.feed.now = serve.Desired{Defects: []error{errors.New("a.yaml: not YAML")}}
				})
				time.Sleep(10 * time.Hour)
				r.wantFiles("a.yaml", 1)
				if !damage {
					if v := r.view("a"); !v.Missing || v.Last.Number == 0 || v.Object.Artifact() == nil {
						r.Errorf("%+v", v)
					}
				}
				r.put()
				if v := r.view("a"); v.Phase != serve.Removed || v.Missing {
					r.Errorf("%+v", v)
				}
				time.Sleep(2 * time.Hour)
				r.wantFiles("", 0)
			})
		})
	}
}

// Saved files that cannot be read count as missing, and events report them.
func TestRestartWithDamagedFiles(t *testing.T) {
	a, c := repo("a", site, time.Hour), repo("c", site, time.Hour)
	withFixture(t, list(a, repo("b", site, time.Hour), c), nil, func(r *fixture) {
		r.restart(func() {
			for name, text := range map[string]string{"a.yaml": "status: [", "b.yaml": "{", "b.state": "x", "c.hold": "[", "gone.removed": "yesterday"} {
				r.must(os.WriteFile(r.ledgerPath("default", name), []byte(text), 0o600))
			}
			r.feed.now.Objects = list(a, c)
		})
		r.wantRuns("a start stored")
		if r.wantPhase(serve.Suspended, "c"); r.view("a").Object.Artifact() == nil {
			r.Errorf("%+v", r.view("a"))
		}
		r.wantEvents("ReadOperationFailed", 4) // status of a, by its run; status of b; suspension; time of removal
		time.Sleep(2 * time.Hour)
		r.wantFiles("a.yaml c.hold c.yaml", 2)
	})
}

// Without the ledger, suspensions and removals are unknown: a server that cannot list it does not start.
func TestRestartWithoutLedger(t *testing.T) {
	withFixture(t, list(repo("a", site, time.Hour)), nil, func(r *fixture) {
		dir := r.ledgerPath()
		r.restart(func() { r.must(os.Rename(dir, dir+".away"), os.WriteFile(dir, nil, 0o600)) })
		if err := <-r.ended; err == nil || !strings.Contains(err.Error(), "gitrepository") {
			r.Errorf("Run: %v", err)
		}
		r.wantRuns("")
		r.must(os.Remove(dir), os.Rename(dir+".away", dir))
		r.start()
	})
}

// An object whose artifact is missing is fetched again at the start, after its inputs; consumers see the same artifact.
// Artifacts of objects that neither the feed nor the ledger contains are deleted.
func TestRestartWithoutArtifacts(t *testing.T) {
	objects := list(repo("app", other, time.Hour, "base"), repo("base", site, time.Hour), repo("whole", site, time.Hour), repo("lost", site, time.Hour), repo("old", site, time.Hour))
	withFixture(t, objects, nil, func(r *fixture) {
		digest := r.view("app").Object.Artifact().Digest
		r.restart(func() {
			r.must(os.RemoveAll(r.storePath("default", "app")), os.RemoveAll(r.storePath("default", "base")))
			r.must(r.ledger().Remove(repoRef("lost"))) // as if killed before its artifact was deleted
			r.must(os.Remove(r.ledgerPath("default", "old.yaml")), os.WriteFile(r.ledgerPath("default", "old.state"), []byte("x"), 0o600))
			time.Sleep(time.Hour)
			r.feed.now.Objects = objects[:3]
		})
		r.wantRuns("base repair stored, app repair stored")
		if a := r.view("app").Object.Artifact(); a.Digest != digest || r.Store.Check(*a) != nil {
			r.Errorf("%+v", a)
		}
		time.Sleep(time.Second)
		r.wantFiles("app.yaml base.yaml old.removed old.state whole.yaml", 4)
		time.Sleep(2 * time.Hour)
		r.wantFiles("app.yaml base.yaml whole.yaml", 3)
	})
}

// damageArtifact changes the content of the artifact of an object on disk, but neither its size nor its modification time.
func (r *fixture) damageArtifact(name string) {
	r.Helper()
	file := r.storePath("..", filepath.FromSlash(r.view(name).Object.Artifact().Path))
	info, err := os.Stat(file)
	r.must(err)
	text, _ := os.ReadFile(file)
	text[0] ^= 1
	r.must(os.WriteFile(file, text, 0o600), os.Chtimes(file, info.ModTime(), info.ModTime()))
}

// artifactStatus returns the HTTP status of a request for the artifact of an object.
func (r *fixture) artifactStatus(name string) int {
	w := httptest.NewRecorder()
	r.Store.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/"+r.view(name).Object.Artifact().Path, nil))
	return w.Code
}

func TestScrub(t *testing.T) {
	withFixture(t, list(repo("a", site, 1000*time.Hour), repo("b", site, 1000*time.Hour), repo("held", site, 1000*time.Hour)), func(r *fixture) { r.Scrub = 0 }, func(r *fixture) {
		r.must(r.Suspend(repoRef("held"), source.Suspension{}))
		time.Sleep(30 * time.Hour)
		r.wantRuns("") // all artifacts are intact
		r.damageArtifact("a")
		r.damageArtifact("held")
		r.must(os.Remove(r.storePath("..", filepath.FromSlash(r.view("b").Object.Artifact().Path))))
		time.Sleep(24 * time.Hour)
		if got := describe(r.takeRuns()); got != "a repair stored, b repair stored" && got != "b repair stored, a repair stored" {
			r.Errorf("ran %s", got)
		}
		if r.artifactStatus("a") != 200 || r.artifactStatus("b") != 200 || r.artifactStatus("held") == 200 {
			r.Errorf("served %d, %d, %d", r.artifactStatus("a"), r.artifactStatus("b"), r.artifactStatus("held"))
		}
		r.wantEvents("ArtifactVerificationFailed", 2)
		r.must(r.Resume(repoRef("held")))
		if synctest.Wait(); r.artifactStatus("held") != 200 {
			r.Errorf("served %d after it was resumed", r.artifactStatus("held"))
		}
	})
}

// The scrub verifies artifacts at a steady rate, and stops at once when the server ends.
func TestScrubRate(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	var objects []source.Object
	for _, name := range names {
		objects = append(objects, repo(name, site, 1000*time.Hour))
	}
	withFixture(t, objects, nil, func(r *fixture) {
		for _, name := range names {
			r.damageArtifact(name)
		}
		began := time.Now()
		r.restart(func() { r.Scrub = r.view("a").Object.Artifact().Size })
		time.Sleep(time.Minute)
		runs := r.takeRuns()
		for i, run := range runs {
			if took := run.Started.Sub(began); took < time.Duration(i)*900*time.Millisecond || took > time.Duration(i+1)*1100*time.Millisecond {
				r.Errorf("repair %d after %s", i, took)
			}
		}
		testenv.Equal(r.TB, len(runs), len(names), "ran %s", describe(runs))
		for _, name := range names {
			testenv.Equal(r.TB, r.artifactStatus(name), 200, "%s was not repaired", name)
		}
		r.restart(func() { r.Scrub = 1 }) // would take minutes
		time.Sleep(time.Second)
		began = time.Now()
		if r.stop(); time.Since(began) != 0 {
			r.Errorf("ended after %s", time.Since(began))
		}
		r.start()
	})
}
