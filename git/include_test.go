package git_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// includeCases are includes and the trees that they result in.
var includeCases = []struct {
	name     string
	includes []string
	ignore   string
	want     string
}{
	{"default path", []string{"lib:charts"}, "", "app.yaml=own base/a.yaml=own~a base/deep/x.yaml=own~x lib/run.sh=#! lib/web/Chart.yaml=web"},
	{"merged into folders that are there", []string{"lib:base:base"}, "", "app.yaml=own base/a.yaml=lib~a base/b.yaml=lib~b base/deep/x.yaml=own~x base/deep/y.yaml=lib~y"},
	{"the later wins", []string{"lib:base:base", "other:base:base"}, "", "app.yaml=own base/a.yaml=other~a base/b.yaml=lib~b base/c.yaml=other~c base/deep/x.yaml=own~x base/deep/y.yaml=lib~y"},
	{"the later wins, the other way round", []string{"other:base:base", "lib:base:base"}, "", "app.yaml=own base/a.yaml=lib~a base/b.yaml=lib~b base/c.yaml=other~c base/deep/x.yaml=own~x base/deep/y.yaml=lib~y"},
	{"at the root", []string{"other:.:."}, "", "app.yaml=own base/a.yaml=other~a base/c.yaml=other~c base/deep/x.yaml=own~x"},
	{"at the root, with slashes", []string{"other:/:/"}, "", "app.yaml=own base/a.yaml=other~a base/c.yaml=other~c base/deep/x.yaml=own~x"},
	{"new parents", []string{"lib:charts/web:vendor/a/b"}, "", "app.yaml=own base/a.yaml=own~a base/deep/x.yaml=own~x vendor/a/b/Chart.yaml=web"},
	{"in what was included before", []string{"lib:charts:c", "Bucket/data:.:c/web"}, "", "app.yaml=own base/a.yaml=own~a base/deep/x.yaml=own~x c/run.sh=#! c/web/Chart.yaml=web c/web/data.csv=1,2"},
	{"ignore files of what is included", []string{"strict::s"}, "", "app.yaml=own base/a.yaml=own~a base/deep/x.yaml=own~x logo.png=png s/.sourceignore=*.tmp s/keep.yaml=k s/sub/.sourceignore=*.log"},
	{"spec.ignore rules what is included", []string{"strict::s"}, "!drop.tmp\n/s/sub\n.sourceignore\n*.png", "app.yaml=own base/a.yaml=own~a base/deep/x.yaml=own~x s/drop.tmp=d s/keep.yaml=k"},
	{"all of it ignored", []string{"lib"}, "/lib", "app.yaml=own base/a.yaml=own~a base/deep/x.yaml=own~x logo.png=png"},
	{"other kinds", []string{"OCIRepository/image", "PkgChart/chart:web:charts/web", "Bucket/data::base"}, "",
		"app.yaml=own base/a.yaml=own~a base/data.csv=1,2 base/deep/x.yaml=own~x charts/web/Chart.yaml=name:~web charts/web/templates/x.yaml=x image/manifest.yaml=m"},
}

func TestInclude(t *testing.T) {
	repo := testenv.NewRepo(t)
	commit := repo.Commit(testenv.Commit{Branch: "main", Files: includingTree()})
	dir := t.TempDir()
	must(t, os.CopyFS(dir, includingTree()))
	p := newFilledSources(t)
	for _, row := range includeCases {
		var archives [][]byte
		for at, path := range map[string]string{"main@sha1:" + commit: repo.Dir, "local@sha256:": dir} {
			env := p.env()
			env.Local = map[string]string{atURL: path}
			g := including(atURL, row.includes...)
			if row.ignore != "" {
				g.Spec.Ignore = &row.ignore
			}
			p.opened.Store(0)
			rev, data, report := fetch(t, g, env)
			archives = append(archives, data)
			want := strings.ReplaceAll(strings.ReplaceAll(row.want, " ", "\n"), "~", " ")
			testenv.Equal(t, lines(contents(t, data)), want, "%s: content", row.name)
			if !strings.HasPrefix(rev.ID, at) || len(rev.Inputs) != len(row.includes) || int(p.opened.Load()) != len(row.includes) || report.Files == 0 {
				t.Errorf("%s: revision %s with %d inputs, %d artifacts opened", row.name, rev.ID, len(rev.Inputs), p.opened.Load())
			}
		}
		if !bytes.Equal(archives[0], archives[1]) {
			t.Errorf("%s: a repository and a directory make different archives", row.name)
		}
	}
}

