package oci_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// follow returns an object that follows ref.
func (r *setup) follow(ref source.OCIRepositoryRef) *source.OCIRepository {
	return r.object("app", func(s *source.OCIRepositorySpec) { s.Ref = &ref })
}

// want reconciles obj and checks that it succeeds with outcome.
func (r *setup) want(obj *source.OCIRepository, outcome source.Outcome) source.Result {
	r.Helper()
	result, err := r.reconcile(obj)
	if result.Outcome != outcome || err != nil {
		r.Fatalf("outcome %q, error %v; want %q", result.Outcome, err, outcome)
	}
	return result
}

// phases returns the number of requests of each phase since its last call, in
// the order of the phases' names.
func (r *setup) phases() string {
	count := map[testenv.Phase]int{}
	for _, q := range r.g.Requests() {
		count[q.Phase]++
	}
	r.g.Reset()
	var text []string
	for _, phase := range slices.Sorted(maps.Keys(count)) {
		text = append(text, fmt.Sprintf("%d %s", count[phase], phase))
	}
	return strings.Join(text, ", ")
}

// files returns a manifest with one layer of files NAME, CONTENT, …
func files(t *testing.T, nameContent ...string) testenv.Manifest {
	tree := fstest.MapFS{}
	for i := 0; i < len(nameContent); i += 2 {
		tree[nameContent[i]] = &fstest.MapFile{Data: []byte(nameContent[i+1]), Mode: 0o644}
	}
	return testenv.Manifest{Layers: []testenv.Blob{testenv.TarGzip(t, tree)}}
}

func TestRequests(t *testing.T) {
	r := newSetup(t, testenv.RegistryConfig{})
	first := r.g.Push("team/app", "1.0.0", files(t, "a", "one"))
	r.g.Push("team/app", "latest", files(t, "a", "one"))
	index := func(tag, text string) {
		r.g.PushIndex("team/app", tag, testenv.Index{Manifests: []ocispec.Descriptor{r.g.Push("team/app", "", files(t, "a", text))}})
	}
	tag, semver, pinned := source.OCIRepositoryRef{Tag: "latest"}, source.OCIRepositoryRef{SemVer: "1.x"}, source.OCIRepositoryRef{Digest: first.Digest.String()}
	for _, step := range []struct {
		name    string
		before  func()
		ref     source.OCIRepositoryRef
		outcome source.Outcome
		want    string
	}{
		{"a new tag", nil, tag, source.Stored, "1 get blob, 1 get manifest, 1 head manifest"},
		{"an unchanged tag", nil, tag, source.Unchanged, "1 head manifest"},
		{"a range, of the same content", nil, semver, source.Stored, "1 get blob, 1 get manifest, 1 head manifest, 1 list tags"},
		{"an unchanged range", nil, semver, source.Unchanged, "1 head manifest, 1 list tags"},
		{"a digest that is known", nil, pinned, source.Stored, "1 get blob, 1 get manifest"},
		{"a digest that is stored", nil, pinned, source.Unchanged, ""},
		{"a tag that moved", func() { r.g.Push("team/app", "latest", files(t, "a", "two")) }, tag, source.Stored, "1 get blob, 1 get manifest, 1 head manifest"},
		{"a digest that is new", nil, pinned, source.Stored, "1 get blob, 1 get manifest"},
		{"an index", func() { index("latest", "three") }, tag, source.Stored, "1 get blob, 2 get manifest, 1 head manifest"},
		{"an unchanged index", nil, tag, source.Unchanged, "1 head manifest"},
	} {
		if step.before != nil {
			step.before()
		}
		r.g.Reset()
		r.want(r.follow(step.ref), step.outcome)
		testenv.Equal(t, r.phases(), step.want, step.name)
	}
}

