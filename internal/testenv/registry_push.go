package testenv

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// A Blob is content to which a manifest refers: a layer or a config.
type Blob struct {
	MediaType   string
	Data        []byte
	Annotations map[string]string
}

// Descriptor returns the descriptor of b.
func (b Blob) Descriptor() ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: b.MediaType, Digest: digest.FromBytes(b.Data), Size: int64(len(b.Data)), Annotations: b.Annotations}
}

// A Manifest describes a manifest for [Registry.Push] to store.
type Manifest struct {
	MediaType    string // "" means that of an OCI image manifest
	ArtifactType string
	Config       *Blob // nil means the empty JSON object
	Layers       []Blob
	Annotations  map[string]string
	Subject      *ocispec.Descriptor
}

// An Index describes an index for [Registry.PushIndex] to store.
type Index struct {
	MediaType    string // "" means that of an OCI image index
	ArtifactType string
	Manifests    []ocispec.Descriptor
	Annotations  map[string]string
	Subject      *ocispec.Descriptor
}

// emptyConfig is the config of a [Manifest] whose Config is nil.
var emptyConfig = Blob{MediaType: ocispec.MediaTypeEmptyJSON, Data: []byte("{}")}

// Push stores a manifest with its blobs in a repository and, unless tag is "",
// tags it. It makes no request to the server: it needs no credentials, and defects
// do not affect it.
func (g *Registry) Push(repo, tag string, m Manifest) ocispec.Descriptor {
	g.t.Helper()
	config := m.Config
	if config == nil {
		config = &emptyConfig
	}
	out := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: m.MediaType, ArtifactType: m.ArtifactType,
		Config: config.Descriptor(), Layers: []ocispec.Descriptor{}, Annotations: m.Annotations, Subject: m.Subject,
	}
	if out.MediaType == "" {
		out.MediaType = ocispec.MediaTypeImageManifest
	}
	for _, b := range append(slices.Clone(m.Layers), *config) {
		g.put("/v2/"+repo+"/blobs/uploads/?digest="+b.Descriptor().Digest.String(), http.MethodPost, "application/octet-stream", b.Data)
	}
	for _, b := range m.Layers {
		out.Layers = append(out.Layers, b.Descriptor())
	}
	return g.PushRaw(repo, tag, out.MediaType, g.json(out))
}

// PushIndex is [Registry.Push] for an index of manifests that are in the repository already.
func (g *Registry) PushIndex(repo, tag string, x Index) ocispec.Descriptor {
	g.t.Helper()
	out := ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: x.MediaType, ArtifactType: x.ArtifactType,
		Manifests: slices.Concat([]ocispec.Descriptor{}, x.Manifests), Annotations: x.Annotations, Subject: x.Subject,
	}
	if out.MediaType == "" {
		out.MediaType = ocispec.MediaTypeImageIndex
	}
	return g.PushRaw(repo, tag, out.MediaType, g.json(out))
}

// PushRaw stores text as a manifest or index, even if it is not a valid one. In a
// registry without the referrers API it also updates the referrers tag of the subject.
func (g *Registry) PushRaw(repo, tag, mediaType string, text []byte) ocispec.Descriptor {
	g.t.Helper()
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(text), Size: int64(len(text))}
	if tag == "" {
		tag = d.Digest.String()
	}
	g.put("/v2/"+repo+"/manifests/"+tag, http.MethodPut, mediaType, text)
	var m ocispec.Manifest
	if g.config.NoReferrers && json.Unmarshal(text, &m) == nil && m.Subject != nil {
		g.addReferrer(repo, m, d)
	}
	return d
}

// addReferrer adds d to the index under the referrers tag of m.Subject.
func (g *Registry) addReferrer(repo string, m ocispec.Manifest, d ocispec.Descriptor) {
	g.t.Helper()
	tag := strings.ReplaceAll(m.Subject.Digest.String(), ":", "-")
	var x ocispec.Index
	if _, text := g.stored("/v2/" + repo + "/manifests/" + tag); text != nil {
		Must(g.t, json.Unmarshal(text, &x))
	}
	d.ArtifactType, d.Annotations = m.ArtifactType, m.Annotations
	if d.ArtifactType == "" {
		d.ArtifactType = m.Config.MediaType
	}
	if !slices.ContainsFunc(x.Manifests, func(other ocispec.Descriptor) bool { return other.Digest == d.Digest }) {
		g.PushIndex(repo, tag, Index{Manifests: append(x.Manifests, d)})
	}
}

// PushBlob stores a blob without a manifest.
func (g *Registry) PushBlob(repo string, b Blob) ocispec.Descriptor {
	g.t.Helper()
	d := b.Descriptor()
	g.put("/v2/"+repo+"/blobs/uploads/?digest="+d.Digest.String(), http.MethodPost, "application/octet-stream", b.Data)
	return d
}

// Manifest returns the text of the manifest with a tag or digest, or nil if there is none.
func (g *Registry) Manifest(repo, reference string) []byte {
	_, text := g.stored("/v2/" + repo + "/manifests/" + reference)
	return text
}

// Untag removes a tag, or the manifest with a digest.
func (g *Registry) Untag(repo, reference string) {
	g.t.Helper()
	g.put("/v2/"+repo+"/manifests/"+reference, http.MethodDelete, "", nil)
}

func (g *Registry) put(path, method, mediaType string, content []byte) {
	g.t.Helper()
	r := httptest.NewRequest(method, path, bytes.NewReader(content))
	r.Header.Set("Content-Type", mediaType)
	if rec := g.innerAnswer(r); rec.Code/100 != 2 {
		g.t.Fatalf("%s %s: %d %s", method, path, rec.Code, rec.Body)
	}
}