// Includes that cannot work fail with these errors.
func TestIncludeErrors(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: includingTree()})
	dir := t.TempDir()
	must(t, os.CopyFS(dir, includingTree()))
	p := newFilledSources(t)
	for _, row := range []struct {
		name, include string
		step          source.Step
		reason        string
		is            error
		text          string
	}{
		{"missing", "none", source.StepInclude, "NotFound", source.ErrWaiting, "GitRepository/default/none: no such object"},
		{"itself", "app", source.StepInclude, "IncludeCycle", nil, "app"},
		{"itself, by a detour", "circle", source.StepInclude, "IncludeCycle", nil, "circle"},
		{"missing as that kind", "Bucket/lib", source.StepInclude, "NotFound", fs.ErrNotExist, "Bucket/default/lib: no such object"},
		{"no artifact", "empty", source.StepInclude, "NoArtifact", source.ErrWaiting, "GitRepository/default/empty has no artifact yet"},
		{"gone", "gone", source.StepInclude, "NoArtifact", source.ErrWaiting, "spec.include[0]: GitRepository/default/gone: waiting for a dependency: the artifact is gone"},
		{"damaged", "damaged", source.StepStore, "CopyFailure", nil, "spec.include[0]: GitRepository/default/damaged: "},
		{"no digest", "unchecked", source.StepStore, "CopyFailure", nil, "no digest"},
		{"an index", "PkgRepository/index", source.StepStore, "CopyFailure", artifact.ErrFormat, "only sources whose artifact is an archive of files can be included"},
		{"no such fromPath", "lib:nowhere", source.StepStore, "CopyFailure", nil, `fromPath "nowhere" does not exist in revision main@sha1:lib`},
		{"fromPath is a file", "lib:base/a.yaml", source.StepStore, "CopyFailure", nil, "is a file"},
		{"fromPath below a file", "lib:base/a.yaml/x", source.StepStore, "CopyFailure", nil, "does not exist"},
		{"folder on a file", "lib:base:app.yaml", source.StepStore, "CopyFailure", fs.ErrExist, "app.yaml"},
		{"folder below a file", "lib:base:app.yaml/x/y", source.StepStore, "CopyFailure", fs.ErrExist, "app.yaml"},
		{"file on a folder", "blocks:.:.", source.StepStore, "CopyFailure", fs.ErrExist, "base"},
		{"folder on a file, deeper", "folder:.:.", source.StepStore, "CopyFailure", fs.ErrExist, "app.yaml"},
		{"out of the artifact", "lib:../x", source.StepStore, "IllegalPath", source.ErrInvalid, "spec.include[0]: fromPath must not lead out of the source"},
		{"out of the tree", "lib:.:base/../../x", source.StepStore, "IllegalPath", source.ErrInvalid, "spec.include[0]: toPath must not lead out of the source"},
		{"backslash", `lib:.:base\x`, source.StepStore, "IllegalPath", source.ErrInvalid, "toPath must use '/'"},
		{"control character", "lib:.:base\x1b", source.StepStore, "IllegalPath", source.ErrInvalid, "toPath must not hold control characters"},
		{".git", "lib:.:.git/hooks", source.StepStore, "IllegalPath", source.ErrInvalid, "take for .git"},
		{".git of another spelling", "lib:.:a/.GIT ./x", source.StepStore, "IllegalPath", source.ErrInvalid, "take for .git"},
		{".git by its short name", "lib:.:git~1", source.StepStore, "IllegalPath", source.ErrInvalid, "take for .git"},
		{"a name that leads out", "../../x", source.StepStore, "IllegalPath", source.ErrInvalid, "toPath must not lead out"},
	} {
		for _, path := range []string{repo.Dir, dir} {
			env := p.env()
			env.Local = map[string]string{atURL: path}
			_, _, _, err := try(t.Context(), including(atURL, row.include), env)
			wantStep(t, err, row.reason, row.text)
			if step, ok := errors.AsType[*source.StepError](err); ok && step.Step != row.step || row.is != nil && !errors.Is(err, row.is) {
				t.Errorf("%s: %v (%+v) is no %v", row.name, err, step, row.is)
			}
		}
	}
	env := source.Env{Local: map[string]string{atURL: repo.Dir}}
	if _, _, _, err := try(t.Context(), including(atURL, "lib"), env); !errors.Is(err, source.ErrWaiting) {
		t.Errorf("no sources at all: %v", err)
	}
	var mismatch *artifact.DigestError
	env.Sources = p
	if _, _, _, err := try(t.Context(), including(atURL, "damaged"), env); !errors.As(err, &mismatch) && !errors.Is(err, artifact.ErrFormat) {
		t.Errorf("damaged: %v", err)
	}
}

