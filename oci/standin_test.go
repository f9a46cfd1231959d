package oci_test

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// write makes a file below dir, and the directories above it.
func write(t *testing.T, dir, name, content string) {
	t.Helper()
	name = filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// save makes an image layout of tags of team/app.
func (r *rig) save(tags ...string) (dir string) {
	r.Helper()
	dir = r.TempDir()
	repo := plain(r.T, r.g)
	blob := func(content []byte) {
		write(r.T, dir, "blobs/sha256/"+digest.FromBytes(content).Encoded(), string(content))
	}
	var index ocispec.Index
	for _, tag := range tags {
		d, err := repo.Head(r.Context(), tag)
		if err != nil {
			r.Fatal(err)
		}
		d.Annotations = map[string]string{ocispec.AnnotationRefName: tag}
		index.Manifests = append(index.Manifests, d)
		text := r.g.Manifest("team/app", tag)
		blob(text)
		var m ocispec.Manifest
		if err := json.Unmarshal(text, &m); err != nil {
			r.Fatal(err)
		}
		for _, l := range m.Layers {
			content, err := repo.Blob(r.Context(), l)
			if err != nil {
				r.Fatal(err)
			}
			data, err := io.ReadAll(content)
			if content.Close(); err != nil {
				r.Fatal(err)
			}
			blob(data)
		}
	}
	write(r.T, dir, ocispec.ImageLayoutFile, `{"imageLayoutVersion":"1.0.0"}`)
	write(r.T, dir, ocispec.ImageIndexFile, r.JSON(index))
	return dir
}

func TestDirectoryStandsIn(t *testing.T) {
	r := newRig(t, testenv.RegistryConfig{})
	dir := t.TempDir()
	write(t, dir, "app.yaml", "kind: App")
	write(t, dir, "docs/index.html", "<html>")
	write(t, dir, "photo.jpg", "by default ignored")
	r.local = map[string]string{r.g.URL("team/app"): dir}
	obj := r.object("app", func(s *source.OCIRepositorySpec) { s.Ignore = new("/docs\n") })
	r.want(obj, source.Stored)
	if a := obj.Artifact(); !strings.HasPrefix(a.Revision, "local@sha256:") || !slices.Equal(r.Names(a), []string{"app.yaml", "photo.jpg"}) {
		t.Errorf("artifact %+v of %v", a, r.Names(a))
	}
	r.want(obj, source.Unchanged)
	write(t, dir, "app.yaml", "kind: Application")
	r.want(obj, source.Stored)
	r.refused(r.object("copied", copied), nil, layerFailed, "local directory "+dir, "no layer to copy")
	r.refused(r.object("verified", signed), nil, "VerificationError", "has no signature", "cosign")
	r.local[r.g.URL("team/app")] = filepath.Join(dir, "absent")
	r.refused(r.object("absent", nil), nil, pullFailed, "absent")
	if n := r.g.Count(); n != 0 {
		t.Errorf("%d requests", n)
	}
}

func TestLayoutStandsIn(t *testing.T) {
	r := newRig(t, testenv.RegistryConfig{})
	r.secrets["default/keys"] = trusted(t)
	m := files(t, "app.yaml", "kind: App")
	d := r.g.Push("team/app", "1.0.0", m)
	signer(r).Sign(r.g, "team/app", d, d.Digest)
	unsigned := r.save("1.0.0")
	dir := r.save("1.0.0", testenv.SignatureTag(d))
	verified := func(s *source.OCIRepositorySpec) { ranged(s); signed(s) }
	remote, stand := r.object("remote", verified), r.object("layout", verified)
	r.want(remote, source.Stored)
	r.g.Reset()
	r.local = map[string]string{r.g.URL("team/app"): dir}
	r.want(stand, source.Stored)
	if a, b := remote.Artifact(), stand.Artifact(); a.Revision != b.Revision || a.Digest != b.Digest {
		t.Errorf("artifacts %+v and %+v", a, b)
	}
	r.want(stand, source.Unchanged)
	r.want(r.object("copied", func(s *source.OCIRepositorySpec) { ranged(s); copied(s) }), source.Stored)
	r.refused(r.object("tag", nil), nil, pullFailed, "latest")
	write(t, dir, "blobs/sha256/"+m.Layers[0].Descriptor().Digest.Encoded(), strings.Repeat("x", len(m.Layers[0].Data)))
	r.refused(r.object("damaged", verified), nil, pullFailed, "instead of sha256:")
	write(t, dir, ocispec.ImageLayoutFile, `{"imageLayoutVersion":"9"}`)
	r.refused(r.object("newer", verified), nil, pullFailed, "version")
	r.local[r.g.URL("team/app")] = unsigned
	r.refused(r.object("unsigned", verified), nil, "VerificationError", "is not signed")
	if n := r.g.Count(); n != 0 {
		t.Errorf("%d requests", n)
	}
}
