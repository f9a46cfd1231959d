package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate"
	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/s3"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/lock"
)

// upstreams are servers of all kinds and the objects fetched from them.
type upstreams struct {
	t        *testing.T
	git      *testenv.GitServer
	registry *testenv.Registry
	charts   *testenv.Charts
	s3       *testenv.Store

	documents map[string]string // by KIND/NAME
	move      map[string]func() // publishes new content at the upstream of an object
	lose      map[string]func() // removes the locked content of an object
}

// startUpstreams starts the servers with objects whose pins are independent: each object has its
// own upstream on the shared servers.
func startUpstreams(t *testing.T) *upstreams {
	u := &upstreams{t: t, registry: testenv.StartRegistry(t, testenv.RegistryConfig{}), charts: testenv.StartCharts(t, testenv.ChartsConfig{}),
		s3: testenv.StartS3(t, testenv.StoreConfig{}), documents: map[string]string{}, move: map[string]func(){}, lose: map[string]func(){}}
	repos := map[string]*testenv.Repo{}
	repo := func(name string, files fstest.MapFS) *testenv.Repo {
		r := testenv.NewRepo(t)
		repos[name+".git"] = r
		r.Commit(testenv.Commit{Branch: "master", Message: "first", Files: files})
		return r
	}
	rewrite := func(r *testenv.Repo) func() {
		return func() {
			r.Git("update-ref", "-d", "refs/heads/master")
			for ref := range strings.FieldsSeq(r.Git("for-each-ref", "--format=%(refname)")) {
				r.Git("update-ref", "-d", ref)
			}
			r.Commit(testenv.Commit{Branch: "master", Message: "another history", Files: files("app.yaml", "other\n")})
			r.Git("prune", "--expire=now")
		}
	}
	branch := repo("branch", files("app.yaml", "one\n", "values.yaml", "size: 1\n"))
	tagged := repo("tagged", files("app.yaml", "tagged\n"))
	tree := repo("tree", files("charts/app/values.yaml", "size: 0\n", "charts/app/Chart.yaml",
		"apiVersion: v2\nname: app\nversion: 0.1.0\ndependencies:\n- {name: dep, version: ^1, repository: \""+strings.Replace(u.charts.URL(), "://", "://ci:s3cret@", 1)+"\"}\n"))
	tagged.AnnotatedTag("v1.0.0", tagged.ID("master"), "first release")
	u.git = testenv.ServeRepos(t, testenv.GitConfig{}, repos)
	for _, name := range []string{"web", "dep", "valued"} {
		u.charts.Put(testenv.ChartVersion{Name: name, Version: "1.0.0", Files: map[string]string{"prod.yaml": "size: 3\n"}})
	}
	pushed := map[string]string{} // the digest of the first manifest, by path
	push := func(path, tag string, m testenv.Manifest) {
		if d := u.registry.Push(path, tag, m).Digest.String(); pushed[path] == "" {
			pushed[path] = d
		}
	}
	pushLayer := func(path, text string) func() {
		return func() {
			layer := testenv.Blob{MediaType: "application/vnd.oci.image.layer.v1.tar+gzip", Data: testenv.ChartArchive(t, map[string]string{"layer/file": text})}
			push(path, "latest", testenv.Manifest{Layers: []testenv.Blob{layer}})
		}
	}
	for _, path := range []string{"team/copied", "team/extracted"} {
		pushLayer(path, "first\n")()
	}
	pushChart := func(version string) func() {
		return func() {
			data := testenv.ChartArchive(t, map[string]string{"regweb/Chart.yaml": "apiVersion: v2\nname: regweb\nversion: " + version + "\n", "regweb/values.yaml": ""})
			push("charts/regweb", version, testenv.Manifest{Config: &testenv.Blob{MediaType: "application/vnd.cncf.helm.config.v1+json", Data: []byte("{}")},
				Layers: []testenv.Blob{{MediaType: "application/vnd.cncf.helm.chart.content.v1.tar+gzip", Data: data}}})
		}
	}
	pushChart("2.0.0")()
	u.s3.Bucket("assets").Replace(map[string]string{"app/a": "1\n", "app/b": "2\n", ".sourceignore": "*.log\n"})

	add := func(name, kind, spec string, move, lose func()) {
		u.documents[kind+"/"+name] = fmt.Sprintf("apiVersion: source.headgate.dev/v1\nkind: %s\nmetadata: {name: %s}\nspec: {interval: 5m, %s}\n", kind, name, spec)
		u.move[kind+"/"+name], u.lose[kind+"/"+name] = move, lose
	}
	commit := func(r *testenv.Repo) func() {
		return func() {
			r.Commit(testenv.Commit{Branch: "master", Message: "moved on", Files: files("app.yaml", "moved\n")})
		}
	}
	put := func(name, version string) func() {
		return func() { u.charts.Put(testenv.ChartVersion{Name: name, Version: version}) }
	}
	remove := func(name string) func() { return func() { u.charts.RemoveFile(name + "-1.0.0.tgz") } }
	untag := func(path string) func() { return func() { u.registry.Untag(path, pushed[path]) } }
	none := func() {}
	add("branch", "GitRepository", "url: "+u.git.URL+"/branch.git", commit(branch), rewrite(branch))
	add("tagged", "GitRepository", "url: "+u.git.URL+"/tagged.git, ref: {semver: 1.x}, include: [{repository: {name: branch}, toPath: in}]", func() {
		commit(tagged)()
		tagged.AnnotatedTag("v1.1.0", tagged.ID("master"), "second release")
	}, rewrite(tagged))
	add("tree", "GitRepository", "url: "+u.git.URL+"/tree.git", commit(tree), rewrite(tree))
	add("app", "PkgChart", "chart: charts/app, sourceRef: {kind: GitRepository, name: tree}, valuesFiles: [charts/app/values.yaml, source:branch/values.yaml]", put("dep", "1.5.0"), remove("dep"))
	add("copied", "OCIRepository", "insecure: true, url: "+u.registry.URL("team/copied")+", layerSelector: {operation: copy}", pushLayer("team/copied", "second\n"), untag("team/copied"))
	add("extracted", "OCIRepository", "insecure: true, url: "+u.registry.URL("team/extracted"), pushLayer("team/extracted", "second\n"), untag("team/extracted"))
	add("assets", "Bucket", "insecure: true, bucketName: assets, endpoint: "+u.s3.Host, none, func() { u.s3.Bucket("assets").Put("app/a", "overwritten\n") })
	add("charts", "PkgRepository", "url: "+u.charts.URL(), none, nil)
	add("registry", "PkgRepository", "insecure: true, type: oci, url: "+u.registry.URL("charts"), none, nil)
	add("web", "PkgChart", "chart: web, sourceRef: {kind: PkgRepository, name: charts}", put("web", "1.2.0"), remove("web"))
	add("valued", "PkgChart", "chart: valued, sourceRef: {kind: PkgRepository, name: charts}, valuesFiles: [prod.yaml, values.yaml]", put("valued", "2.0.0"), remove("valued"))
	u.documents["ArtifactGenerator/composed"] = `apiVersion: source.extensions.fluxcd.io/v1beta1
kind: ArtifactGenerator
metadata: {name: composed}
spec:
  sources:
  - {alias: git, kind: GitRepository, name: branch}
  - {alias: oci, kind: OCIRepository, name: extracted}
  - {alias: bucket, kind: Bucket, name: assets}
  - {alias: chart, kind: PkgChart, name: web}
  artifacts:
  - name: whole
    copy:
    - {from: "@git/*.yaml", to: "@artifact/"}
    - {from: "@oci/**", to: "@artifact/layer/"}
    - {from: "@bucket/app", to: "@artifact/"}
    - {from: "@chart/**", to: "@artifact/", exclude: [templates]}
    - {from: "@git/values.yaml", to: "@artifact/web/values.yaml", strategy: Merge, optional: true}
  - {name: half, revision: "@git", originRevision: "@oci", copy: [{from: "@git/app.yaml", to: "@artifact/app.yaml"}]}
`
	for _, name := range []string{"ArtifactGenerator/composed", "ExternalArtifact/whole", "ExternalArtifact/half"} {
		u.move[name] = none
	}
	add("regweb", "PkgChart", "chart: regweb, sourceRef: {kind: PkgRepository, name: registry}", pushChart("2.1.0"), untag("charts/regweb"))
	return u
}

