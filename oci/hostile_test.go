package oci_test

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/source"
)

const (
	pullFailed  = "OCIArtifactPullFailed"
	layerFailed = "OCIArtifactLayerOperationFailed"
	listFailed  = "ReadOperationFailed"
	authFailed  = "AuthenticationFailed"
)

// An attack is a way in which a registry attacks clients that request team/app:latest.
type attack struct {
	name   string
	defect *testenv.Defect
	plant  func(r *setup) // changes the content of the registry; nil: pushes a newer valid artifact
	spec   func(*source.OCIRepositorySpec)
	limits artifact.Limits
	reason string
	says   []string // parts of the error
}

// try publishes a valid artifact, and then applies the attack to an object that has it, and
// to one that has none.
func (h attack) try(t *testing.T, c testenv.RegistryConfig) {
	r := newSetup(t, c)
	h.limits.Temp, r.limits = r.limits.Temp, h.limits
	r.push(testenv.TarGzip(t, text("a", "one\n")))
	app := r.object("app", nil)
	r.mustStore(app)
	if h.plant != nil {
		h.plant(r)
	} else {
		r.push(testenv.TarGzip(t, text("a", "two\n")))
	}
	r.g.Break(h.defect)
	if h.spec != nil {
		h.spec(&app.Spec)
	}
	r.mustRefuse(app, app.Artifact(), h.reason, h.says...)
	r.mustRefuse(r.object("fresh", h.spec), nil, h.reason, h.says...)
}

func TestHostileRegistries(t *testing.T) {
	for _, threats := range [][]attack{hostileManifests, hostileIndexes, hostileLayers, hostileDocuments, hostileAnswers, failures} {
		for _, h := range threats {
			t.Run(h.name, func(t *testing.T) {
				t.Parallel()
				h.try(t, testenv.RegistryConfig{Username: "user", Password: canary})
			})
		}
	}
}

// raw returns a function that stores the text of a manifest under the tag latest.
func raw(mediaType, text string) func(*setup) {
	return func(r *setup) {
		r.g.Override("team/app", "latest", false, mediaType, []byte(text))
		r.plantDigest(mediaType, text)
	}
}

// plantDigest stores the text of a manifest under its digest.
func (r *setup) plantDigest(mediaType, text string) ocispec.Descriptor {
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromString(text), Size: int64(len(text))}
	r.g.Override("team/app", d.Digest.String(), false, mediaType, []byte(text))
	return d
}

// manifestOf returns the text of a manifest whose only layer has the descriptor layer.
func manifestOf(layer string) string {
	return `{"schemaVersion":2,"mediaType":"` + ocispec.MediaTypeImageManifest + `","config":{},"layers":[` + layer + `]}`
}

const someDigest = "sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03" // of hello\n

var hostileManifests = []attack{
	{name: "null", plant: raw(ocispec.MediaTypeImageManifest, "null"), reason: layerFailed, says: []string{"it has no layers"}},
	{name: "schema 1", plant: raw("application/vnd.docker.distribution.manifest.v1+json", `{"schemaVersion":1,"fsLayers":[]}`), reason: pullFailed, says: []string{"none of a manifest or an index", "push it again"}},
	{name: "descriptor without a digest", plant: raw("", manifestOf(`{"size":1}`)), reason: layerFailed, says: []string{"digest"}},
	{name: "descriptor with a path for a digest", plant: raw("", manifestOf(`{"digest":"sha256:../../../etc/passwd","size":1}`)), reason: layerFailed, says: []string{"digest"}},
	{name: "descriptor with a negative size", plant: raw("", manifestOf(`{"digest":"`+someDigest+`","size":-1}`)), reason: layerFailed, says: []string{"size"}},
	{name: "descriptor with a size that is no number", plant: raw("", manifestOf(`{"digest":"`+someDigest+`","size":1e99}`)), reason: pullFailed, says: []string{"size"}},
	{name: "descriptor with a size beyond all limits", plant: raw("", manifestOf(`{"digest":"`+someDigest+`","size":9000000000000000000}`)), reason: layerFailed, says: []string{"more than", "raise the limit"}},
	{name: "manifest larger than allowed", plant: raw(ocispec.MediaTypeImageManifest, manifestOf("")+strings.Repeat(" ", 5<<20)), reason: pullFailed, says: []string{"more than 4194304"}},
	{name: "digest in the header of something else", defect: header(testenv.HeadManifest, "Docker-Content-Digest", someDigest), reason: pullFailed, says: []string{"404"}},
}