// An includedSources holds sources that can be included, with their artifacts in a
// store.
type includedSources struct {
	t       *testing.T
	dir     string
	objects []source.Object
	store   *artifact.Store
	opened  atomic.Int64 // how often an artifact was opened
	before  func()       // is called before an artifact is read
}

func newIncludedSources(t *testing.T) *includedSources {
	p := &includedSources{t: t, dir: t.TempDir()}
	var err error
	if p.store, err = artifact.OpenStore(artifact.StoreConfig{Dir: p.dir}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.store.Close() })
	return p
}

// env returns an environment with the sources of p.
func (p *includedSources) env() source.Env { return source.Env{Sources: p} }

// includingRepository returns sources to include, and an environment that has them
// and a repository at atURL.
func includingRepository(t *testing.T) (*includedSources, source.Env) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: includingTree()})
	p := newIncludedSources(t)
	env := p.env()
	env.Local = map[string]string{atURL: repo.Dir}
	return p, env
}

func (p *includedSources) inventory() *source.Inventory {
	return &source.Inventory{Objects: p.objects, Store: p.store, Client: &artifact.Client{Attempts: 1}}
}

func (p *includedSources) Source(ctx context.Context, ref source.Reference) (source.Object, error) {
	return p.inventory().Source(ctx, ref)
}

func (p *includedSources) List(ctx context.Context, kind, namespace string) ([]source.Object, error) {
	return p.inventory().List(ctx, kind, namespace)
}

func (p *includedSources) Open(ctx context.Context, a artifact.Artifact) (io.ReadCloser, error) {
	if p.opened.Add(1); p.before != nil {
		p.before()
	}
	return p.inventory().Open(ctx, a)
}

// put stores the output of write as the artifact of obj and names obj.
func (p *includedSources) put(obj source.Object, name string, write func(io.Writer) error) {
	p.t.Helper()
	obj.Head().Metadata.Name = name
	source.Default(obj)
	if write != nil {
		dir, err := source.Address(obj)
		must(p.t, err)
		a, err := p.store.Put(p.t.Context(), dir, name+".tar.gz", write)
		must(p.t, err)
		a.Revision = "main@sha1:" + name
		obj.Common().Artifact = &a
	}
	p.objects = append(p.objects, obj)
}

// tree stores a tree as the artifact of a GitRepository.
func (p *includedSources) tree(name string, tree fstest.MapFS) {
	p.t.Helper()
	p.put(new(source.GitRepository), name, pack(tree))
}

func pack(tree fstest.MapFS) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := artifact.Pack(context.Background(), w, tree)
		return err
	}
}

