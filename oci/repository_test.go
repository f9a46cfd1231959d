package oci_test

import (
	"context"
	"io"
	"io/fs"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// secrets are the Secrets of a test, by name; those of service accounts by
// the name account/NAME.
type secrets map[string]map[string]string

func (s secrets) Secret(_ context.Context, _, name string) (source.Secret, error) {
	data, ok := s[name]
	if !ok {
		return source.Secret{}, fs.ErrNotExist
	}
	out := source.Secret{Data: map[string][]byte{}}
	for k, v := range data {
		out.Data[k] = []byte(v)
	}
	return out, nil
}

func (s secrets) PullSecrets(ctx context.Context, ns, account string) ([]source.Secret, error) {
	one, err := s.Secret(ctx, ns, "account/"+account)
	return []source.Secret{one}, err
}

func ref(name string) *source.LocalReference { return &source.LocalReference{Name: name} }

// connect returns the repository a, and the vault it used.
func connect(t *testing.T, a oci.Access, env source.Env) (*oci.Repository, *transport.Vault) {
	t.Helper()
	v := &transport.Vault{Namespace: "apps", From: env.Secrets}
	r, err := oci.Connect(t.Context(), a, env, v)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r, v
}

// plain returns the repository team/app of g, which is reached without TLS and credentials.
func plain(t *testing.T, g *testenv.Registry) *oci.Repository {
	t.Helper()
	r, _ := connect(t, oci.Access{URL: g.URL("team/app"), Insecure: true}, source.Env{})
	return r
}

func layer(text string) testenv.Manifest {
	return testenv.Manifest{ArtifactType: "application/x.test", Layers: []testenv.Blob{{MediaType: "text/plain", Data: []byte(text)}}}
}

func collect[T any](t *testing.T, list func(func(T, error) bool)) (all []T) {
	t.Helper()
	for v, err := range list {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

func TestRepositoryReads(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{PageSize: 2})
	want := g.Push("team/app", "1.0.0", layer("hello"))
	for _, tag := range []string{"1.1.0", "1.2.0", "latest", "x"} {
		g.Push("team/app", tag, layer(tag))
	}
	r := plain(t, g)
	if got := r.Name(); got != g.Host+"/team/app" {
		t.Error(got)
	}
	d, err := r.Head(t.Context(), "1.0.0")
	if err != nil || d.Digest != want.Digest || d.Size != want.Size || d.MediaType != want.MediaType {
		t.Fatal(d, err)
	}
	if n := g.Count(); n != 1 {
		t.Errorf("%d requests for a descriptor", n)
	}
	for _, given := range []ocispec.Descriptor{d, {Digest: d.Digest}} {
		got, content, err := r.Manifest(t.Context(), given)
		if err != nil || got.Digest != want.Digest || got.Size != want.Size || got.MediaType != want.MediaType || digest.FromBytes(content) != d.Digest {
			t.Fatal(got, err)
		}
	}
	blob := layer("hello").Layers[0].Descriptor()
	content, err := r.Blob(t.Context(), blob)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	if text, err := io.ReadAll(content); err != nil || string(text) != "hello" {
		t.Error(string(text), err)
	}
	if tags := collect(t, r.Tags(t.Context())); strings.Join(tags, " ") != "1.0.0 1.1.0 1.2.0 latest x" {
		t.Error(tags)
	}
}
