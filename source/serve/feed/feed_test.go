package feed_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/feed"
)

// document returns the document of a GitRepository with an interval.
func document(name, interval string) string {
	return fmt.Sprintf(`---
apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata:
  name: %s
  namespace: apps
spec:
  interval: %s
  url: https://example.org/%[1]s.git
`, name, interval)
}

func secret(name, value string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: %s\n  namespace: apps\nstringData:\n  key: %s\n", name, value)
}

// A fixture is a feed of a directory in a [synctest] bubble.
type fixture struct {
	*testing.T
	dir      string
	turn     sync.Mutex // held while the feed reports, and when the test begins to wait: it orders the two
	last     serve.Desired
	setCalls int      // calls of set
	warnings []string // errors passed to Warn
}

// withFeed writes files, and calls test with a feed that follows their directory.
func withFeed(t *testing.T, f feed.Files, files map[string]string, test func(*fixture)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := &fixture{T: t, dir: dir}
		for name, text := range files {
			r.write(name, text)
		}
		if f.Paths == nil {
			f.Paths = []string{"."}
		}
		for i := range f.Paths {
			f.Paths[i] = filepath.Join(dir, f.Paths[i])
		}
		if f.Secrets != "" {
			f.Secrets = filepath.Join(dir, f.Secrets)
		}
		f.Warn = func(err error) {
			r.turn.Lock()
			defer r.turn.Unlock()
			r.warnings = append(r.warnings, strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), ""))
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		set := func(d serve.Desired) {
			r.turn.Lock()
			defer r.turn.Unlock()
			r.last = d
			r.setCalls++
		}
		go func() { ended <- f.Follow(ctx, set) }()
		synctest.Wait()
		test(r)
		cancel()
		testenv.Equal(t, <-ended, nil, "ended with")
	})
}

func (r *fixture) write(name, text string) {
	r.Helper()
	name = filepath.Join(r.dir, name)
	must(r, errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)))
}

func (r *fixture) must(err error) {
	r.Helper()
	must(r, err)
}

// poll lets the feed poll once.
func (r *fixture) poll() {
	func() {
		r.turn.Lock()
		defer r.turn.Unlock()
	}()
	time.Sleep(time.Second)
	synctest.Wait()
}

// pollChanges lets the feed poll until it has read all changes.
func (r *fixture) pollChanges() {
	for range 3 {
		r.poll()
	}
}

// names returns the names of the objects, with their intervals.
func (r *fixture) names() string {
	var names []string
	for _, obj := range r.last.Objects {
		names = append(names, fmt.Sprintf("%s=%s", obj.Head().Metadata.Name, obj.Interval()))
	}
	return strings.Join(names, " ")
}

func (r *fixture) want(names string, defects ...string) {
	r.Helper()
	testenv.Equal(r, r.names(), names, "objects")
	if len(r.last.Defects) != len(defects) {
		r.Errorf("defects %v, want %q", r.last.Defects, defects)
		return
	}
	for i, err := range r.last.Defects {
		if !strings.Contains(err.Error(), defects[i]) {
			r.Errorf("defect %v, want %q", err, defects[i])
		}
	}
}

func TestFollowReadsWhatFetchReads(t *testing.T) {
	withFeed(t, feed.Files{}, map[string]string{
		"b.yml": document("b", "1m"), "a.yaml": document("a", "1m") + document("a2", "1m"), "deep/er/c.json": `{"kind":"List","apiVersion":"v1","items":[]}`,
		"deep/d.yaml": document("d", "1m"), ".hidden/no.yaml": document("no", "1m"), "notes.txt": "x", "deep/values.yaml": "replicas: 3\n",
	}, func(r *fixture) {
		r.want("a=1m0s a2=1m0s b=1m0s d=1m0s")
		r.must(os.Symlink("deep", filepath.Join(r.dir, "link")))        // not followed
		r.must(os.Symlink("notes.txt", filepath.Join(r.dir, "z.yaml"))) // followed
		r.must(os.WriteFile(filepath.Join(r.dir, "notes.txt"), []byte(document("z", "1m")), 0o600))
		r.pollChanges()
		r.want("a=1m0s a2=1m0s b=1m0s d=1m0s z=1m0s")
		r.write("notes.txt", document("z", "2m"))
		r.pollChanges()
		r.want("a=1m0s a2=1m0s b=1m0s d=1m0s z=2m0s")
		testenv.Equal(r, len(r.warnings), 0, "warnings %q", r.warnings)
		set := new(source.Set)
		if err := set.DecodeFS(os.DirFS(r.dir), "."); err != nil || len(set.Objects) != len(r.last.Objects) {
			r.Errorf("DecodeFS reads %d objects, %v", len(set.Objects), err)
		}
	})
}