// including returns an object at the branch main that includes artifacts, written
// KIND/NAME:FROM:TO.
func including(url string, includes ...string) *source.GitRepository {
	g := object(url, source.GitRepositoryRef{Branch: "main"})
	for _, text := range includes {
		part := strings.Split(text+"::", ":")
		i := source.GitRepositoryInclude{FromPath: part[1], ToPath: part[2]}
		i.Repository.Name = part[0]
		if kind, name, found := strings.Cut(part[0], "/"); found {
			i.Repository.Kind, i.Repository.Name = kind, name
		}
		g.Spec.Include = append(g.Spec.Include, i)
	}
	return g
}

// atURL is the URL that local repositories and directories replace.
const atURL = "https://git.example.org/app"

// includingTree returns the tree of the repository that includes others.
func includingTree() fstest.MapFS {
	return files("app.yaml", "own", "base/a.yaml", "own a", "base/deep/x.yaml", "own x", "logo.png", "png")
}

// includedTree returns a tree that others include.
func includedTree() fstest.MapFS {
	tree := files("base/a.yaml", "lib a", "base/b.yaml", "lib b", "charts/web/Chart.yaml", "web", "docs/d.md", "d", "base/deep/y.yaml", "lib y")
	tree["charts/run.sh"] = &fstest.MapFile{Data: []byte("#!"), Mode: 0o755}
	return tree
}

// newFilledSources returns an includedSources with everything that the tests include.
func newFilledSources(t *testing.T) *includedSources {
	p := newIncludedSources(t)
	p.tree("lib", includedTree())
	p.tree("other", files("base/a.yaml", "other a", "base/c.yaml", "other c"))
	p.tree("strict", files("keep.yaml", "k", "drop.tmp", "d", "sub/drop.log", "l", ".sourceignore", "*.tmp\n", "sub/.sourceignore", "*.log\n"))
	p.tree("blocks", files("base", "a file"))
	p.tree("folder", files("app.yaml/x", "a folder"))
	p.put(new(source.Bucket), "data", pack(files("data.csv", "1,2")))
	p.put(new(source.OCIRepository), "image", pack(files("manifest.yaml", "m")))
	p.put(new(source.PkgChart), "chart", tgz(map[string]string{"web/Chart.yaml": "name: web", "web/templates/x.yaml": "x"}))
	p.put(new(source.PkgRepository), "index", func(w io.Writer) error {
		_, err := io.WriteString(w, "apiVersion: v1\nentries: {}\n"+strings.Repeat("# index\n", 200))
		return err
	})
	p.put(including(atURL, "app"), "app", pack(files("x", "x")))
	p.put(including(atURL, "app"), "circle", pack(files("x", "x")))
	p.put(new(source.GitRepository), "empty", nil)
	p.put(new(source.GitRepository), "damaged", pack(files("x", "x")))
	p.put(new(source.GitRepository), "gone", pack(files("y", "y")))
	p.put(new(source.GitRepository), "unchecked", pack(files("z", "z")))
	for _, obj := range p.objects {
		a := obj.Artifact()
		switch name := filepath.Join(p.dir, addressOf(a)); obj.Head().Metadata.Name {
		case "damaged":
			data, err := os.ReadFile(name)
			must(t, err)
			data[len(data)/2] ^= 1
			must(t, os.WriteFile(name, data, 0o600))
		case "gone":
			must(t, os.Remove(name))
		case "unchecked":
			a.Digest = ""
		}
	}
	return p
}

func addressOf(a *artifact.Artifact) string {
	if a == nil {
		return ""
	}
	return filepath.FromSlash(a.Path)
}

// tgz writes an archive as other programs do, with unchanged names.
func tgz(names map[string]string) func(io.Writer) error {
	return func(w io.Writer) error {
		zw := gzip.NewWriter(w)
		tw := tar.NewWriter(zw)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(names[name])), Typeflag: tar.TypeReg}
			if target, link := strings.CutPrefix(names[name], "-> "); link {
				h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, target, 0
			}
			if err := tw.WriteHeader(h); err != nil {
				return err
			}
			if h.Size > 0 {
				if _, err := io.WriteString(tw, names[name]); err != nil {
					return err
				}
			}
		}
		return errors.Join(tw.Close(), zw.Close())
	}
}