func files(parts ...string) fstest.MapFS {
	tree := fstest.MapFS{}
	for i := 0; i < len(parts); i += 2 {
		tree[parts[i]] = &fstest.MapFile{Data: []byte(parts[i+1])}
	}
	return tree
}

// set returns the named objects and the objects that they need.
func (u *upstreams) set(names ...string) *source.Set {
	u.t.Helper()
	set := new(source.Set)
	for again := true; again; {
		again = false
		set = new(source.Set)
		for _, name := range names {
			must(u.t, set.Decode(name, strings.NewReader(u.documents[name])))
		}
		for _, obj := range set.Objects {
			for _, need := range obj.Plan().Needs {
				if name := need.Kind + "/" + need.Name; !slices.Contains(names, name) {
					names, again = append(names, name), true
				}
			}
		}
	}
	return set
}

func (u *upstreams) reset() {
	for _, s := range []interface{ Reset() }{u.git, u.registry, u.charts, u.s3} {
		s.Reset()
	}
}

var s3Origins = headgate.Origins{Buckets: map[string]bucket.Provider{"generic": s3.Connect}}

// fetchLocked fetches a set with Locked, and returns the errors by object; the key "" has the error of
// the whole fetch.
func fetchLocked(ctx context.Context, set *source.Set, o headgate.Options) map[string]error {
	o.Origins, o.Locked = s3Origins, true
	errs := map[string]error{}
	for r, err := range headgate.Fetch(ctx, set, o) {
		switch {
		case r.Object == nil:
			errs[""] = err
		case err != nil:
			errs[source.ReferenceTo(r.Object).String()] = err
		}
	}
	return errs
}

