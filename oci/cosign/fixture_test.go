package cosign_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/source"
)

// A layout is an OCI image layout below testdata/cosign, and what is in it.
type layout struct {
	dir     string
	index   ocispec.Index
	subject ocispec.Descriptor // what is tagged 1
}

func openLayout(t testing.TB, name string) *layout {
	t.Helper()
	l := &layout{dir: filepath.Join("../../testdata/cosign", name)}
	text, err := os.ReadFile(filepath.Join(l.dir, "index.json"))
	check(t, err)
	check(t, json.Unmarshal(text, &l.index))
	for _, d := range l.index.Manifests {
		if d.Annotations[ocispec.AnnotationRefName] == "1" {
			l.subject = ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
		}
	}
	return l
}

func (l *layout) blob(t testing.TB, d digest.Digest) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(l.dir, "blobs", "sha256", d.Encoded()))
	check(t, err)
	return data
}

// push stores l in a repository of g.
func (l *layout) push(t testing.TB, g *testenv.Registry, repo string) {
	t.Helper()
	for _, d := range l.index.Manifests {
		text := l.blob(t, d.Digest)
		var m ocispec.Manifest
		check(t, json.Unmarshal(text, &m))
		for _, b := range append(m.Layers, m.Config) {
			if b.Digest != "" {
				g.PushBlob(repo, testenv.Blob{MediaType: b.MediaType, Data: l.blob(t, b.Digest)})
			}
		}
		g.PushRaw(repo, d.Annotations[ocispec.AnnotationRefName], d.MediaType, text)
	}
}

// registries are those that the format of signatures must not depend on.
var registries = map[string]testenv.RegistryConfig{
	"referrers API": {},
	"fallback tag":  {NoReferrers: true},
}

// connect returns a repository of g.
func connect(t testing.TB, g *testenv.Registry, repo string) *oci.Repository {
	t.Helper()
	r, err := oci.Connect(t.Context(), oci.Access{URL: g.URL(repo), Insecure: true}, source.Env{}, &transport.Vault{Namespace: "default"})
	check(t, err)
	t.Cleanup(r.Close)
	return r
}

// verify verifies subject in a repository of g.
func verify(t testing.TB, g *testenv.Registry, repo string, trust oci.Trust, subject ocispec.Descriptor) (source.Verification, error) {
	t.Helper()
	v, err := cosign.New(cosign.Config{})(connect(t, g, repo), trust)
	check(t, err)
	return v.Verify(t.Context(), subject)
}

// secret returns a Secret with entries, name and value in turn.
func secret(entries ...string) transport.Secret {
	s := transport.Secret{Name: "default/trust", Secret: source.Secret{Data: map[string][]byte{}}}
	for i := 0; i < len(entries); i += 2 {
		s.Data[entries[i]] = []byte(entries[i+1])
	}
	return s
}

// recorded returns the trust in recorded public keys.
func recorded(t testing.TB, names ...string) oci.Trust {
	t.Helper()
	var entries []string
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("../../testdata/cosign", "keys", name+".pub"))
		check(t, err)
		entries = append(entries, name+".pub", string(text))
	}
	return oci.Trust{Keys: secret(entries...)}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lacks returns those of wants, separated by |, that are not in the text of err.
func lacks(err error, wants string) (missing []string) {
	for want := range strings.SplitSeq(wants, "|") {
		if err == nil || !strings.Contains(err.Error(), want) {
			missing = append(missing, want)
		}
	}
	return missing
}
