package oci_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	orasoci "oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// A layoutDir is an image layout under construction.
type layoutDir struct {
	t     *testing.T
	dir   string
	index ocispec.Index
}

func newLayout(t *testing.T) *layoutDir {
	t.Helper()
	l := &layoutDir{t: t, dir: t.TempDir()}
	l.write("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	l.list()
	return l
}

func (l *layoutDir) write(name string, content []byte) {
	l.t.Helper()
	path := filepath.Join(l.dir, filepath.FromSlash(name))
	must(l.t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o644)))
}

func (l *layoutDir) json(v any) []byte {
	l.t.Helper()
	text, err := json.Marshal(v)
	must(l.t, err)
	return text
}

// blob adds content without an entry in the index.
func (l *layoutDir) blob(mediaType string, content []byte) ocispec.Descriptor {
	l.t.Helper()
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(content), Size: int64(len(content))}
	l.write("blobs/sha256/"+d.Digest.Encoded(), content)
	return d
}

// list adds entries to the index.
func (l *layoutDir) list(entries ...ocispec.Descriptor) {
	l.t.Helper()
	l.index.SchemaVersion = 2
	l.index.Manifests = append(l.index.Manifests, entries...)
	l.write("index.json", l.json(l.index))
}

// manifest adds a manifest with one layer, and an entry with a tag.
func (l *layoutDir) manifest(tag, text string, subject *ocispec.Descriptor) ocispec.Descriptor {
	l.t.Helper()
	m := ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, Config: l.blob("application/x.config", []byte("{}")),
		Layers: []ocispec.Descriptor{l.blob("text/plain", []byte(text))}, Subject: subject, Annotations: map[string]string{"text": text}}
	m.SchemaVersion = 2
	d := l.blob(m.MediaType, l.json(m))
	entry := d
	if tag != "" {
		entry.Annotations = map[string]string{ocispec.AnnotationRefName: tag}
	}
	l.list(entry)
	return d
}

func (l *layoutDir) connect() (*oci.Repository, error) {
	const url = "oci://r.example/team/app"
	return oci.Connect(l.t.Context(), oci.Access{URL: url}, source.Env{Local: map[string]string{url: l.dir}}, &transport.SecretReader{})
}

func (l *layoutDir) open() *oci.Repository {
	l.t.Helper()
	r, err := l.connect()
	must(l.t, err)
	l.t.Cleanup(r.Close)
	return r
}

func TestLayout(t *testing.T) {
	l := newLayout(t)
	v1, v2 := l.manifest("v1", "one", nil), l.manifest("v2", "two", nil)
	loose := l.blob(ocispec.MediaTypeImageManifest, []byte(`{"layers":[]}`))
	l.manifest("../no tag", "odd", nil)
	signature := l.manifest("", "signature", &v1)
	l.list(v2) // once more, without its tag
	r := l.open()
	testenv.Equal(t, r.Name(), "r.example/team/app")
	testenv.Equal(t, strings.Join(collect(t, r.Tags(t.Context())), " "), "v1 v2")
	for reference, want := range map[string]ocispec.Descriptor{"v1": v1, v2.Digest.String(): v2, loose.Digest.String(): loose} {
		d, err := r.Head(t.Context(), reference)
		if err != nil || d.Digest != want.Digest || d.Size != want.Size {
			t.Error(reference, d, err)
		}
		if d, content, err := r.Manifest(t.Context(), d); err != nil || d.MediaType != want.MediaType || int64(len(content)) != want.Size {
			t.Error(reference, d, err)
		}
	}
	content, err := r.Blob(t.Context(), ocispec.Descriptor{Digest: digest.FromString("one"), Size: 3})
	must(t, err)
	defer content.Close()
	if text, err := io.ReadAll(content); err != nil || string(text) != "one" {
		t.Error(string(text), err)
	}
	all := collect(t, r.Referrers(t.Context(), v1, "application/x.config"))
	if len(all) != 1 || all[0].Digest != signature.Digest || all[0].Annotations["text"] != "signature" {
		t.Error(all)
	}
	for _, d := range []ocispec.Descriptor{v2, {Digest: digest.FromString("unknown")}} {
		testenv.Equal(t, len(collect(t, r.Referrers(t.Context(), d, ""))), 0)
	}
	for _, err := range []error{r.Push(t.Context(), v1, strings.NewReader("")), r.Tag(t.Context(), v1, "x")} {
		testenv.ErrorIs(t, err, errors.ErrUnsupported)
	}
	if r.Web() == nil {
		t.Error("no client")
	}
}

// TestLayoutReferrersTag checks that the referrers tag is also used in a layout.
func TestLayoutReferrersTag(t *testing.T) {
	l := newLayout(t)
	v1 := l.manifest("v1", "one", nil)
	signature := l.blob(ocispec.MediaTypeImageManifest, []byte(`{"layers":[]}`))
	signature.ArtifactType = "application/x.signature"
	index := ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{signature}}
	d := l.blob(index.MediaType, l.json(index))
	d.Annotations = map[string]string{ocispec.AnnotationRefName: strings.Replace(v1.Digest.String(), ":", "-", 1)}
	l.list(d)
	if all := collect(t, l.open().Referrers(t.Context(), v1, signature.ArtifactType)); len(all) != 1 || all[0].Digest != signature.Digest {
		t.Error(all)
	}
}