// lockAll locks a set, and returns the lock entries and the contents of the artifacts.
func lockAll(t *testing.T, set *source.Set) (lock.Entries, map[source.Reference]string) {
	t.Helper()
	store, entries := openStore(t), lock.Entries{}
	for r, err := range headgate.Fetch(t.Context(), set, headgate.Options{Origins: s3Origins, Store: store, Lock: lock.Entries{}}) {
		must(t, err)
		entries[source.ReferenceTo(r.Object)] = r.Entry
	}
	text, err := entries.Encode()
	must(t, err)
	if strings.Contains(string(text), "s3cret") {
		t.Errorf("a password is in\n%s", text)
	}
	again, err := lock.Read(strings.NewReader(string(text)))
	must(t, err)
	for ref, entry := range again {
		if !entry.Equal(entries[ref]) {
			t.Errorf("%s reads back as %+v, not %+v", ref, entry, entries[ref])
		}
	}
	return again, contents(t, store, set)
}

// contents returns the contents of the artifacts of a set.
func contents(t *testing.T, store *artifact.Store, set *source.Set) map[source.Reference]string {
	t.Helper()
	all := map[source.Reference]string{}
	for _, obj := range set.Objects {
		if obj.Head().Kind == "PkgRepository" || source.External(obj) || obj.Artifact() == nil {
			continue
		}
		file, err := store.Open(*obj.Artifact())
		must(t, err)
		tree, err := artifact.Read(file, artifact.Limits{})
		must(t, err)
		var text strings.Builder
		must(t, fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				var data []byte
				data, err = fs.ReadFile(tree, name)
				fmt.Fprintf(&text, "%s %q\n", name, data)
			}
			return err
		}))
		all[source.ReferenceTo(obj)] = text.String()
		file.Close()
		tree.Close()
	}
	return all
}