func TestFollowIgnores(t *testing.T) {
	withFeed(t, feed.Files{}, map[string]string{
		".headgateignore": "/out\n", "a.yaml": document("a", "1m"), "out/b.yaml": document("b", "1m"), "out/bad.yaml": "a: [",
		"chart/templates/deploy.yaml": document("{{ .name }}", "soon") + document("x", "soon") + "---\nkind: Deployment\nmetadata:\n  {{- with .Values.labels }}\n",
	}, func(r *fixture) {
		const template = "chart/templates/deploy.yaml: is a Helm template, which is not read: leave it out in .headgateignore"
		r.want("a=1m0s")
		if len(r.warnings) != 1 || r.warnings[0] != template || len(r.last.Invalid) > 0 {
			r.Errorf("warnings %q, %+v", r.warnings, r.last.Invalid)
		}
		r.write(".headgateignore", "/a.yaml\n")
		r.pollChanges()
		r.want("b=1m0s", "bad.yaml")
		r.write(".headgateignore", "[\n"+strings.Repeat("x", 1<<16))
		r.pollChanges()
		r.want("b=1m0s", ".headgateignore:2: ", "bad.yaml")
		r.must(os.Remove(filepath.Join(r.dir, ".headgateignore")))
		r.pollChanges()
		r.want("a=1m0s b=1m0s", "bad.yaml")
	})
}

func TestFollowReusesUnchangedObjects(t *testing.T) {
	withFeed(t, feed.Files{}, map[string]string{"a.yaml": document("a", "1m"), "b.yaml": document("b", "1m")}, func(r *fixture) {
		before := r.last.Objects
		r.pollChanges()
		testenv.Equal(r, r.setCalls, 1, "times that it was handed over")
		r.write("b.yaml", document("b", "2m"))
		r.pollChanges()
		r.want("a=1m0s b=2m0s")
		if r.last.Objects[0] != before[0] || r.last.Objects[1] == before[1] || r.setCalls != 2 {
			r.Errorf("the object of a file that rests is another one; handed over %d times", r.setCalls)
		}
		r.write("b.yaml", document("b", "2m")) // a new modification time, but the same content
		r.pollChanges()
		testenv.Equal(r, r.setCalls, 2, "times that it was handed over")
	})
}

func TestFollowDefects(t *testing.T) {
	withFeed(t, feed.Files{Paths: []string{"dir", "file.yaml"}}, map[string]string{
		"dir/a.yaml": document("a", "1m"), "dir/bad.yaml": document("b", "soon") + document("c", "1m"), "file.yaml": document("d", "1m"),
	}, func(r *fixture) {
		const bad = "bad.yaml:8: document 1: GitRepository/apps/b: spec.interval: "
		r.want("a=1m0s c=1m0s d=1m0s", bad)
		if in := r.last.Invalid; len(in) != 1 || source.ReferenceTo(in[0].Object).String() != "GitRepository/apps/b" || !strings.Contains(in[0].Err.Error(), bad) {
			r.Errorf("%+v", in)
		}
		r.pollChanges()
		r.must(os.Rename(filepath.Join(r.dir, "file.yaml"), filepath.Join(r.dir, "away")))
		r.pollChanges()
		r.want("a=1m0s c=1m0s", bad, "file.yaml: ")
		r.must(os.Rename(filepath.Join(r.dir, "away"), filepath.Join(r.dir, "file.yaml")))
		r.must(os.Rename(filepath.Join(r.dir, "dir"), filepath.Join(r.dir, "away")))
		r.pollChanges()
		r.want("d=1m0s", "dir: ")
		r.must(os.Rename(filepath.Join(r.dir, "away"), filepath.Join(r.dir, "dir")))
		r.must(os.Symlink("loop.yaml", filepath.Join(r.dir, "dir", "loop.yaml")))
		r.pollChanges()
		r.want("a=1m0s c=1m0s d=1m0s", bad, "loop.yaml: ")
		r.must(errors.Join(os.Remove(filepath.Join(r.dir, "dir", "loop.yaml")), os.Truncate(filepath.Join(r.dir, "dir", "bad.yaml"), 65<<20)))
		r.pollChanges()
		r.want("a=1m0s d=1m0s", "bad.yaml: larger than 64 MiB")
		r.write("dir/bad.yaml", document("b", "1m"))
		r.pollChanges()
		r.want("a=1m0s b=1m0s d=1m0s")
		if len(r.warnings) != 6 { // the first defect is reported again after it was gone in between
			r.Errorf("told %q", r.warnings)
		}
	})
}

