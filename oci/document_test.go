package oci_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

const (
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	dockerIndex    = "application/vnd.docker.distribution.manifest.list.v2+json"
	schema1        = "application/vnd.docker.distribution.manifest.v1+prettyjws"
)

// plant serves text as what tag and its digest name.
func (s *site) plant(tag, mediaType, text string) ocispec.Descriptor {
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromString(text), Size: int64(len(text))}
	for _, reference := range []string{tag, d.Digest.String()} {
		s.Plant("team/app", reference, false, mediaType, []byte(text))
	}
	return d
}

// entry is an entry of an index for a platform OS/ARCH[/VARIANT], "" for none.
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
		want      int    // which of them
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
				s := newSite(t, testenv.RegistryConfig{})
				x := testenv.Index{MediaType: mediaType}
				for i, platform := range strings.Fields(row.platforms) {
					m := files(t, "a", fmt.Sprint(i))
					m.Annotations = map[string]string{"number": fmt.Sprint(i)}
					if mediaType != "" {
						m.MediaType = dockerManifest
					}
					x.Manifests = append(x.Manifests, entry(s.Push("team/app", "", m), strings.Trim(platform, "-")))
				}
				d := s.PushIndex("team/app", "latest", x)
				r := s.object()
				_, err := s.run(r)
				switch {
				case row.err != "":
					if err == nil || !strings.Contains(err.Error(), row.err) || !strings.Contains(err.Error(), d.Digest.String()) {
						t.Error(err)
					}
				case err != nil:
					t.Error(err)
				case r.Artifact().Revision != "latest@"+d.Digest.String() || r.Artifact().Metadata["number"] != fmt.Sprint(row.want):
					t.Errorf("artifact %+v", r.Artifact())
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

// TestNesting follows indexes in indexes.
func TestNesting(t *testing.T) {
	for depth := range 7 {
		s := newSite(t, testenv.RegistryConfig{})
		d := s.Push("team/app", "latest", files(t, "a", "one"))
		for range depth {
			d = s.PushIndex("team/app", "latest", testenv.Index{Manifests: []ocispec.Descriptor{entry(d, "linux/amd64")}})
		}
		_, err := s.run(s.object())
		if depth <= 4 != (err == nil) || err != nil && !strings.Contains(err.Error(), "nested in more than 4 others") {
			t.Errorf("depth %d: %v", depth, err)
		}
	}
}

// TestIndexOfItself serves an index whose only entry is itself, whatever digest
// that takes, and one that leads to ever new ones.
func TestIndexOfItself(t *testing.T) {
	s := newSite(t, testenv.RegistryConfig{})
	claim := digest.FromString("itself")
	text, _ := json.Marshal(ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex,
		Manifests: []ocispec.Descriptor{{MediaType: ocispec.MediaTypeImageIndex, Digest: claim, Size: 0}}})
	s.Plant("team/app", claim.String(), false, ocispec.MediaTypeImageIndex, text)
	s.plant("latest", ocispec.MediaTypeImageIndex, string(text))
	if err := s.want(s.object(), source.Failed); !strings.Contains(err.Error(), claim.String()) {
		t.Error(err)
	}
}

