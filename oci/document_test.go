package oci_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

const (
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	dockerIndex    = "application/vnd.docker.distribution.manifest.list.v2+json"
	schema1        = "application/vnd.docker.distribution.manifest.v1+prettyjws"
)

// entry returns an entry of an index for a platform OS/ARCH[/VARIANT], "" for none.
func entry(d ocispec.Descriptor, platform string) ocispec.Descriptor {
	if platform != "" {
		p := strings.Split(platform+"/", "/")
		d.Platform = &ocispec.Platform{OS: p[0], Architecture: p[1], Variant: p[2]}
	}
	return d
}

func TestPlatform(t *testing.T) {
	for name, row := range map[string]struct {
		platforms string // of the entries, - for none
		want      int    // number of the expected entry
		err       string
	}{
		"the first that matches":     {"linux/arm64 linux/amd64 linux/amd64", 1, ""},
		"none named":                 {"-", 0, ""},
		"none named before":          {"linux/arm64 - linux/amd64", 1, ""},
		"a variant":                  {"linux/amd64/v3 linux/amd64", 0, ""},
		"attestations":               {"unknown/unknown linux/amd64", 1, ""},
		"only others":                {"linux/arm64/v8 windows/amd64 linux/arm64/v8", 0, `nothing for linux/amd64, only "linux/arm64/v8", "windows/amd64"`},
		"too many others to be told": {strings.Repeat("linux/arm64 ", 5) + manyPlatforms(), 0, "11 more"},
		"no entries":                 {"", 0, "only no entries at all"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mediaType := range []string{"", dockerIndex} {
				r := newSetup(t, testenv.RegistryConfig{})
				x := testenv.Index{MediaType: mediaType}
				for i, platform := range strings.Fields(row.platforms) {
					m := files(t, "a", fmt.Sprint(i))
					m.Annotations = map[string]string{"number": fmt.Sprint(i)}
					if mediaType != "" {
						m.MediaType = dockerManifest
					}
					x.Manifests = append(x.Manifests, entry(r.g.Push("team/app", "", m), strings.Trim(platform, "-")))
				}
				d := r.g.PushIndex("team/app", "latest", x)
				obj := r.object("app", nil)
				if row.err != "" {
					r.mustRefuse(obj, nil, pullFailed, row.err, d.Digest.String())
					continue
				}
				r.mustStore(obj)
				if a := obj.Artifact(); a.Revision != "latest@"+d.Digest.String() || a.Metadata["number"] != fmt.Sprint(row.want) {
					t.Errorf("artifact %+v", a)
				}
			}
		})
	}
}

func manyPlatforms() (all string) {
	for i := range 30 {
		all += fmt.Sprintf("os%d/amd64 ", i)
	}
	return all
}

// TestNesting tests nested indexes.
func TestNesting(t *testing.T) {
	for depth := range 7 {
		r := newSetup(t, testenv.RegistryConfig{})
		d := r.g.Push("team/app", "latest", files(t, "a", "one"))
		for range depth {
			d = r.g.PushIndex("team/app", "latest", testenv.Index{Manifests: []ocispec.Descriptor{entry(d, "linux/amd64")}})
		}
		if depth <= 4 {
			r.mustStore(r.object("app", nil))
		} else {
			r.mustRefuse(r.object("app", nil), nil, pullFailed, "nested in more than 4 others")
		}
	}
}

// document stores a document whose field mediaType is set.
func document(mediaType, rest string) func(*setup) {
	return raw(mediaType, `{"schemaVersion":2,"mediaType":"`+mediaType+`",`+rest+`}`)
}