// TestOpenAfterAnother opens a revision that is not the one resolved last.
func TestOpenAfterAnother(t *testing.T) {
	r := newSetup(t, testenv.RegistryConfig{})
	r.g.Push("team/app", "latest", files(t, "a", "one"))
	o := r.origin(r.object("app", nil))
	first, _, err := o.Resolve(t.Context(), nil)
	must(t, err)
	r.g.Push("team/app", "latest", files(t, "a", "two"))
	second, _, err := o.Resolve(t.Context(), nil)
	must(t, err)
	for _, rev := range []source.Revision{first, second, second} {
		c, err := o.Open(t.Context(), rev)
		must(t, err)
		var out strings.Builder
		if _, err := c.WriteTo(t.Context(), &out); err != nil || out.Len() == 0 {
			t.Errorf("%s: %v", rev.ID, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	_, err = o.Open(t.Context(), source.Revision{ID: "v1@sha1:0123"})
	testenv.ErrorSays(t, err, "TAG@DIGEST")
	_, err = o.Open(t.Context(), source.Revision{ID: digest.FromString("absent").String()})
	testenv.ErrorIs(t, err, fs.ErrNotExist)
}

// TestForgedState checks that Resolve ignores invalid and forged states.
func TestForgedState(t *testing.T) {
	r := newSetup(t, testenv.RegistryConfig{})
	d := r.g.Push("team/app", "latest", files(t, "a", "one"))
	for _, state := range []string{"", "{", "[]", `{"digest":7}`, `{"digest":"nothing","url":"` + r.g.URL("team/app") + `"}`, `{"digest":"` + d.Digest.String() + `"}`} {
		rev, _, err := r.origin(r.object("app", nil)).Resolve(t.Context(), source.State(state))
		if err != nil || rev.ID != "latest@"+d.Digest.String() {
			t.Errorf("%s: %s %v", state, rev.ID, err)
		}
	}
}

func TestMetadataIsBounded(t *testing.T) {
	r := newSetup(t, testenv.RegistryConfig{})
	m := files(t, "a", "one")
	m.Annotations = map[string]string{"huge": strings.Repeat("x", 1<<20), ocispec.AnnotationRevision: "main", "zero": ""}
	for i := range 100 {
		m.Annotations[fmt.Sprintf("many-%03d", i)] = strings.Repeat("y", 1000)
	}
	r.g.Push("team/app", "latest", m)
	obj := r.object("app", nil)
	result := r.want(obj, source.Stored)
	size := 0
	for name, value := range obj.Artifact().Metadata {
		size += len(name) + len(value)
	}
	if size > 64<<10 || size < 60<<10 || obj.Artifact().Metadata[ocispec.AnnotationRevision] != "main" || obj.Artifact().Metadata["huge"] != "" {
		t.Errorf("%d bytes of metadata, %q", size, obj.Artifact().Metadata[ocispec.AnnotationRevision])
	}
	if notes := strings.Join(result.Report.Notes, "\n"); !strings.Contains(notes, "of 103 annotations are not in the metadata") {
		t.Errorf("notes %q", notes)
	}
}

// TestKeptOnce checks that Open does not use the connection of an earlier Resolve, because
// the Secrets may have changed since.
func TestKeptOnce(t *testing.T) {
	r := newSetup(t, testenv.RegistryConfig{Username: "user", Password: canary})
	r.g.Push("team/app", "latest", files(t, "a", "one"))
	o := r.origin(r.object("app", nil))
	_, state, err := o.Resolve(t.Context(), nil)
	must(t, err)
	rev, _, err := o.Resolve(t.Context(), state)
	must(t, err)
	r.secrets["default/login"] = dockerLogin(r.g.Host, "revoked")
	_, err = o.Open(t.Context(), rev)
	testenv.ErrorIs(t, err, fs.ErrPermission)
}

const chartLayer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

func TestSelection(t *testing.T) {
	for _, row := range []struct {
		name, tags string
		ref        *source.OCIRepositoryRef
		chart      bool
		want       string // the tag
		err        string
	}{
		{"default", "1.0.0 latest", nil, false, "latest", ""},
		{"tag", "1.0.0 latest", &source.OCIRepositoryRef{Tag: "1.0.0"}, false, "1.0.0", ""},
		{"absent tag", "1.0.0", &source.OCIRepositoryRef{Tag: "2.0.0"}, false, "", "2.0.0"},
		{"semver before tag", "1.0.0 1.1.0", &source.OCIRepositoryRef{SemVer: "*", Tag: "1.0.0"}, false, "1.1.0", ""},
		{"highest of many pages", "0.9.0 1.10.0 1.2.0 1.9.9 2.0.0 a b", &source.OCIRepositoryRef{SemVer: "1.x"}, false, "1.10.0", ""},
		{"no pre-release", "1.0.0 1.1.0-rc.1", &source.OCIRepositoryRef{SemVer: ">=1.0.0"}, false, "1.0.0", ""},
		{"a pre-release", "1.0.0 1.1.0-rc.1 1.1.0-rc.2", &source.OCIRepositoryRef{SemVer: ">=1.0.0-0"}, false, "1.1.0-rc.2", ""},
		{"filter", "1.0.0 1.1.0-rc.1 1.2.0-dev.1", &source.OCIRepositoryRef{SemVer: ">=1.0.0-0", SemVerFilter: ".*-rc.*"}, false, "1.1.0-rc.1", ""},
		{"a tie by a leading v", "1.0.0 v1.0.0", &source.OCIRepositoryRef{SemVer: "1.x"}, false, "v1.0.0", ""},
		{"no version with _", "1.0.0 1.1.0_debug", &source.OCIRepositoryRef{SemVer: "1.x"}, false, "1.0.0", ""},
		{"a chart's _", "1.0.0 1.1.0_debug", &source.OCIRepositoryRef{SemVer: "1.x"}, true, "1.1.0_debug", ""},
		{"a tie by build metadata", "1.0.0 1.0.0_build.10 1.0.0_build.9", &source.OCIRepositoryRef{SemVer: "1.x"}, true, "1.0.0_build.10", ""},
		{"a tie by both", "1.0.0_b v1.0.0_b v1.0.0_a", &source.OCIRepositoryRef{SemVer: "1.x"}, true, "v1.0.0_b", ""},
		{"nothing in the range", "1.0.0 2.0.0 x", &source.OCIRepositoryRef{SemVer: "3.x"}, false, "", `no tag of 3 matches spec.ref.semver "3.x"`},
		{"nothing through the filter", "1.0.0 2.0.0 x", &source.OCIRepositoryRef{SemVer: "1.x", SemVerFilter: "^2"}, false, "",
			`no tag of 3 matches spec.ref.semver "1.x", 1 of them match spec.ref.semverFilter "^2"`},
	} {
		r := newSetup(t, testenv.RegistryConfig{PageSize: 2})
		for _, tag := range strings.Fields(row.tags) {
			r.g.Push("team/app", tag, layer(tag))
		}
		o := r.origin(r.object("app", func(spec *source.OCIRepositorySpec) {
			spec.Ref = row.ref
			if row.chart {
				spec.LayerSelector = &source.OCILayerSelector{MediaType: chartLayer}
			}
		}))
		rev, _, err := o.Resolve(t.Context(), nil)
		tag, _, _ := strings.Cut(rev.ID, "@")
		switch {
		case row.err == "" && (err != nil || tag != row.want):
			t.Errorf("%s: %s %v", row.name, rev.ID, err)
		case row.err != "" && (!errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), row.err)):
			t.Errorf("%s: %v", row.name, err)
		}
		backwards := strings.Fields(row.tags)
		slices.Reverse(backwards)
		r.g.Break(tagged(backwards...))
		if again, _, _ := o.Resolve(t.Context(), nil); again.ID != rev.ID {
			t.Errorf("%s: %s in one order, %s in the other", row.name, rev.ID, again.ID)
		}
	}
}

// TestHostileTags checks that the only valid tag is selected from a list of invalid names.
func TestHostileTags(t *testing.T) {
	r := newSetup(t, testenv.RegistryConfig{})
	d := r.g.Push("team/app", "1.0.0", layer("x"))
	r.g.Break(tagged("../../1.9.0", "1.9.0/../x", "1.9.0\x00", "１.９.0", "1.9.0+x", "1.9.0@sha256:0", "", strings.Repeat("1", 200)+".0.0", "1.0.0"))
	rev, _, err := r.origin(r.follow(source.OCIRepositoryRef{SemVer: "*"})).Resolve(t.Context(), nil)
	if err != nil || rev.ID != "1.0.0@"+d.Digest.String() {
		t.Errorf("%s %v", rev.ID, err)
	}
}

func TestInvalidSelection(t *testing.T) {
	r := newSetup(t, testenv.RegistryConfig{})
	for field, ref := range map[string]source.OCIRepositoryRef{
		"spec.ref.digest":       {Digest: "sha256:0123"},
		"spec.ref.digest: ":     {Digest: "../x"},
		"spec.ref.semver":       {SemVer: ">=a"},
		"spec.ref.semverFilter": {SemVer: "*", SemVerFilter: "("},
		"spec.ref.tag":          {Tag: "a/../b"},
	} {
		testenv.Equal(t, r.mustRefuse(r.follow(ref), nil, listFailed, field).Outcome, source.Stalled, ref)
	}
	testenv.Equal(t, r.g.Count(), 0, "requests")
}

// sharing returns an environment for objects that share results, blobs and connections.
func (r *setup) sharing() source.Env {
	r.Helper()
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: r.TempDir()})
	must(r, err)
	r.Cleanup(func() { cache.Close() })
	env := source.Env{Secrets: r.secrets, Limits: r.limits, Cache: cache, Share: new(source.Share), Since: time.Now(), Reuse: new(source.Connections)}
	r.Cleanup(env.Reuse.Close)
	return env
}