// A directory that is empty at first is reported as such: the server becomes ready and deletes removed objects.
func TestFollowEmpty(t *testing.T) {
	withFeed(t, feed.Files{}, nil, func(r *fixture) {
		if r.pollChanges(); r.setCalls != 1 {
			r.Errorf("told %d times", r.setCalls)
		}
		r.write("a.yaml", document("a", "1m"))
		r.pollChanges()
		r.want("a=1m0s")
	})
}

func TestFollowWarnsOnce(t *testing.T) {
	old := strings.Replace(document("a", "1m"), "spec:", "spec:\n  gitImplementation: go-git", 1)
	old = strings.Replace(old, "/v1\n", "/v1beta2\n", 1)
	withFeed(t, feed.Files{}, map[string]string{"a.yaml": old, "b.yaml": "kind: ["}, func(r *fixture) {
		r.write("c.yaml", document("c", "1m"))
		r.pollChanges()
		r.write("c.yaml", document("c", "2m"))
		r.pollChanges()
		if len(r.warnings) != 3 || r.setCalls != 3 {
			r.Errorf("told %q with %d changes", r.warnings, r.setCalls)
		}
		r.must(os.Remove(filepath.Join(r.dir, "b.yaml")))
		r.pollChanges()
		r.write("b.yaml", "kind: [")
		r.pollChanges()
		if len(r.warnings) != 4 || r.warnings[0] != r.warnings[3] {
			r.Errorf("told %q", r.warnings)
		}
	})
}

func TestFollowDuplicates(t *testing.T) {
	withFeed(t, feed.Files{}, map[string]string{
		"a.yaml": document("x", "1m") + secret("s", "first"), "b.yaml": document("w", "1m") + document("x", "2m") + secret("s", "second"),
	}, func(r *fixture) {
		r.want("x=1m0s w=1m0s", "b.yaml:11: document 2: GitRepository/apps/x: is in "+filepath.Join(r.dir, "a.yaml")+":2 (document 1) already", "Secret/apps/s: is in ")
		r.wantSecret("s", "first")
		r.must(os.Remove(filepath.Join(r.dir, "a.yaml")))
		r.pollChanges()
		r.want("w=1m0s x=2m0s")
		r.wantSecret("s", "second")
	})
	withFeed(t, feed.Files{Paths: []string{".", "a.yaml"}}, map[string]string{"a.yaml": document("x", "1m")}, func(r *fixture) {
		r.want("x=1m0s") // two paths contain the same file
	})
}

// wantSecret expects the value of a Secret, "" for none.
func (r *fixture) wantSecret(name, value string) {
	r.Helper()
	s, err := r.last.Secrets.Secret(r.Context(), "apps", name)
	if got := string(s.Data["key"]); got != value || (err == nil) != (value != "") {
		r.Errorf("Secret %s is %q, %v; want %q", name, got, err, value)
	}
}