// requireEmpty requires that nothing is stored.
func requireEmpty(t *testing.T, store *artifact.Store) {
	t.Helper()
	for a, err := range store.All() {
		t.Errorf("%s is stored, %v", a.Path, err)
	}
}

// Whatever the upstreams do, a random set is fetched as locked into an empty store. The error names
// a pin that is lost, and then nothing is stored.
func TestLocked(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			u, random := startUpstreams(t), rand.New(rand.NewPCG(seed, 20))
			names := slices.Sorted(maps.Keys(u.documents))
			random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			if seed > 0 { // the first has all objects
				names = names[:3+random.IntN(len(names)-3)]
			}
			set := u.set(names...)
			entries, want := lockAll(t, set)
			for _, obj := range set.Objects {
				u.move[obj.Head().Kind+"/"+obj.Head().Metadata.Name]()
			}
			store, options := openStore(t), headgate.Options{Lock: entries, Parallel: 1 + random.IntN(4)}
			options.Store, options.Ledger = store, &source.Ledger{Dir: t.TempDir()}
			set = u.set(names...)
			if errs := fetchLocked(t.Context(), set, options); len(errs) > 0 {
				t.Fatalf("%v", errs)
			}
			if got := contents(t, store, set); !maps.Equal(got, want) {
				t.Errorf("stored\n%q, want\n%q", got, want)
			}
			u.reset()
			if errs := fetchLocked(t.Context(), u.set(names...), options); len(errs) > 0 {
				t.Errorf("again: %v", errs)
			}
			if n := u.git.Count() + u.registry.Count() + u.charts.Count() + u.s3.Count(); n > 0 {
				t.Errorf("%d requests although all is stored", n)
			}
			for _, obj := range set.Objects {
				lose := u.lose[obj.Head().Kind+"/"+obj.Head().Metadata.Name]
				if lose == nil {
					continue
				}
				lose()
				single := u.set(obj.Head().Kind + "/" + obj.Head().Metadata.Name)
				options.Store, options.Ledger = openStore(t), &source.Ledger{Dir: t.TempDir()}
				errs := fetchLocked(t.Context(), single, options)
				if _, pin := errors.AsType[*source.PinError](errs[source.ReferenceTo(obj).String()]); !pin && !anyPinError(errs) {
					t.Errorf("%s was lost: %v", obj.Head(), errs)
				}
				requireEmpty(t, options.Store)
			}
		})
	}
}

// anyPinError reports whether an object failed because the pin of one of its needs was lost.
func anyPinError(errs map[string]error) bool {
	for _, err := range errs {
		if _, pin := errors.AsType[*source.PinError](err); pin {
			return true
		}
	}
	return false
}

