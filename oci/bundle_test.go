package oci_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	layout "oras.land/oras-go/v2/content/oci"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
)

// bundled returns an archive for a bundle.
func bundled(name, content string) oci.Bundled {
	return oci.Bundled{Name: name, Size: int64(len(content)), Publication: oci.Publication{Revision: "main@sha1:1"},
		Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }}
}

func writeBundle(t *testing.T, lock string, archives ...oci.Bundled) []byte {
	t.Helper()
	var out bytes.Buffer
	must(t, oci.WriteBundle(&out, archives, []byte(lock)))
	return out.Bytes()
}

func openBundle(t *testing.T, text []byte) (*oci.Bundle, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bundle.tar")
	must(t, os.WriteFile(file, text, 0o600))
	b, err := oci.OpenBundle(file)
	if err == nil {
		t.Cleanup(func() { b.Close() })
	}
	return b, err
}

// TestBundle checks that this package and another reader of image layouts read what was written.
func TestBundle(t *testing.T) {
	text := writeBundle(t, "version: 1\n", bundled("GitRepository.default.a", "same"), bundled("Bucket.default.b", "same"))
	if again := writeBundle(t, "version: 1\n", bundled("GitRepository.default.a", "same"), bundled("Bucket.default.b", "same")); !bytes.Equal(text, again) {
		t.Error("equal input gives other bytes")
	}
	b, err := openBundle(t, text)
	must(t, err)
	lock, err := b.Lock(t.Context())
	must(t, err)
	annotations, open, err := b.Find(t.Context(), "Bucket.default.b")
	must(t, err)
	r, err := open()
	must(t, err)
	content, err := io.ReadAll(r)
	if err != nil || string(content) != "same" || string(lock) != "version: 1\n" || annotations[ocispec.AnnotationRevision] != "main@sha1:1" {
		t.Errorf("%v: %q, %q, %v", err, content, lock, annotations)
	}
	_, _, err = b.Find(t.Context(), "GitRepository.default.none")
	testenv.ErrorIs(t, err, fs.ErrNotExist)
	file := filepath.Join(t.TempDir(), "bundle.tar")
	must(t, os.WriteFile(file, text, 0o600))
	other, err := layout.NewFromTar(t.Context(), file)
	must(t, err)
	for _, name := range []string{"GitRepository.default.a", "Bucket.default.b", oci.BundleName} {
		d, err := other.Resolve(context.Background(), name)
		must(t, err)
		if next, err := other.Predecessors(t.Context(), d); err != nil || name != oci.BundleName && len(next) != 1 {
			t.Errorf("%s: %v, %v", name, next, err)
		}
	}
}

// TestBundleHostile checks that invalid and damaged bundles are refused.
func TestBundleHostile(t *testing.T) {
	good := writeBundle(t, "version: 1\n", bundled("GitRepository.default.a", "content of a"))
	files := func(pairs ...string) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		pairs = append([]string{"oci-layout", `{"imageLayoutVersion":"1.0.0"}`}, pairs...)
		for i := 0; i < len(pairs); i += 2 {
			must(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: pairs[i], Mode: 0o644, Size: int64(len(pairs[i+1]))}))
			_, err := w.Write([]byte(pairs[i+1]))
			must(t, err)
		}
		must(t, w.Close())
		return out.Bytes()
	}
	for _, bad := range []struct {
		text []byte
		want string
	}{
		{[]byte("no tar"), "unexpected EOF"},
		{files("other", "x"), "index.json: open index.json"},
		{files("index.json", "{"), "index.json: unexpected end"},
		{files("oci-layout", "{}"), "oci-layout: version"},
		{files("index.json", strings.Repeat(" ", 4<<20+1)), "more than 4194304 bytes"},
		{files("index.json", `{"manifests":[{"digest":"x"}]}`), "entry 0"},
	} {
		if _, err := openBundle(t, bad.text); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%.40q: %v, want %s", bad.text, err, bad.want)
		}
	}
	const none = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a" // of {}
	const blob = "blobs/sha256/44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
	index := func(name, size string) string {
		return `{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"` + none + `","size":` + size + `,"annotations":{"org.opencontainers.image.ref.name":"` + name + `"}}]}`
	}
	for _, bad := range []struct {
		text []byte
		want string
	}{
		{files("index.json", index("a", "2")), "no such file|file does not exist"},
		{files("index.json", index("a", "2"), blob, "{}"), "it has 0 layers"},
		{files("index.json", index("a", "2"), blob, "[]"), "digest"},
		{files("index.json", index("a", "9"), blob, "{}"), "of 9 bytes"},
		{files("index.json", index("a", "5000000"), blob, strings.Repeat("{", 5000000)), "more than 4194304 bytes"},
		{bytes.Replace(good, []byte("content of a"), []byte("content of b"), 1), "digest"},
	} {
		b, err := openBundle(t, bad.text)
		must(t, err)
		name := "a"
		if bytes.Contains(bad.text, []byte("GitRepository.default.a")) {
			name = "GitRepository.default.a"
		}
		_, open, err := b.Find(t.Context(), name)
		if err == nil {
			var r io.ReadCloser
			if r, err = open(); err == nil {
				_, err = io.ReadAll(r)
			}
		}
		matched := false
		for want := range strings.SplitSeq(bad.want, "|") {
			matched = matched || err != nil && strings.Contains(err.Error(), want)
		}
		if !matched {
			t.Errorf("%.60q: %v, want %s", bad.text, err, bad.want)
		}
	}
	for _, text := range [][]byte{files("index.json", index("a", "2"), blob, "{}"), files("index.json", index("bundle", "2"), blob, "{}")} {
		b, err := openBundle(t, text)
		must(t, err)
		if lock, err := b.Lock(t.Context()); err == nil {
			t.Errorf("the lock is %q", lock)
		}
	}
	failing := bundled("a", "text")
	failing.Open = func() (io.ReadCloser, error) { return nil, errors.New("it is gone") }
	testenv.ErrorSays(t, oci.WriteBundle(io.Discard, []oci.Bundled{failing}, nil), "a: it is gone")
}