func TestFollowSecrets(t *testing.T) {
	more := new(source.Set)
	must(t, more.Decode("more", strings.NewReader(secret("doc", "more")+secret("file", "more")+secret("more", "more"))))
	account := "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: robot, namespace: apps}\nimagePullSecrets: [{name: file}]\n"
	withFeed(t, feed.Files{Paths: []string{"docs"}, Secrets: "keys", More: more}, map[string]string{
		"docs/a.yaml": secret("doc", "document") + account, "keys/doc/key": "file", "keys/apps/file/key": "file",
	}, func(r *fixture) {
		r.wantSecret("doc", "document")
		r.wantSecret("file", "file")
		r.wantSecret("more", "more")
		r.wantSecret("none", "")
		if list, err := r.last.Secrets.PullSecrets(r.Context(), "apps", "robot"); err != nil || string(list[0].Data["key"]) != "file" {
			r.Errorf("pull secrets %v, %v", list, err)
		}
		for i, change := range []func(){
			func() { r.write("keys/apps/file/key", "mile") },
			func() { r.write("keys/new/key", "new") },
			func() { r.must(os.RemoveAll(filepath.Join(r.dir, "keys", "new"))) },
			func() { r.write("docs/a.yaml", secret("doc", "other")) },
			func() { r.must(os.Rename(filepath.Join(r.dir, "keys"), filepath.Join(r.dir, "away"))) },
			func() { r.must(os.Rename(filepath.Join(r.dir, "away"), filepath.Join(r.dir, "keys"))) },
		} {
			before := r.setCalls
			change()
			r.pollChanges()
			testenv.Equal(r, r.setCalls, before+1, "change %d was handed over %d times", i, r.setCalls-before)
			testenv.Equal(r, len(r.last.Defects) == 1, i == 4, "change %d: defects %v", i, r.last.Defects)
		}
		r.wantSecret("file", "mile")
		r.wantSecret("doc", "other")
		r.pollChanges()
	})
}

// Kubernetes replaces a mount as a whole: its files are links through ..data.
func TestFollowMounts(t *testing.T) {
	withFeed(t, feed.Files{Paths: []string{"mount"}, Secrets: "keys"}, map[string]string{
		"mount/..1/a.yaml": document("a", "1m"), "mount/..2/a.yaml": document("a", "2m"), "mount/..2/b.yaml": document("b", "2m"),
		"keys/s/..1/key": "one", "keys/s/..2/key": "two",
	}, func(r *fixture) {
		swap := func(to string) {
			for _, dir := range []string{"mount", "keys/s"} {
				dir = filepath.Join(r.dir, dir)
				r.must(os.Symlink(to, filepath.Join(dir, "..tmp")))
				r.must(os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
			}
		}
		swap("..1")
		r.must(os.Symlink("..data/a.yaml", filepath.Join(r.dir, "mount", "a.yaml")))
		r.must(os.Symlink("..data/key", filepath.Join(r.dir, "keys", "s", "key")))
		r.pollChanges()
		r.want("a=1m0s")
		r.wantSecret("s", "one")
		swap("..2")
		r.must(os.Symlink("..data/b.yaml", filepath.Join(r.dir, "mount", "b.yaml")))
		r.pollChanges()
		r.want("a=2m0s b=2m0s")
		r.wantSecret("s", "two")
	})
}

// A file that is being replaced never counts as defective or missing.
func TestFollowHalfWritten(t *testing.T) {
	withFeed(t, feed.Files{}, map[string]string{"a.yaml": document("a", "1m"), "b.yaml": document("b", "1m")}, func(r *fixture) {
		r.pollChanges()
		text := document("a", "2m")
		for _, half := range []string{"", text[:len(text)/2], text[:len(text)-30]} {
			r.write("a.yaml", half)
			r.poll()
			r.want("a=1m0s b=1m0s")
			r.write("a.yaml", text)
			r.pollChanges()
			r.want("a=2m0s b=1m0s")
			r.write("a.yaml", document("a", "1m"))
			r.pollChanges()
		}
		r.must(os.Remove(filepath.Join(r.dir, "a.yaml")))
		r.poll()
		r.want("a=1m0s b=1m0s")
		r.write("a.yaml", text)
		r.pollChanges()
		r.want("a=2m0s b=1m0s")
		r.must(os.Remove(filepath.Join(r.dir, "a.yaml")))
		r.pollChanges()
		r.want("b=1m0s")
		testenv.Equal(r, len(r.warnings), 0, "told %q", r.warnings)
	})
}

func TestFollowRequiresPaths(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, f := range []feed.Files{
		{}, {Paths: []string{filepath.Join(dir, "none")}}, {Paths: []string{dir, filepath.Join(dir, "none")}},
		{Paths: []string{dir}, Secrets: filepath.Join(dir, "none")}, {Paths: []string{dir}, Secrets: file}, {Paths: []string{os.DevNull}},
	} {
		err := f.Follow(t.Context(), func(serve.Desired) { t.Error("handed something over") })
		if err == nil || strings.Contains(err.Error(), "none") != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

var must = testenv.Must
