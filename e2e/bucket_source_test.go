package e2e

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A bucketSource is a Bucket and the Secrets it names.
type bucketSource struct {
	spec    map[string]any  // beyond interval and timeout
	secrets map[string]keys // by the field that names them, sts.secretRef for example
}

// bucketAt returns a source of the bucket at host, by plain HTTP.
func bucketAt(host, bucket string) bucketSource {
	return bucketSource{spec: map[string]any{"endpoint": host, "bucketName": bucket, "insecure": true}}
}

// with returns a source with one field more, or another.
func (s bucketSource) with(field string, value any) bucketSource {
	spec := map[string]any{field: value}
	for name, value := range s.spec {
		if name != field {
			spec[name] = value
		}
	}
	s.spec = spec
	return s
}

// secret returns a source with one Secret more, or another. A nil Secret is named and does not exist.
func (s bucketSource) secret(field string, data keys) bucketSource {
	secrets := map[string]keys{field: data}
	for name, data := range s.secrets {
		if name != field {
			secrets[name] = data
		}
	}
	s.secrets = secrets
	return s
}

// secure returns a source that is reached by TLS of a private authority.
func (s bucketSource) secure(host string, trust keys) bucketSource {
	return s.with("endpoint", host).with("insecure", false).secret("certSecretRef", trust)
}

// manifest returns the documents of a source.
func (s bucketSource) manifest(t *testing.T) string {
	t.Helper()
	spec := map[string]any{"interval": "1m", "timeout": "20s"}
	for field, value := range s.spec {
		spec[field] = value
	}
	docs := []any{}
	for field, data := range s.secrets {
		name := strings.ReplaceAll(strings.ToLower(field), ".", "-")
		in := spec
		if rest, ok := strings.CutPrefix(field, "sts."); ok {
			sts := map[string]any{}
			for field, value := range spec["sts"].(map[string]any) {
				sts[field] = value
			}
			in, field, spec["sts"] = sts, rest, sts
		}
		in[field] = keys{"name": name}
		if data != nil {
			docs = append(docs, document("v1", "Secret", name, "stringData", data))
		}
	}
	return writeDocuments(t, append(docs, document("source.headgate.dev/v1", "Bucket", "app", "spec", spec)))
}

// fetchBucket runs headgate fetch on a source.
func fetchBucket(t *testing.T, store string, s bucketSource, more ...string) outcome {
	t.Helper()
	return fetchFile(t, store, s.manifest(t), more...)
}

// fetched runs headgate fetch, which must succeed, and returns the revision and
// what the artifact holds.
func fetched(t *testing.T, store string, s bucketSource) (revision string, held keys) {
	t.Helper()
	got := fetchBucket(t, store, s)
	if got.code != 0 || got.status.Artifact == nil {
		t.Fatalf("exit code %d, %+v\n%s", got.code, got.status, got.stderr)
	}
	a := got.status.Artifact
	return a.Revision, entries(t, read(t, filepath.Join(store, filepath.FromSlash(a.Path))))
}

// newStoreFront returns a front before an object store, which says "list" for
// a page of a listing, and else the path.
func newStoreFront(t *testing.T, addr string) *front {
	t.Helper()
	return newNamingFront(t, addr, func(r *http.Request) string {
		query := r.URL.Query()
		switch {
		case query.Has("list-type"), query.Get("comp") == "list", strings.HasSuffix(r.URL.Path, "/o"):
			return "list"
		case query.Has("location"):
			return "location"
		}
		return r.URL.Path
	})
}

// wantAsked says what a front was asked since the last time, in any order.
func wantAsked(t *testing.T, f *front, want ...string) {
	t.Helper()
	got := f.took()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the store was asked %q, want %q", got, want)
	}
}