func TestHostileDocuments(t *testing.T) {
	manifest := func(rest string) string {
		return `{"schemaVersion":2,"mediaType":"` + ocispec.MediaTypeImageManifest + `",` + rest + `}`
	}
	index := func(rest string) string {
		return `{"schemaVersion":2,"mediaType":"` + ocispec.MediaTypeImageIndex + `",` + rest + `}`
	}
	long := strings.Repeat("x", 1<<20)
	for name, row := range map[string]struct{ mediaType, text, reason, err string }{
		"docker schema 1":            {schema1, `{"schemaVersion":1,"fsLayers":[]}`, "OCIArtifactPullFailed", "docker schema 1"},
		"an artifact manifest":       {"application/vnd.oci.artifact.manifest.v1+json", `{"mediaType":"application/vnd.oci.artifact.manifest.v1+json","blobs":[]}`, "OCIArtifactPullFailed", "draft of OCI 1.1"},
		"a config":                   {"application/vnd.oci.image.config.v1+json", `{"os":"linux"}`, "OCIArtifactPullFailed", "none of a manifest or an index"},
		"a page":                     {"text/html", `<html>`, "OCIArtifactPullFailed", "no manifest"},
		"nothing":                    {ocispec.MediaTypeImageManifest, ``, "OCIArtifactPullFailed", "no manifest"},
		"null":                       {ocispec.MediaTypeImageManifest, `null`, "OCIArtifactLayerOperationFailed", "no layers"},
		"no layers":                  {ocispec.MediaTypeImageManifest, manifest(`"layers":[]`), "OCIArtifactLayerOperationFailed", "no layers"},
		"layers that are no list":    {ocispec.MediaTypeImageManifest, manifest(`"layers":{}`), "OCIArtifactPullFailed", "no list"},
		"a layer that is no object":  {ocispec.MediaTypeImageManifest, manifest(`"layers":[7]`), "OCIArtifactPullFailed", "cannot be read"},
		"annotations of numbers":     {ocispec.MediaTypeImageManifest, manifest(`"annotations":{"a":7}`), "OCIArtifactPullFailed", "cannot be read"},
		"a negative size":            {ocispec.MediaTypeImageManifest, manifest(`"layers":[{"digest":"` + digest.FromString("x").String() + `","size":-1}]`), "OCIArtifactLayerOperationFailed", "has the size -1"},
		"a size that is no number":   {ocispec.MediaTypeImageManifest, manifest(`"layers":[{"size":"1"}]`), "OCIArtifactPullFailed", "cannot be read"},
		"a huge size":                {ocispec.MediaTypeImageManifest, manifest(`"layers":[{"digest":"` + digest.FromString("x").String() + `","size":99999999999999999999}]`), "OCIArtifactPullFailed", "cannot be read"},
		"no digest":                  {ocispec.MediaTypeImageManifest, manifest(`"layers":[{"size":1}]`), "OCIArtifactLayerOperationFailed", "digest"},
		"a digest with a path":       {ocispec.MediaTypeImageManifest, manifest(`"layers":[{"digest":"sha256:../../x","size":1}]`), "OCIArtifactLayerOperationFailed", "digest"},
		"a long digest":              {ocispec.MediaTypeImageManifest, manifest(`"layers":[{"digest":"` + long + `","size":1}]`), "OCIArtifactLayerOperationFailed", "digest"},
		"100,000 layers":             {ocispec.MediaTypeImageManifest, manifest(`"layers":[` + strings.Repeat("{},", 99_999) + `{}]`), "OCIArtifactPullFailed", "more than 10000 entries"},
		"a million entries":          {ocispec.MediaTypeImageIndex, index(`"manifests":[` + strings.Repeat("{},", 999_999) + `{}]`), "OCIArtifactPullFailed", "more than 10000 entries"},
		"an index as a manifest":     {ocispec.MediaTypeImageManifest, manifest(`"manifests":[]`), "OCIArtifactPullFailed", "not what its media type"},
		"a manifest as an index":     {ocispec.MediaTypeImageIndex, index(`"layers":[]`), "OCIArtifactPullFailed", "not what its media type"},
		"both at once":               {ocispec.MediaTypeImageIndex, index(`"manifests":[],"layers":[]`), "OCIArtifactPullFailed", "at once"},
		"an entry without a digest":  {ocispec.MediaTypeImageIndex, index(`"manifests":[{"size":1}]`), "OCIArtifactPullFailed", "digest"},
		"an entry of negative size":  {ocispec.MediaTypeImageIndex, index(`"manifests":[{"size":-1,"digest":"` + digest.FromString("x").String() + `"}]`), "OCIArtifactPullFailed", "has the size -1"},
		"an entry that is a config":  {ocispec.MediaTypeImageIndex, index(`"manifests":[{"mediaType":"` + schema1 + `","size":1,"digest":"` + digest.FromString("x").String() + `"}]`), "OCIArtifactPullFailed", "docker schema 1"},
		"platforms of control codes": {ocispec.MediaTypeImageIndex, index(`"manifests":[{"platform":{"os":"\u001b[2J` + long + `","architecture":"\u202e"}}]`), "OCIArtifactPullFailed", `\x1b[2J`},
		"deep nesting of JSON":       {ocispec.MediaTypeImageManifest, manifest(`"annotations":` + strings.Repeat("[", 100_000)), "OCIArtifactPullFailed", "no manifest"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, testenv.RegistryConfig{})
			s.plant("latest", row.mediaType, row.text)
			r := s.object()
			err := s.want(r, source.Failed)
			c := r.Common().Condition(source.FetchFailedCondition)
			if c.Reason != row.reason || !strings.Contains(c.Message, row.err) {
				t.Errorf("%+v", c)
			}
			if len(err.Error()) > 4096 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			if r.Artifact() != nil || s.Count(testenv.GetBlob) > 0 {
				t.Error("went on")
			}
		})
	}
}

func TestLayer(t *testing.T) {
	blob := func(mediaType, text string) testenv.Blob {
		return testenv.Blob{MediaType: mediaType, Data: []byte(text)}
	}
	m := testenv.Manifest{Layers: []testenv.Blob{blob("text/a", "one"), blob("text/b", "two"), blob("text/b", "three")}}
	for _, mediaType := range []string{"", dockerManifest} {
		m.MediaType = mediaType
		s := newSite(t, testenv.RegistryConfig{})
		s.Push("team/app", "latest", m)
		for want, text := range map[string]string{"": "one", "text/a": "one", "text/b": "two", "text/c": ""} {
			r := s.object(func(spec *source.OCIRepositorySpec) {
				spec.LayerSelector = &source.OCILayerSelector{MediaType: want, Operation: source.LayerCopy}
			})
			if text == "" {
				s.want(r, source.Failed)
				c := r.Common().Condition(source.FetchFailedCondition)
				if c.Reason != "OCIArtifactLayerOperationFailed" || !strings.Contains(c.Message, `only "text/a", "text/b"`) {
					t.Errorf("%q: %+v", want, c)
				}
				continue
			}
			if _, err := s.run(r); err != nil || r.Artifact().Digest != digest.FromString(text).String() {
				t.Errorf("%q: %+v %v", want, r.Artifact(), err)
			}
		}
	}
}

// FuzzDocument resolves and opens what the text of a manifest or index leads to.
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
		s := &site{Registry: g, t: t}
		want := s.plant("latest", types[int(which)%len(types)], text)
		o := s.origin(s.object())
		rev, _, err := o.Resolve(t.Context(), nil)
		if err != nil {
			return
		}
		if rev.ID != "latest@"+want.Digest.String() {
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