// fleet concurrently reconciles n objects, each changed by edit.
func (r *setup) fleet(n int, env source.Env, edit func(i int, obj *source.OCIRepository)) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		obj := r.object(fmt.Sprint("app-", i), nil)
		edit(i, obj)
		all.Go(func() {
			_, errs[i] = (&source.Reconciler{Store: r.Store}).Reconcile(r.Context(), obj, oci.New(obj, env, technologies))
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// TestFleetAsksOnce checks that objects of one repository that are reconciled together send
// as many requests as one of them, whatever each selects and ignores.
func TestFleetAsksOnce(t *testing.T) {
	r := newSetup(t, testenv.RegistryConfig{})
	for _, tag := range []string{"1.0.0", "1.1.0"} {
		r.g.Push("team/app", tag, files(t, "a", "1", "b", "2"))
	}
	env := r.sharing()
	r.phases()
	ranges := func(i int, obj *source.OCIRepository) {
		obj.Spec.Ref = &source.OCIRepositoryRef{SemVer: []string{"1.x", ">=1.1", "*"}[i%3]}
		obj.Spec.Ignore = &[]string{"", "a"}[i%2]
	}
	must(t, r.fleet(12, env, ranges))
	testenv.Equal(t, r.phases(), "1 get blob, 1 get manifest, 1 head manifest, 1 list tags")
	env.Since = time.Now()
	must(t, r.fleet(12, env, ranges))
	if got, want := r.phases(), "1 get manifest, 1 head manifest, 1 list tags"; got != want { // the objects are new
		t.Errorf("again: got %s, want %s", got, want)
	}
}

// TestFleetApart checks that objects do not share results and blobs if they have different
// credentials, or differ in the namespace or the name of their Secrets, which messages
// contain.
func TestFleetApart(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(i int, obj *source.OCIRepository)
		blobs   int // number of authenticated requests for blobs
		refused string
	}{
		"the same":          {func(int, *source.OCIRepository) {}, 1, ""},
		"another Secret":    {func(i int, obj *source.OCIRepository) { obj.Spec.SecretRef.Name = []string{"login", "twin"}[i] }, 2, ""},
		"another namespace": {func(i int, obj *source.OCIRepository) { obj.Metadata.Namespace = []string{"default", "other"}[i] }, 1, "secret other/login"},
		"no Secret": {func(i int, obj *source.OCIRepository) {
			if i == 1 {
				obj.Spec.SecretRef = nil
			}
		}, 1, "no credentials were sent"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newSetup(t, testenv.RegistryConfig{Username: "user", Password: canary})
			r.g.Push("team/app", "latest", files(t, "a", "1"))
			r.secrets["default/twin"] = r.secrets["default/login"]
			r.secrets["other/login"] = dockerLogin(r.g.Host, "wrong-"+canary)
			err := r.fleet(2, r.sharing(), c.edit)
			if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) || strings.Contains(fmt.Sprint(err), canary) {
				t.Error(err)
			}
			blobs := 0
			for _, q := range r.g.Requests() {
				if q.Phase == testenv.GetBlob && q.Authorization != "" { // the first request of a client is unauthenticated
					blobs++
				}
			}
			testenv.Equal(t, blobs, c.blobs, "blobs that are fetched")
		})
	}
}