// Locked content is requested by name: Fetch lists no refs, tags or indexes.
func TestLockedRequests(t *testing.T) {
	u := startUpstreams(t)
	for name, want := range map[string]map[testenv.Phase]int{
		"GitRepository/branch":    {testenv.Advertisement: 1, testenv.Pack: 1},
		"OCIRepository/copied":    {testenv.GetManifest: 1, testenv.GetBlob: 1},
		"OCIRepository/extracted": {testenv.GetManifest: 1, testenv.GetBlob: 1},
		"Bucket/assets":           {testenv.ListObjects: 1, testenv.GetObject: 3},
		"PkgChart/web":            {testenv.GetChart: 1},
		"PkgChart/regweb":         {testenv.GetManifest: 1, testenv.GetBlob: 1},
		"PkgChart/app":            {testenv.Advertisement: 2, testenv.Pack: 2, testenv.GetChart: 1},
	} {
		set := u.set(name)
		entries, _ := lockAll(t, set)
		u.reset()
		if errs := fetchLocked(t.Context(), u.set(name), headgate.Options{Lock: entries, Store: openStore(t)}); len(errs) > 0 {
			t.Fatalf("%s: %v", name, errs)
		}
		got := map[testenv.Phase]int{}
		for _, s := range []interface{ Requests() []testenv.Request }{u.git, u.registry, u.charts, u.s3} {
			for _, r := range s.Requests() {
				if r.Phase != testenv.Ping {
					got[r.Phase]++
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// Content that is changed in transit, at any byte, is never stored.
func TestLockedTampering(t *testing.T) {
	u := startUpstreams(t)
	for name, of := range map[string]struct {
		phase testenv.Phase
		spoil func(*testenv.Defect)
	}{
		"GitRepository/branch": {testenv.Pack, func(d *testenv.Defect) { u.git.Break(d) }},
		"OCIRepository/copied": {testenv.GetBlob, func(d *testenv.Defect) { u.registry.Break(d) }},
		"PkgChart/regweb":      {testenv.GetManifest, func(d *testenv.Defect) { u.registry.Break(d) }},
		"PkgChart/web":         {testenv.GetChart, func(d *testenv.Defect) { u.charts.Break(d) }},
		"Bucket/assets":        {testenv.GetObject, func(d *testenv.Defect) { u.s3.Break(d) }},
	} {
		entries, _ := lockAll(t, u.set(name))
		for _, at := range []int64{0, 1, 60, 100, 150} {
			of.spoil(&testenv.Defect{Phase: of.phase, Do: testenv.Flip, After: at})
			store := openStore(t)
			errs := fetchLocked(t.Context(), u.set(name), headgate.Options{Lock: entries, Store: store})
			of.spoil(nil)
			if len(errs) == 0 && at < 2 {
				t.Errorf("%s with another byte at %d was stored", name, at)
			}
			if len(errs) > 0 {
				requireEmpty(t, store)
			}
		}
	}
	// valid, but not the locked content
	entries, _ := lockAll(t, u.set("PkgChart/web", "Bucket/assets"))
	u.charts.Put(testenv.ChartVersion{Name: "web", Version: "1.0.0", Files: map[string]string{"new": "file\n"}})
	store := openStore(t)
	errs := fetchLocked(t.Context(), u.set("PkgChart/web", "Bucket/assets"), headgate.Options{Lock: entries, Store: store})
	if pin, ok := errors.AsType[*source.PinError](errs["PkgChart/default/web"]); !ok || pin.Problem != "different" || !strings.Contains(pin.Error(), "published again") {
		t.Errorf("%v", errs)
	}
	requireEmpty(t, store)
}

// An object that is missing in the lock, or whose spec has changed, is reported before anything is
// requested.
func TestLockedStale(t *testing.T) {
	u := startUpstreams(t)
	entries, _ := lockAll(t, u.set("PkgChart/web"))
	u.documents["PkgChart/web"] = strings.Replace(u.documents["PkgChart/web"], "chart: web", "chart: other", 1)
	u.documents["PkgRepository/charts"] = strings.Replace(u.documents["PkgRepository/charts"], "5m", "6m", 1) // must make no difference
	u.reset()
	err := fetchLocked(t.Context(), u.set("PkgChart/web", "Bucket/assets"), headgate.Options{Lock: entries, Store: openStore(t)})[""]
	for _, want := range []string{"PkgChart/default/web: its spec has changed", "Bucket/default/assets: is not in the lock"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "PkgRepository") || u.charts.Count() > 0 {
		t.Errorf("%v after %d requests", err, u.charts.Count())
	}
}

// Each mismatch between a lock and an object has an error that names it.
func TestLockedErrors(t *testing.T) {
	u := startUpstreams(t)
	entries, _ := lockAll(t, u.set("PkgChart/app", "PkgChart/web"))
	ref := func(kind, name string) source.Reference {
		return source.Reference{Kind: kind, Namespace: "default", Name: name}
	}
	for _, c := range []struct {
		name   string
		change func(e *lock.Entry)
		want   string
	}{
		{"PkgChart/app", func(e *lock.Entry) { e.Dependencies = nil }, `dependency "dep" .* of "app".*: the lock has no version for it`},
		{"PkgChart/app", func(e *lock.Entry) { e.Revision = "9.9.9+1" }, `the revision is 0\.1\.0\+1`},
		{"PkgChart/web", func(e *lock.Entry) { e.Chart = nil }, "the lock does not say which version"},
		{"PkgChart/web", func(e *lock.Entry) { e.Revision = "" }, "has no revision"},
		{"PkgChart/web", func(e *lock.Entry) { e.Chart.URL = "ftp://example.org/x" }, "want http, https or oci"},
		{"GitRepository/tree", func(e *lock.Entry) { e.Revision = "master@sha1:zz" }, "the lock: "},
		{"GitRepository/tree", func(e *lock.Entry) { e.Tag = "zz" }, "the lock: "},
		{"GitRepository/tree", func(e *lock.Entry) { e.Content = "sha256:" + strings.Repeat("0", 64) }, "the content is sha256:"},
	} {
		kind, name, _ := strings.Cut(c.name, "/")
		changed := maps.Clone(entries)
		entry := changed[ref(kind, name)]
		if entry.Chart != nil {
			entry.Chart = new(*entry.Chart)
		}
		c.change(&entry)
		changed[ref(kind, name)] = entry
		store := openStore(t)
		errs := fetchLocked(t.Context(), u.set(c.name), headgate.Options{Lock: changed, Store: store})
		err := errors.Join(slices.Collect(maps.Values(errs))...)
		if err == nil || !regexp.MustCompile(c.want).MatchString(err.Error()) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		requireEmpty(t, store)
	}
	external := func(status string) *source.Set {
		set := new(source.Set)
		must(t, set.Decode("", strings.NewReader("apiVersion: source.headgate.dev/v1\nkind: ExternalArtifact\nmetadata: {name: built}\nspec: {}\n"+status)))
		return set
	}
	const artifact = "status: {artifact: {path: externalartifact/default/built/f, url: \"https://example.org/f\", revision: \"1\", lastUpdateTime: 2026-01-01T00:00:00Z, digest: \"sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae\"}}\n"
	entries, _ = lockAll(t, external(artifact))
	for status, want := range map[string]string{
		artifact: "",
		strings.Replace(artifact, "revision: \"1\"", "revision: \"2\"", 1): "published again since it was locked",
		"": "status.artifact is not set yet",
	} {
		errs := fetchLocked(t.Context(), external(status), headgate.Options{Lock: entries, Store: openStore(t)})
		if err := errs["ExternalArtifact/default/built"]; (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	entries, _ = lockAll(t, u.set("PkgChart/web"))
	entry := entries[ref("PkgChart", "web")]
	entry.Digest = ""
	entries[ref("PkgChart", "web")] = entry
	u.reset()
	err := fetchLocked(t.Context(), u.set("PkgChart/web"), headgate.Options{Lock: entries, Offline: true, Store: openStore(t)})[""]
	if err == nil || !strings.Contains(err.Error(), "has no digest of the content") {
		t.Error(err)
	}
	errs := fetchLocked(t.Context(), u.set("PkgRepository/charts"), headgate.Options{Lock: entries, Offline: true, Until: source.StepResolve})
	if len(errs) > 0 || u.charts.Count() > 0 {
		t.Errorf("%v after %d requests", errs, u.charts.Count())
	}
	for r, err := range headgate.Fetch(t.Context(), external(""), headgate.Options{Offline: true, Store: openStore(t)}) {
		if r.Object != nil || err == nil || !strings.Contains(err.Error(), "without Locked") {
			t.Error(err)
		}
	}
}

// The earlier artifact is restored if another object does not match the lock.
func TestLockedWithdrawn(t *testing.T) {
	u := startUpstreams(t)
	names := []string{"Bucket/assets", "OCIRepository/copied"}
	before, _ := lockAll(t, u.set(names...))
	store, ledger := openStore(t), &source.Ledger{Dir: t.TempDir()}
	set := u.set(names...)
	if errs := fetchLocked(t.Context(), set, headgate.Options{Lock: before, Store: store, Ledger: ledger}); len(errs) > 0 {
		t.Fatal(errs)
	}
	was := contents(t, store, set)
	u.move["OCIRepository/copied"]()
	now, _ := lockAll(t, u.set(names...))
	now[source.Reference{Kind: "Bucket", Namespace: "default", Name: "assets"}] = lock.Entry{
		SpecDigest: now[source.Reference{Kind: "Bucket", Namespace: "default", Name: "assets"}].SpecDigest,
		Content:    "sha256:" + strings.Repeat("0", 64), Pin: source.Pin{Revision: "sha256:" + strings.Repeat("0", 64)}}
	set = u.set(names...)
	errs := fetchLocked(t.Context(), set, headgate.Options{Lock: now, Store: store, Ledger: ledger, Parallel: 1})
	if len(errs) != 2 || !strings.Contains(fmt.Sprint(errs), "not stored: another object is not what is locked") {
		t.Errorf("%v", errs)
	}
	if got := contents(t, store, set); !maps.Equal(got, was) {
		t.Errorf("%q, want %q", got, was)
	}
	stored := 0
	for _, err := range store.All() {
		must(t, err)
		stored++
	}
	if stored != 2 {
		t.Errorf("%d artifacts are stored", stored)
	}
	// the same without a ledger
	if errs := fetchLocked(t.Context(), u.set(names...), headgate.Options{Lock: now, Store: store, Parallel: 1}); len(errs) != 2 {
		t.Errorf("%v", errs)
	}
}

// Signatures in registries are verified for locked artifacts by digest alone.
func TestLockedSigned(t *testing.T) {
	u, signer := startUpstreams(t), testenv.NewCosign(t, 1)
	for _, path := range []string{"team/copied", "charts/regweb"} {
		tag := map[string]string{"team/copied": "latest", "charts/regweb": "2.0.0"}[path]
		text := u.registry.Manifest(path, tag)
		d := u.registry.PushRaw(path, tag, "application/vnd.oci.image.manifest.v1+json", text)
		signer.Sign(u.registry, path, d, d.Digest)
	}
	verify := ", verify: {provider: cosign, secretRef: {name: keys}}}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: keys}\nstringData:\n  cosign.pub: |\n    "
	indented := func(s *testenv.Cosign) string { return strings.ReplaceAll(string(s.Public()), "\n", "\n    ") }
	for _, name := range []string{"OCIRepository/copied", "PkgChart/regweb"} {
		original := u.documents[name]
		u.documents[name] = strings.TrimSuffix(original, "}\n") + verify + indented(signer) + "\n"
		set := u.set(name)
		origins := s3Origins
		origins.Verifiers = map[string]oci.Technology{"cosign": cosign.New(cosign.Config{})}
		fetch := func(set *source.Set, o headgate.Options) (v source.Verification, entries lock.Entries, failed error) {
			entries, o.Origins = lock.Entries{}, origins
			for r, err := range headgate.Fetch(t.Context(), set, o) {
				entries[source.ReferenceTo(r.Object)] = r.Entry
				failed = errors.Join(failed, err)
				if r.Verification != (source.Verification{}) {
					v = r.Verification
				}
			}
			return v, entries, failed
		}
		v, entries, err := fetch(set, headgate.Options{Store: openStore(t), Lock: lock.Entries{}})
		if err != nil || v.Message == "" {
			t.Fatalf("%s: %v, %v", name, v, err)
		}
		if v, _, err = fetch(u.set(name), headgate.Options{Store: openStore(t), Lock: entries, Locked: true}); err != nil || v.Message == "" {
			t.Errorf("%s, locked: %v, %v", name, v, err)
		}
		u.documents[name] = strings.TrimSuffix(original, "}\n") + verify + indented(testenv.NewCosign(t, 2)) + "\n"
		store := openStore(t)
		if _, _, err = fetch(u.set(name), headgate.Options{Store: store, Lock: entries, Locked: true}); !errors.Is(err, source.ErrVerification) {
			t.Errorf("%s with another key: %v", name, err)
		}
		requireEmpty(t, store)
	}
}
