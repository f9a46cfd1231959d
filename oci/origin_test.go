package oci_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// follow returns an object that follows ref.
func (r *rig) follow(ref source.OCIRepositoryRef) *source.OCIRepository {
	return r.object("app", func(s *source.OCIRepositorySpec) { s.Ref = &ref })
}

// want reconciles obj and demands an outcome that is no failure.
func (r *rig) want(obj *source.OCIRepository, outcome source.Outcome) source.Result {
	r.Helper()
	result, err := r.reconcile(obj)
	if result.Outcome != outcome || err != nil {
		r.Fatalf("outcome %q, error %v; want %q", result.Outcome, err, outcome)
	}
	return result
}

// phases says how often which requests were sent since it was last asked, in
// the order of the phases' names.
func (r *rig) phases() string {
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

// files is a manifest with one layer of files, NAME, CONTENT, ….
func files(t *testing.T, nameContent ...string) testenv.Manifest {
	tree := fstest.MapFS{}
	for i := 0; i < len(nameContent); i += 2 {
		tree[nameContent[i]] = &fstest.MapFile{Data: []byte(nameContent[i+1]), Mode: 0o644}
	}
	return testenv.Manifest{Layers: []testenv.Blob{testenv.TarGzip(t, tree)}}
}

func TestRequests(t *testing.T) {
	r := newRig(t, testenv.RegistryConfig{})
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
		if got := r.phases(); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
}

// TestOpenAfterAnother opens a revision that is not the one resolved last.
func TestOpenAfterAnother(t *testing.T) {
	r := newRig(t, testenv.RegistryConfig{})
	r.g.Push("team/app", "latest", files(t, "a", "one"))
	o := r.origin(r.object("app", nil))
	first, _, err := o.Resolve(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.g.Push("team/app", "latest", files(t, "a", "two"))
	second, _, err := o.Resolve(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, rev := range []source.Revision{first, second, second} {
		c, err := o.Open(t.Context(), rev)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if _, err := c.WriteTo(t.Context(), &out); err != nil || out.Len() == 0 {
			t.Errorf("%s: %v", rev.ID, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := o.Open(t.Context(), source.Revision{ID: "v1@sha1:0123"}); err == nil || !strings.Contains(err.Error(), "TAG@DIGEST") {
		t.Error(err)
	}
	if _, err := o.Open(t.Context(), source.Revision{ID: digest.FromString("absent").String()}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestAtOnce uses one origin from several goroutines while the tag moves.
func TestAtOnce(t *testing.T) {
	r := newRig(t, testenv.RegistryConfig{})
	r.g.Push("team/app", "latest", files(t, "a", "one"))
	o := r.origin(r.object("app", nil))
	var done sync.WaitGroup
	for i := range 8 {
		done.Go(func() {
			if i == 4 {
				r.g.Push("team/app", "latest", files(t, "a", "two"))
			}
			rev, _, err := o.Resolve(t.Context(), nil)
			if err != nil {
				t.Error(err)
				return
			}
			c, err := o.Open(t.Context(), rev)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := c.WriteTo(t.Context(), io.Discard); err != nil {
				t.Error(err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
}

// TestForgedState resolves with states that somebody else wrote.
func TestForgedState(t *testing.T) {
	r := newRig(t, testenv.RegistryConfig{})
	d := r.g.Push("team/app", "latest", files(t, "a", "one"))
	for _, state := range []string{"", "{", "[]", `{"digest":7}`, `{"digest":"nothing","url":"` + r.g.URL("team/app") + `"}`, `{"digest":"` + d.Digest.String() + `"}`} {
		rev, _, err := r.origin(r.object("app", nil)).Resolve(t.Context(), source.State(state))
		if err != nil || rev.ID != "latest@"+d.Digest.String() {
			t.Errorf("%s: %s %v", state, rev.ID, err)
		}
	}
}

func TestDrift(t *testing.T) {
	r := newRig(t, testenv.RegistryConfig{})
	r.g.Push("team/app", "latest", files(t, "a", "one", "b.md", "two"))
	selector := func(l source.OCILayerSelector) func(*source.OCIRepositorySpec) {
		return func(s *source.OCIRepositorySpec) { s.LayerSelector = &l }
	}
	ignore := func(s *source.OCIRepositorySpec) { s.Ignore = new("*.md") }
	for _, step := range []struct {
		name    string
		edit    func(*source.OCIRepositorySpec)
		outcome source.Outcome
	}{
		{"first", func(*source.OCIRepositorySpec) {}, source.Stored},
		{"the default in words", selector(source.OCILayerSelector{Operation: source.LayerExtract}), source.Unchanged},
		{"another media type", selector(source.OCILayerSelector{MediaType: testenv.LayerTarGzip}), source.Stored},
		{"another operation", selector(source.OCILayerSelector{MediaType: testenv.LayerTarGzip, Operation: source.LayerCopy}), source.Stored},
		{"the same", selector(source.OCILayerSelector{MediaType: testenv.LayerTarGzip, Operation: source.LayerCopy}), source.Unchanged},
		{"ignore", ignore, source.Stored},
		{"ignore again", ignore, source.Unchanged},
		{"no ignore", func(*source.OCIRepositorySpec) {}, source.Stored},
	} {
		t.Log(step.name)
		r.want(r.object("app", step.edit), step.outcome)
	}
}

func TestMetadataIsBounded(t *testing.T) {
	r := newRig(t, testenv.RegistryConfig{})
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

// TestKeptOnce resolves a revision that is new, and then once more: what the
// first run left behind counts no longer, for the Secrets may be others.
func TestKeptOnce(t *testing.T) {
	r := newRig(t, testenv.RegistryConfig{Username: "user", Password: canary})
	r.g.Push("team/app", "latest", files(t, "a", "one"))
	o := r.origin(r.object("app", nil))
	_, state, err := o.Resolve(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	rev, _, err := o.Resolve(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	r.secrets["default/login"] = login(r.g.Host, "revoked")
	if _, err := o.Open(t.Context(), rev); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v, want a refusal of the Secret of now", err)
	}
}