// TestFleetDamagedBlob checks that a damaged blob is not cached.
func TestFleetDamagedBlob(t *testing.T) {
	r := newSetup(t, testenv.RegistryConfig{})
	r.g.Push("team/app", "latest", files(t, "a", "1"))
	env := r.sharing()
	r.g.Break(&testenv.Defect{Do: testenv.Cut, After: 10, Phase: testenv.GetBlob, Times: 1})
	noEdit := func(int, *source.OCIRepository) {}
	if err := r.fleet(1, env, noEdit); err == nil {
		t.Error("half a blob is stored")
	}
	if err := r.fleet(1, env, noEdit); err != nil {
		t.Error(err)
	}
}

// failures are failing steps and their conditions (reference A2), in addition to those of
// the conformance suite and of hostile registries.
var failures = []attack{
	{name: "unknown provider", spec: func(s *source.OCIRepositorySpec) { s.SecretRef, s.Provider = nil, "aws" }, reason: "InvalidProviderConfiguration", says: []string{"knows no provider aws"}},
	{name: "absent CA", spec: func(s *source.OCIRepositorySpec) { s.CertSecretRef = ref("absent") }, reason: authFailed, says: []string{"default/absent"}},
	{name: "absent digest", spec: pin(digest.FromString("absent")), reason: pullFailed, says: []string{"404", digest.FromString("absent").String()}},
	{name: "list refused", defect: answer(testenv.ListTags, 401), spec: ranged, reason: authFailed, says: []string{"list tags", "401"}},
	{name: "list that breaks", defect: answer(testenv.ListTags, 500), spec: ranged, reason: listFailed, says: []string{"500"}},
	{name: "manifest refused", defect: answer(testenv.GetManifest, 403), reason: authFailed, says: []string{"fetch manifest", "403"}},
	{name: "layer refused", defect: answer(testenv.GetBlob, 401), reason: authFailed, says: []string{"fetch blob", "401"}},
}

// TestLoginStalls tests a provider that does not answer.
func TestLoginStalls(t *testing.T) {
	obj := &source.OCIRepository{Spec: source.OCIRepositorySpec{URL: "oci://registry.example.org/app", Provider: "aws"}}
	shortTimeout(&obj.Spec)
	wait := func(ctx context.Context, _ source.LoginRequest) (source.Credential, error) {
		<-ctx.Done()
		return source.Credential{}, ctx.Err()
	}
	_, _, err := oci.New(obj, source.Env{Login: wait}, nil).Resolve(t.Context(), nil)
	step, ok := errors.AsType[*source.StepError](err)
	if !ok || step.Reason != authFailed || !strings.Contains(err.Error(), "log in: not done within") {
		t.Errorf("%v", err)
	}
}

func pin(d digest.Digest) func(*source.OCIRepositorySpec) {
	return func(s *source.OCIRepositorySpec) { s.Ref = &source.OCIRepositoryRef{Digest: d.String()} }
}

func answer(phase testenv.Phase, status int) *testenv.Defect {
	return &testenv.Defect{Phase: phase, Status: status}
}