var hostileDocuments = []attack{
	{name: "artifact manifest of a draft", plant: document("application/vnd.oci.artifact.manifest.v1+json", `"blobs":[]`), reason: pullFailed, says: []string{"draft of OCI 1.1"}},
	{name: "layers that are no list", plant: document(ocispec.MediaTypeImageManifest, `"layers":{}`), reason: pullFailed, says: []string{"no list"}},
	{name: "layer that is no object", plant: document(ocispec.MediaTypeImageManifest, `"layers":[7]`), reason: pullFailed, says: []string{"cannot be read"}},
	{name: "annotations of numbers", plant: document(ocispec.MediaTypeImageManifest, `"annotations":{"a":7}`), reason: pullFailed, says: []string{"cannot be read"}},
	{name: "digest of a megabyte", plant: document(ocispec.MediaTypeImageManifest, `"layers":[{"digest":"`+strings.Repeat("x", 1<<20)+`","size":1}]`), reason: layerFailed, says: []string{"digest"}},
	{name: "media types of a megabyte", plant: document(ocispec.MediaTypeImageManifest, `"layers":[{"mediaType":"`+strings.Repeat("x", 1<<20)+`"}]`),
		spec:   func(s *source.OCIRepositorySpec) { s.LayerSelector = &source.OCILayerSelector{MediaType: "text/a"} },
		reason: layerFailed, says: []string{"no layer has the media type"}},
	{name: "very many entries", plant: document(ocispec.MediaTypeImageIndex, `"manifests":[`+strings.Repeat("{},", 99_999)+`{}]`), reason: pullFailed, says: []string{"more than 10000 entries"}},
	{name: "platforms of control characters", plant: document(ocispec.MediaTypeImageIndex, `"manifests":[{"platform":{"os":"\u001b[2J`+strings.Repeat("x", 1<<20)+`","architecture":"\u202e"}}]`),
		reason: pullFailed, says: []string{`\x1b[2J`}},
}

// FuzzDocument resolves and opens a tag with the text of a manifest or index.
func FuzzDocument(f *testing.F) {
	d := digest.FromString("x").String()
	for _, seed := range []string{
		`{"schemaVersion":2,"layers":[{"mediaType":"text/a","digest":"` + d + `","size":1}],"annotations":{"a":"b"}}`,
		`{"schemaVersion":2,"manifests":[{"digest":"` + d + `","size":1,"platform":{"os":"linux","architecture":"amd64"}}]}`,
		`{"schemaVersion":1,"fsLayers":[]}`, `{"layers":null,"manifests":null}`, `{"layers":[null]}`, `{"Layers":[],"layers":{}}`, `[]`, ``,
	} {
		f.Add(seed, uint8(0))
		f.Add(seed, uint8(1))
	}
	types := []string{ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex, dockerManifest, dockerIndex, "", "text/plain", schema1}
	g := testenv.StartRegistry(f, testenv.RegistryConfig{})
	f.Fuzz(func(t *testing.T, text string, which uint8) {
		g.Reset()
		d := digest.FromString(text).String()
		for _, reference := range []string{"latest", d} {
			g.Override("team/app", reference, false, types[int(which)%len(types)], []byte(text))
		}
		o := oci.New(repository(g), source.Env{}, nil)
		rev, _, err := o.Resolve(t.Context(), nil)
		if err != nil {
			return
		}
		if rev.ID != "latest@"+d {
			t.Fatalf("revision %s", rev.ID)
		}
		c, err := o.Open(t.Context(), rev)
		if err != nil {
			return
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestHeadFallback checks that digest, size and media type are determined by other means if
// a registry does not support HEAD or leaves out headers.
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
		d            ocispec.Descriptor // without a digest, digest and size are those of text
		want         string             // part of the error
		mediaType    string             // of the result if there is no error
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
			g.Override("team/app", row.d.Digest.String(), false, row.header, []byte(row.text))
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
		_, err := r.Head(t.Context(), reference)
		testenv.ErrorSays(t, err, "neither a tag", reference)
		if err := r.Tag(t.Context(), ocispec.Descriptor{Digest: digest.FromString("x")}, reference); err == nil {
			t.Errorf("%q: is accepted", reference)
		}
	}
}
