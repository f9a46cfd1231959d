package oci_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
)

// What a registry leaves out is found out by other means.
func TestHeadFallback(t *testing.T) {
	for name, row := range map[string]struct {
		defect *testenv.Defect
		gets   int
	}{
		"no HEAD":           {&testenv.Defect{Phase: testenv.HeadManifest, Status: http.StatusMethodNotAllowed}, 1},
		"HEAD not done":     {&testenv.Defect{Phase: testenv.HeadManifest, Status: http.StatusNotImplemented}, 1},
		"no digest":         {without(testenv.HeadManifest, "Docker-Content-Digest"), 1},
		"no digest at all":  {without("", "Docker-Content-Digest"), 1},
		"no length":         {without(testenv.HeadManifest, "Content-Length"), 0},
		"no type":           {without("", "Content-Type"), 0},
		"nothing but bytes": {without("", "Content-Type", "Content-Length", "Docker-Content-Digest"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := testenv.StartRegistry(t, testenv.RegistryConfig{})
			want := g.Push("team/app", "v1", layer("x"))
			g.Break(row.defect)
			r := plain(t, g)
			for _, reference := range []string{"v1", want.Digest.String()} {
				g.Reset()
				d, err := r.Head(t.Context(), reference)
				if err != nil || d.Digest != want.Digest || d.Size != 0 && d.Size != want.Size || g.Count(testenv.GetManifest) != row.gets {
					t.Error(reference, d, err, g.Count(testenv.GetManifest))
				}
				d, _, err = r.Manifest(t.Context(), d)
				if err != nil || d.Digest != want.Digest || d.Size != want.Size || d.MediaType != want.MediaType {
					t.Error(reference, d, err)
				}
			}
		})
	}
}

func TestHostileManifests(t *testing.T) {
	const manifest, index = ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex
	good := `{"schemaVersion":2,"config":{},"layers":[]}`
	for name, row := range map[string]struct {
		header, text string
		d            ocispec.Descriptor // digest and size are those of text when it has none
		want         string             // part of the error
		mediaType    string             // of the result, when there is no error
	}{
		"of other content":          {manifest, good, ocispec.Descriptor{Digest: digest.FromString("other")}, "instead of", ""},
		"that is longer":            {manifest, good, ocispec.Descriptor{Size: 10}, "goes on behind its 10 bytes", ""},
		"that is shorter":           {manifest, good, ocispec.Descriptor{Size: 1000}, "of 1000 bytes", ""},
		"of two types, header":      {index, `{"mediaType":"` + manifest + `","layers":[]}`, ocispec.Descriptor{}, "here and", ""},
		"of two types, descriptor":  {"", `{"mediaType":"` + manifest + `","layers":[]}`, ocispec.Descriptor{MediaType: index}, "here and", ""},
		"of two types, no field":    {manifest, good, ocispec.Descriptor{MediaType: index}, "here and", ""},
		"of both kinds":             {manifest, `{"layers":[],"manifests":[]}`, ocispec.Descriptor{}, "at once", ""},
		"of the other kind":         {manifest, `{"manifests":[]}`, ocispec.Descriptor{}, "not what its media type", ""},
		"of the other kind, index":  {index, good, ocispec.Descriptor{}, "not what its media type", ""},
		"that is no JSON":           {manifest, "<html>", ocispec.Descriptor{}, "no manifest", ""},
		"that is empty":             {manifest, "", ocispec.Descriptor{}, "no manifest", ""},
		"nested without end":        {manifest, strings.Repeat("[", 1<<20), ocispec.Descriptor{}, "no manifest", ""},
		"of no type":                {"", `{}`, ocispec.Descriptor{}, "nothing tells", ""},
		"of a vague type":           {"application/json; charset=utf-8", `{"mediaType":"` + index + `","manifests":[]}`, ocispec.Descriptor{}, "", index},
		"of a malformed type":       {";;", good, ocispec.Descriptor{}, "", manifest},
		"that looks like an index":  {"text/plain", `{"manifests":[]}`, ocispec.Descriptor{}, "", index},
		"whose descriptor knows":    {"", `{"x":1}`, ocispec.Descriptor{MediaType: "application/x.y"}, "", "application/x.y"},
		"with a digest of nothing":  {manifest, good, ocispec.Descriptor{Digest: "sha256:../../x"}, "is no digest", ""},
		"with a digest of md5":      {manifest, good, ocispec.Descriptor{Digest: "md5:d41d8cd98f00b204e9800998ecf8427e"}, "is no digest", ""},
		"with a digest, upper case": {manifest, good, ocispec.Descriptor{Digest: digest.Digest("sha256:" + strings.Repeat("A", 64))}, "is no digest", ""},
		"with a digest of sha512":   {manifest, good, ocispec.Descriptor{Digest: digest.SHA512.FromString(good)}, "", manifest},
	} {
		t.Run(name, func(t *testing.T) {
			g := testenv.StartRegistry(t, testenv.RegistryConfig{})
			if row.d.Digest == "" {
				row.d.Digest = digest.FromString(row.text)
			}
			g.Plant("team/app", row.d.Digest.String(), false, row.header, []byte(row.text))
			d, content, err := plain(t, g).Manifest(t.Context(), row.d)
			switch {
			case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
				t.Error(err)
			case row.want == "" && (err != nil || d.MediaType != row.mediaType || string(content) != row.text || d.Size != int64(len(row.text))):
				t.Error(d, err)
			}
		})
	}
}

func TestHeadLies(t *testing.T) {
	for name, claim := range map[string]string{"of no digest": "sha256:xyz", "of another digest": digest.FromString("y").String()} {
		g := testenv.StartRegistry(t, testenv.RegistryConfig{})
		g.Break(serve(testenv.HeadManifest, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Docker-Content-Digest", claim) }))
		if _, err := plain(t, g).Head(t.Context(), digest.FromString("x").String()); err == nil {
			t.Error(name, "is accepted")
		}
	}
	r := plain(t, testenv.StartRegistry(t, testenv.RegistryConfig{}))
	for _, reference := range []string{"", "a b", "-x", "../x", "v1?x", "sha256:abc", strings.Repeat("x", 129), "a/b", "v1\n"} {
		if _, err := r.Head(t.Context(), reference); err == nil || !strings.Contains(err.Error(), "neither a tag") {
			t.Errorf("%q: %v", reference, err)
		}
		if err := r.Tag(t.Context(), ocispec.Descriptor{Digest: digest.FromString("x")}, reference); err == nil {
			t.Errorf("%q: is accepted", reference)
		}
	}
}