// lines returns the files of an archive, one per line.
func lines(m map[string]string) string {
	var all []string
	for name, text := range m {
		all = append(all, name+"="+strings.TrimSpace(text))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// Files of a hostile artifact stay below the directory where it is mounted.
func TestIncludeHostileArtifact(t *testing.T) {
	_, env := includingRepository(t)
	for _, name := range []string{"../up", "a/../../up", "/etc/passwd", `a\b`, "..", "a/.."} {
		p := newIncludedSources(t)
		p.put(new(source.ExternalArtifact), "evil", tgz(map[string]string{name: "evil", "good": "good"}))
		env.Sources = p
		_, data, _, err := try(t.Context(), including(atURL, "ExternalArtifact/evil"), env)
		if err != nil {
			wantStep(t, err, "CopyFailure", "")
			continue
		}
		for out := range contents(t, data) {
			if strings.Contains(out, "up") || strings.Contains(out, "passwd") {
				t.Errorf("%q came out as %q", name, out)
			}
		}
	}
	p := newIncludedSources(t)
	p.put(new(source.ExternalArtifact), "evil", tgz(map[string]string{
		"link": "-> /etc", "link/passwd": "mine", ".git/config": "[core]", "sub/.git/hooks/x": "x", "good": "good",
	}))
	env.Sources = p
	_, data, _ := fetch(t, including(atURL, "ExternalArtifact/evil:.:."), env)
	testenv.Equal(t, slices.Sorted(maps.Keys(contents(t, data))), []string{"app.yaml", "base/a.yaml", "base/deep/x.yaml", "good", "link/passwd"}, "content")
}

// An artifact that is included several times is opened once, but counts each time
// towards the limits, and the whole artifact counts, not only its mounted part.
func TestIncludeLimits(t *testing.T) {
	p, env := includingRepository(t)
	p.tree("big", files("x", strings.Repeat("x", 100_000), "y/z", ""))
	p.tree("bigger", files("x", strings.Repeat("y", 100_000), "y/z", ""))
	twice, parts := including(atURL, "big::a", "big:y:b", "big::c"), including(atURL, "big:y:a", "bigger:y:b")
	_, data, _ := fetch(t, twice, env)
	if got := contents(t, data); p.opened.Load() != 1 || len(got["a/x"]) != 100_000 || len(got["c/x"]) != 100_000 {
		t.Errorf("opened %d times, content %d files", p.opened.Load(), len(got))
	}
	for _, row := range []struct {
		g      *source.GitRepository
		limits artifact.Limits
		want   string
	}{
		{twice, artifact.Limits{Bytes: 150_000}, "all includes together hold more than 150000 bytes"},
		{twice, artifact.Limits{Entries: 9}, "all includes together hold more than 9 entries"},
		{twice, artifact.Limits{FileBytes: 50_000}, "50000 bytes"},
		{twice, artifact.Limits{Bytes: 50_000}, "50000 bytes"},
		{twice, artifact.Limits{Bytes: -1, Entries: -1, FileBytes: -1, Ratio: -1}, ""},
		{parts, artifact.Limits{Bytes: 150_000}, "all includes together hold more than 150000 bytes"},
		{parts, artifact.Limits{Entries: 7}, "all includes together hold more than 7 entries"},
		{parts, artifact.Limits{Bytes: 400_000, Entries: 20}, ""},
	} {
		env.Limits = row.limits
		if _, _, _, err := try(t.Context(), row.g, env); (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%+v: %v, want %q", row.limits, err, row.want)
		}
	}
}

// Open refuses a revision that was resolved for another list of includes, and stops
// reading an artifact when the context ends.
func TestIncludeOpen(t *testing.T) {
	p, env := includingRepository(t)
	p.tree("lib", includedTree())
	g := including(atURL, "lib")
	rev, _, err := git.New(g, env).Resolve(t.Context(), nil)
	must(t, err)
	write := func(ctx context.Context, g *source.GitRepository) error {
		c, err := git.New(g, env).Open(ctx, rev)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.WriteTo(ctx, io.Discard)
		return err
	}
	if err := write(t.Context(), including(atURL, "lib", "other")); err == nil || !strings.Contains(err.Error(), "1 inputs, spec.include names 2") {
		t.Errorf("another list: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := errors.New("ended")
	p.before = func() { cancel(ended) }
	if err := write(ctx, g); !errors.Is(err, ended) {
		t.Errorf("ended while an artifact was read: %v", err)
	}
}

// A changed include gives a new artifact of the same revision, which is announced,
// and the status lists the included artifacts.
func TestIncludeChange(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: includingTree()})
	p := newIncludedSources(t)
	ledger := source.Ledger{Dir: t.TempDir()}
	var events []string
	r := source.Reconciler{Store: p.store, Load: ledger.Load, Save: ledger.Save,
		Emit: func(e source.Event) { events = append(events, e.Reason) }}
	run := func(sources source.Sources) (*source.GitRepository, source.Result) {
		events = nil
		g := including(atURL, "lib:base:base")
		result, _ := r.Reconcile(t.Context(), g, git.New(g, source.Env{Sources: sources, Local: map[string]string{atURL: repo.Dir}}))
		return g, result
	}
	p.tree("lib", files("base/a.yaml", "one"))
	before, result := run(p)
	included := before.Status.IncludedArtifacts
	if result.Outcome != source.Stored || len(included) != 1 || included[0].Digest != p.objects[0].Artifact().Digest || len(before.Status.ObservedInclude) != 1 {
		t.Fatalf("first: %+v, status %+v", result, before.Status)
	}

	p.objects = nil
	p.tree("lib", files("base/a.yaml", "two"))
	store := p.store
	p.store, _ = artifact.OpenStore(artifact.StoreConfig{Dir: t.TempDir()})
	g, result := run(p) // the artifact is not readable
	p.store.Close()
	p.store = store
	if c := g.Common().Condition(source.ArtifactOutdatedCondition); result.Outcome != source.Waiting || c.Reason != "IncludeChange" || g.Artifact().Digest != before.Artifact().Digest {
		t.Errorf("broken: %+v, condition %+v", result, c)
	}

	after, result := run(p)
	if result.Outcome != source.Stored || !result.Changed || !slices.Contains(events, "NewArtifact") {
		t.Errorf("changed: %+v, events %v", result, events)
	}
	if want := "changed: spec.include[0] (GitRepository/default/lib: main@sha1:lib with digest " + included[0].Digest + " → "; !strings.HasPrefix(result.Why, want) {
		t.Errorf("changed because %q", result.Why)
	}
	if a, b := after.Artifact(), before.Artifact(); a.Revision != b.Revision || a.Digest == b.Digest || a.Path == b.Path {
		t.Errorf("artifact %+v, before %+v", a, b)
	}
	if _, result := run(p); result.Outcome != source.Unchanged {
		t.Errorf("unchanged: %+v", result)
	}
}

// A partial fetch also detects files and directories that cannot be merged.
func TestIncludeInPartialFetch(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: includingTree()})
	p := newFilledSources(t)
	url, env := testenv.ServeGit(t, testenv.GitConfig{}, repo).Repo(), p.env()
	g := sparse(url, "base")
	g.Spec.Include = including(url, "lib:base:base", "strict").Spec.Include
	_, data, _ := fetch(t, g, env)
	want := "base/a.yaml=lib a\nbase/b.yaml=lib b\nbase/deep/x.yaml=own x\nbase/deep/y.yaml=lib y\nstrict/.sourceignore=*.tmp\nstrict/keep.yaml=k\nstrict/sub/.sourceignore=*.log"
	testenv.Equal(t, lines(contents(t, data)), want, "content")
	for _, at := range []string{"base/a.yaml", "base/a.yaml/below"} { // the file is not fetched yet
		g.Spec.Include = including(url, "lib::"+at).Spec.Include
		_, _, _, err := try(t.Context(), g, env)
		if wantStep(t, err, "CopyFailure", "base/a.yaml"); !errors.Is(err, fs.ErrExist) {
			t.Errorf("at %s: %v", at, err)
		}
	}
}