func TestHostileLayouts(t *testing.T) {
	for name, row := range map[string]struct {
		spoil func(l *layoutDir)
		want  string
	}{
		"without marker":     {func(l *layoutDir) { os.Remove(filepath.Join(l.dir, "oci-layout")) }, "oci-layout"},
		"of another version": {func(l *layoutDir) { l.write("oci-layout", []byte(`{"imageLayoutVersion":"2.0.0"}`)) }, "2.0.0"},
		"with odd marker":    {func(l *layoutDir) { l.write("oci-layout", []byte(`x`)) }, "oci-layout"},
		"without index":      {func(l *layoutDir) { os.Remove(filepath.Join(l.dir, "index.json")) }, "index.json"},
		"with odd index":     {func(l *layoutDir) { l.write("index.json", []byte(`[`)) }, "index.json"},
		"with a huge index":  {func(l *layoutDir) { l.write("index.json", make([]byte, 5<<20)) }, "more than"},
		"with many entries": {func(l *layoutDir) {
			l.write("index.json", []byte(`{"manifests":[{}`+strings.Repeat(",{}", 20_000)+`]}`))
		}, "more than 10000"},
		"with a path as digest": {func(l *layoutDir) {
			l.write("index.json", []byte(`{"manifests":[{"digest":"sha256:../../../etc/passwd"}]}`))
		}, "is no digest"},
		"with a folder as index": {func(l *layoutDir) {
			os.Remove(filepath.Join(l.dir, "index.json"))
			os.Mkdir(filepath.Join(l.dir, "index.json"), 0o755)
		}, "no regular file"},
		"that is a file": {func(l *layoutDir) { l.dir = filepath.Join(l.dir, "oci-layout") }, ""},
		"that is absent": {func(l *layoutDir) { l.dir += "/none" }, ""},
	} {
		l := newLayout(t)
		row.spoil(l)
		_, err := l.connect()
		testenv.ErrorSays(t, err, row.want, name)
	}
}

func TestLayoutIsNotTrusted(t *testing.T) {
	l := newLayout(t)
	one := l.manifest("v1", "one", nil)
	l.write("blobs/sha256/"+one.Digest.Encoded(), []byte(strings.Repeat("x", int(one.Size))))
	r := l.open()
	if _, _, err := r.Manifest(t.Context(), one); !errors.As(err, new(*oci.ContentError)) {
		t.Error(err)
	}
	if err := last(r.Referrers(t.Context(), one, "")); !errors.As(err, new(*oci.ContentError)) {
		t.Error(err)
	}
	l.manifest("twice", "two", nil)
	l.manifest("twice", "three", nil)
	_, err := l.open().Head(t.Context(), "twice")
	testenv.ErrorSays(t, err, "two manifests")
}

func TestLayoutStaysInside(t *testing.T) {
	l := newLayout(t)
	secret := filepath.Join(t.TempDir(), "secret")
	content := []byte("secret")
	d := ocispec.Descriptor{Digest: digest.FromBytes(content), Size: int64(len(content))}
	l.write("blobs/sha256/keep", nil)
	if err := errors.Join(os.WriteFile(secret, content, 0o600), os.Symlink(secret, filepath.Join(l.dir, "blobs", "sha256", d.Digest.Encoded()))); err != nil {
		t.Skip("no symbolic links here: ", err)
	}
	if _, err := l.open().Blob(t.Context(), d); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Error(fmt.Sprint("a link led outside: ", err))
	}
}

// write creates a file below dir, with its parent directories.
func write(t *testing.T, dir, name, content string) {
	t.Helper()
	name = filepath.Join(dir, filepath.FromSlash(name))
	must(t, os.MkdirAll(filepath.Dir(name), 0o755))
	must(t, os.WriteFile(name, []byte(content), 0o644))
}

// save writes tags of team/app to an image layout.
func (r *setup) save(tags ...string) (dir string) {
	r.Helper()
	dir = r.TempDir()
	layout, err := orasoci.New(dir)
	must(r, err)
	from, err := remote.NewRepository(r.g.Host + "/team/app")
	must(r, err)
	from.PlainHTTP = true
	from.Client = &auth.Client{Credential: auth.StaticCredential(r.g.Host, auth.Credential{Username: "user", Password: canary})}
	for _, tag := range tags {
		_, err := oras.Copy(r.Context(), from, tag, layout, tag, oras.DefaultCopyOptions)
		must(r, err)
	}
	return dir
}

func TestLocalDirectory(t *testing.T) {
	r := newSetup(t, testenv.RegistryConfig{})
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
	r.mustRefuse(r.object("copied", copied), nil, layerFailed, "local directory "+dir, "no layer to copy")
	r.mustRefuse(r.object("verified", signed), nil, "VerificationError", "has no signature", "cosign")
	r.local[r.g.URL("team/app")] = filepath.Join(dir, "absent")
	r.mustRefuse(r.object("absent", nil), nil, pullFailed, "absent")
	testenv.Equal(t, r.g.Count(), 0, "requests")
}

func TestLocalLayout(t *testing.T) {
	r := newSetup(t, testenv.RegistryConfig{})
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
	r.mustRefuse(r.object("tag", nil), nil, pullFailed, "latest")
	write(t, dir, "blobs/sha256/"+m.Layers[0].Descriptor().Digest.Encoded(), strings.Repeat("x", len(m.Layers[0].Data)))
	r.mustRefuse(r.object("damaged", verified), nil, pullFailed, "instead of sha256:")
	write(t, dir, ocispec.ImageLayoutFile, `{"imageLayoutVersion":"9"}`)
	r.mustRefuse(r.object("newer", verified), nil, pullFailed, "version")
	r.local[r.g.URL("team/app")] = unsigned
	r.mustRefuse(r.object("unsigned", verified), nil, "VerificationError", "is not signed")
	testenv.Equal(t, r.g.Count(), 0, "requests")
}