// header returns a defect that changes one header of responses.
func header(phase testenv.Phase, name, value string) *testenv.Defect {
	return &testenv.Defect{Phase: phase, Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(&changedHeader{w, name, value}, r)
	}}
}

type changedHeader struct {
	http.ResponseWriter
	name, value string
}

func (a *changedHeader) Write(b []byte) (int, error) {
	a.Header().Set(a.name, a.value)
	return a.ResponseWriter.Write(b)
}

func (a *changedHeader) WriteHeader(code int) {
	a.Header().Set(a.name, a.value)
	a.ResponseWriter.WriteHeader(code)
}

// indexOf returns a function that stores an index under the tag latest.
func indexOf(entries string) func(*setup) {
	return raw(ocispec.MediaTypeImageIndex, `{"schemaVersion":2,"mediaType":"`+ocispec.MediaTypeImageIndex+`","manifests":[`+entries+`]}`)
}

func entryOf(d ocispec.Descriptor) string {
	text, _ := json.Marshal(d)
	return string(text)
}

var hostileIndexes = []attack{
	{name: "index of what is not there", plant: indexOf(`{"digest":"` + someDigest + `","size":1}`), reason: pullFailed, says: []string{"404", someDigest}},
	{name: "index with a negative size", plant: indexOf(`{"digest":"` + someDigest + `","size":-5}`), reason: pullFailed, says: []string{"size"}},
	{name: "index that leads to itself", plant: func(r *setup) {
		d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: someDigest}
		indexOf(entryOf(d))(r)
		r.g.Override("team/app", someDigest, false, ocispec.MediaTypeImageIndex, []byte(`{"schemaVersion":2,"manifests":[`+entryOf(d)+`]}`))
	}, reason: pullFailed, says: []string{"instead of " + someDigest}},
	{name: "index whose entry has another size", plant: func(r *setup) {
		d := r.g.Push("team/app", "", testenv.Manifest{})
		d.Size++
		indexOf(entryOf(d))(r)
	}, reason: pullFailed, says: []string{"ends after"}},
}

// wrongLayerSize publishes a layer whose descriptor has a wrong size.
func wrongLayerSize(delta int64) func(*setup) {
	return func(r *setup) {
		b := testenv.TarGzip(r, text("a", "two\n"))
		d := r.g.PushBlob("team/app", b)
		d.Size += delta
		raw(ocispec.MediaTypeImageManifest, manifestOf(entryOf(d)))(r)
	}
}

// layerOf publishes a layer.
func layerOf(make func(testing.TB) []byte) func(*setup) {
	return func(r *setup) { r.push(testenv.Blob{MediaType: testenv.LayerTarGzip, Data: make(r)}) }
}

// unsized answers without Content-Length.
func unsized(w http.ResponseWriter, r *http.Request, next http.Handler) {
	next.ServeHTTP(&chunked{w}, r)
}

type chunked struct{ http.ResponseWriter }

func (c *chunked) WriteHeader(code int) {
	c.Header().Del("Content-Length")
	c.ResponseWriter.WriteHeader(code)
}

func zeros(n int64) []testenv.TarEntry {
	return []testenv.TarEntry{{Header: tar.Header{Name: "zeros", Mode: 0o644, Typeflag: tar.TypeReg}, Data: make([]byte, n)}}
}