func (g *Registry) json(v any) []byte {
	g.t.Helper()
	text, err := json.Marshal(v)
	Must(g.t, err)
	return text
}

// An override is content that is served under a reference that may not match it.
type override struct {
	mediaType string
	content   []byte
	digest    string
}

// Override makes the registry serve content, whatever its digest, for a reference of a
// repository: the tag or digest of a manifest or, if blob is true, the digest of a blob.
func (g *Registry) Override(repo, reference string, blob bool, mediaType string, content []byte) {
	kind, claim := "manifests", digest.FromBytes(content).String()
	if blob {
		kind = "blobs"
	}
	if strings.Contains(reference, ":") {
		claim = reference
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.overrides[fmt.Sprintf("/v2/%s/%s/%s", repo, kind, reference)] = override{mediaType, content, claim}
}

// serveOverride answers with an override, and reports whether there is any.
func (g *Registry) serveOverride(w http.ResponseWriter, r *http.Request) bool {
	g.mu.Lock()
	p, ok := g.overrides[r.URL.Path]
	g.mu.Unlock()
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	h := w.Header()
	h.Set("Content-Type", p.mediaType)
	h.Set("Content-Length", strconv.Itoa(len(p.content)))
	h.Set("Docker-Content-Digest", p.digest)
	w.Write(p.content) // net/http drops it in an answer to HEAD
	return true
}

// Media types of layers.
const (
	LayerTar     = "application/vnd.oci.image.layer.v1.tar"
	LayerTarGzip = "application/vnd.oci.image.layer.v1.tar+gzip"
	LayerTarZstd = "application/vnd.oci.image.layer.v1.tar+zstd"
)

// TarGzip returns a layer with the files of tree, compressed with gzip.
func TarGzip(t testing.TB, tree fstest.MapFS) Blob {
	t.Helper()
	return Blob{MediaType: LayerTarGzip, Data: Gzip(t, Tar(t, TarEntries(tree)...))}
}

// TarPlain returns a layer with the files of tree, not compressed.
func TarPlain(t testing.TB, tree fstest.MapFS) Blob {
	t.Helper()
	return Blob{MediaType: LayerTar, Data: Tar(t, TarEntries(tree)...)}
}

// An TarEntry is one entry of a tar archive.
type TarEntry struct {
	tar.Header        // Size 0 means the length of Data
	Data       []byte // may be shorter than Size says
}

// TarEntries returns the entries of the files of tree, in the order of their names.
func TarEntries(tree fstest.MapFS) []TarEntry {
	var list []TarEntry
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		f := tree[name]
		mode := int64(f.Mode.Perm())
		if mode == 0 {
			mode = 0o644
		}
		list = append(list, TarEntry{tar.Header{Name: name, Mode: mode, Typeflag: tar.TypeReg}, f.Data})
	}
	return list
}

// Tar returns a tar archive. If the Data of an entry is shorter than its Size, the
// archive is truncated after that Data.
func Tar(t testing.TB, entries ...TarEntry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		h := e.Header
		if h.Size == 0 {
			h.Size = int64(len(e.Data))
		}
		Must(t, w.WriteHeader(&h))
		_, err := w.Write(e.Data)
		Must(t, err)
		if int64(len(e.Data)) < h.Size {
			return out.Bytes()
		}
	}
	Must(t, w.Close())
	return out.Bytes()
}

// Gzip compresses data.
func Gzip(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(data)
	Must(t, err)
	Must(t, w.Close())
	return out.Bytes()
}

// Zstd compresses data.
func Zstd(t testing.TB, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	Must(t, err)
	defer w.Close()
	return w.EncodeAll(data, nil)
}

// A Cosign signs as cosign does with a key, in the older of its two formats: a
// layer whose payload contains the digest, under a tag derived from the digest.
type Cosign struct {
	t   testing.TB
	key *ecdsa.PrivateKey
}

// NewCosign returns a signer whose key is always the same for the same seed.
func NewCosign(t testing.TB, seed byte) *Cosign {
	t.Helper()
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), bytes.Repeat([]byte{seed}, 32))
	Must(t, err)
	return &Cosign{t, key}
}

// Public returns the public key in PEM.
func (c *Cosign) Public() []byte {
	c.t.Helper()
	der, err := x509.MarshalPKIXPublicKey(c.key.Public())
	Must(c.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// Sign publishes a signature of the digest claimed as the signature of subject.
func (c *Cosign) Sign(g *Registry, repo string, subject ocispec.Descriptor, claimed digest.Digest) {
	c.t.Helper()
	payload := []byte(`{"critical":{"identity":{"docker-reference":""},"image":{"docker-manifest-digest":"` + claimed.String() +
		`"},"type":"cosign container image signature"},"optional":null}`)
	sum := sha256.Sum256(payload)
	sig, err := ecdsa.SignASN1(rand.Reader, c.key, sum[:])
	Must(c.t, err)
	g.Push(repo, SignatureTag(subject), Manifest{Layers: []Blob{{
		MediaType: "application/vnd.dev.cosign.simplesigning.v1+json", Data: payload,
		Annotations: map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(sig)},
	}}})
}

// SignatureTag returns the tag of the signature of subject.
func SignatureTag(subject ocispec.Descriptor) string {
	return strings.Replace(subject.Digest.String(), ":", "-", 1) + ".sig"
}