var hostileLayers = []attack{
	{name: "larger than its descriptor says, length untold", plant: wrongLayerSize(-1), defect: &testenv.Defect{Phase: testenv.GetBlob, Do: testenv.Serve, Handler: unsized},
		reason: pullFailed, says: []string{"goes on behind its"}},
	{name: "smaller than its descriptor says, length untold", plant: wrongLayerSize(+1), defect: &testenv.Defect{Phase: testenv.GetBlob, Do: testenv.Serve, Handler: unsized},
		reason: pullFailed, says: []string{"ends after"}},

	{name: "ratio of a zstd bomb", plant: layerOf(func(t testing.TB) []byte { return testenv.Zstd(t, testenv.Tar(t, zeros(17<<20)...)) }),
		reason: layerFailed, says: []string{"more than 1000", "raise the limit"}},
	{name: "bytes", plant: layerOf(func(t testing.TB) []byte { return testenv.Gzip(t, testenv.Tar(t, zeros(2<<20)...)) }), limits: artifact.Limits{Bytes: 1 << 20},
		reason: layerFailed, says: []string{"more than 1048576", "raise the limit"}},
	{name: "bytes when copied", plant: layerOf(func(testing.TB) []byte { return make([]byte, 2<<20) }), limits: artifact.Limits{Bytes: 1 << 20}, spec: copied,
		reason: layerFailed, says: []string{"more than 1048576", "raise the limit"}},
	{name: "other bytes behind the archive", plant: func(r *setup) {
		b := testenv.Blob{MediaType: testenv.LayerTarZstd, Data: testenv.Zstd(r, testenv.Tar(r, testenv.TarEntries(text("a", "two\n"))...))}
		b.Data = append(b.Data, "\x50\x2a\x4d\x18\x04\x00\x00\x00skip"...) // decoders skip this frame
		r.push(b)
		other := append(b.Data[:len(b.Data)-1:len(b.Data)-1], '!')
		r.g.Override("team/app", b.Descriptor().Digest.String(), true, "", other)
	}, reason: pullFailed, says: []string{"instead of sha256:"}},
	{name: "no archive", plant: layerOf(func(testing.TB) []byte { return []byte("\x00asm" + strings.Repeat("\x01", 600)) }), reason: layerFailed,
		says: []string{"its media type is ", "set spec.layerSelector.operation to copy"}},
	{name: "negative size of a file", plant: layerOf(func(t testing.TB) []byte { return negative(testenv.Tar(t, zeros(100)...)) }), reason: layerFailed, says: []string{"invalid tar header"}},
	{name: "hard link that leads out", plant: layerOf(func(t testing.TB) []byte {
		return testenv.Tar(t, testenv.TarEntry{Header: tar.Header{Typeflag: tar.TypeLink, Name: "../h", Linkname: "a"}})
	}), reason: layerFailed, says: []string{"leads out of the archive"}},
	{name: "ignore file that is none", plant: layerOf(func(t testing.TB) []byte {
		return testenv.TarGzip(t, text(".sourceignore", strings.Repeat("a", 1<<16))).Data
	}), reason: "SourceIgnoreError", says: []string{".sourceignore:1"}},
}

// negative sets the size of the first entry of a tar archive to -1.
func negative(archive []byte) []byte {
	copy(archive[124:136], strings.Repeat("\xff", 12))
	copy(archive[148:156], "        ")
	sum := 0
	for _, b := range archive[:512] {
		sum += int(b)
	}
	copy(archive[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return archive
}

func copied(s *source.OCIRepositorySpec) {
	s.LayerSelector = &source.OCILayerSelector{Operation: source.LayerCopy}
}

func ranged(s *source.OCIRepositorySpec) { s.Ref = &source.OCIRepositoryRef{SemVer: "*"} }

// shortTimeout sets a short timeout for the step that stalls; earlier steps may take longer (see
// setup.Stalls).
func shortTimeout(s *source.OCIRepositorySpec) { s.Timeout = source.Duration(250 * time.Millisecond) }

func shortTimeoutSigned(s *source.OCIRepositorySpec) { shortTimeout(s); signed(s) }

// flood answers with a status and a very long text.
func flood(status int) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.WriteHeader(status)
		for range 1 << 10 {
			if _, err := fmt.Fprint(w, strings.Repeat("\x1b[2Jwell ", 1<<10)); err != nil {
				return
			}
		}
	}
}

var hostileAnswers = []attack{
	{name: "tags with hostile names alone", defect: tagged("../../up", "1.0.0\x1b[2J", "sha256:1", "1.0.0/x", strings.Repeat("1", 200), ""), spec: ranged,
		reason: listFailed, says: []string{"no tag"}},
	{name: "refusal without end", defect: &testenv.Defect{Do: testenv.Serve, Handler: flood(403)}, reason: authFailed, says: []string{"403", "check the credentials"}},
	{name: "redirect without end", defect: &testenv.Defect{Phase: testenv.GetBlob, Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		http.Redirect(w, r, r.URL.Path+"?more="+r.URL.Query().Get("more")+"x", http.StatusTemporaryRedirect)
	}}, reason: pullFailed, says: []string{"redirect"}},
	{name: "headers without end", defect: &testenv.Defect{Phase: testenv.HeadManifest, Do: testenv.Serve, Handler: func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		for i := range 1 << 10 {
			w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 16<<10))
		}
	}}, reason: pullFailed, says: []string{"header"}},
	{name: "not HTTP", defect: &testenv.Defect{Do: testenv.Serve, Handler: func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			fmt.Fprint(conn, "220 mail.example.invalid ESMTP\r\n")
			conn.Close()
		}
	}}, reason: pullFailed, says: []string{"malformed HTTP"}},
	{name: "layer in drops", defect: &testenv.Defect{Phase: testenv.GetBlob, Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		for range time.Tick(10 * time.Millisecond) {
			if _, err := w.Write([]byte{0x1f}); err != nil || r.Context().Err() != nil {
				return
			}
			http.NewResponseController(w).Flush()
		}
	}}, spec: shortTimeout, reason: pullFailed, says: []string{"layer", "spec.timeout"}},
	{name: "stall in the referrers", defect: &testenv.Defect{Phase: testenv.ListReferrers, Do: testenv.Stall, After: 5}, spec: shortTimeoutSigned, reason: "VerificationError", says: []string{"verify", "spec.timeout"}},
	{name: "referrers without end", defect: &testenv.Defect{Phase: testenv.ListReferrers, Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
		w.Header().Set("Link", "<"+r.URL.Path+"?more="+r.URL.Query().Get("more")+`x>; rel="next"`)
		fmt.Fprint(w, `{"schemaVersion":2,"manifests":[]}`)
	}}, spec: signed, reason: "VerificationError", says: []string{"referrers"}},
}

// tagged returns a defect that answers with this list of tags.
func tagged(names ...string) *testenv.Defect {
	body, _ := json.Marshal(map[string]any{"name": "team/app", "tags": names})
	return &testenv.Defect{Phase: testenv.ListTags, Status: 200, Body: string(body)}
}

// TestGigabytes checks that memory use is bounded if a registry answers a request for a
// document with a gigabyte.
func TestGigabytes(t *testing.T) {
	const most = 128 << 20 // bytes that a run may allocate, including those of the registry and of the race detector
	for _, c := range []struct {
		phase  testenv.Phase
		bearer *testenv.Bearer
		spec   func(*source.OCIRepositorySpec)
		reason string
	}{
		{testenv.GetManifest, nil, nil, pullFailed},
		{testenv.GetBlob, nil, nil, pullFailed},
		{testenv.ListTags, nil, ranged, listFailed},
		{testenv.GetToken, &testenv.Bearer{}, nil, pullFailed},
		{testenv.ListReferrers, nil, signed, "VerificationError"},
	} {
		t.Run(string(c.phase), func(t *testing.T) {
			r := newSetup(t, testenv.RegistryConfig{Username: "user", Password: canary, Bearer: c.bearer})
			r.push(testenv.TarGzip(t, text("a", "one\n")))
			r.g.Break(&testenv.Defect{Phase: c.phase, Do: testenv.OversizedBody, After: 1 << 30})
			obj := r.object("app", c.spec)
			if n := measure.AllocatedBytes(func() { r.mustRefuse(obj, nil, c.reason) }); n > most {
				t.Errorf("%d MiB were allocated", n>>20)
			}
		})
	}
}

// TestBlobStreams checks that a blob is streamed, not held in memory.
func TestBlobStreams(t *testing.T) {
	const size = 32 << 20
	h := digest.Canonical.Digester()
	zeros := make([]byte, 1<<20)
	for range size >> 20 {
		h.Hash().Write(zeros)
	}
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	g.Break(serve(testenv.GetBlob, func(w http.ResponseWriter, _ *http.Request) {
		for range size >> 20 {
			w.Write(zeros)
		}
	}))
	r := plain(t, g)
	used := measure.AllocatedBytes(func() {
		content, err := r.Blob(t.Context(), ocispec.Descriptor{Digest: h.Digest(), Size: size})
		must(t, err)
		defer content.Close()
		if n, err := io.Copy(io.Discard, content); n != size || err != nil {
			t.Error(n, err)
		}
	})
	if used > 8<<20 {
		t.Errorf("%d MiB were allocated", used>>20)
	}
}
