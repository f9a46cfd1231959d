package cosign_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	digest "github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// The programs that testdata is recorded with (testdata/cosign/README.md).
var (
	cosign2 = flag.String("cosign2", "", "record testdata with this program, a cosign 2")
	cosign3 = flag.String("cosign3", "", "and with this one, a cosign 3")
)

// kinds are those of keys that cosign signs with.
var kinds = []struct {
	name string
	make func() (crypto.Signer, error)
}{
	{"p256", func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }},
	{"p384", func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P384(), rand.Reader) }},
	{"p521", func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P521(), rand.Reader) }},
	{"rsa", func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 2048) }},
	{"ed25519", func() (crypto.Signer, error) {
		_, k, err := ed25519.GenerateKey(rand.Reader)
		return k, err
	}},
}

// TestRecord records testdata when the flags name the programs, and else checks
// that there is a key of each kind.
func TestRecord(t *testing.T) {
	if *cosign2 == "" || *cosign3 == "" {
		for _, k := range kinds {
			recorded(t, k.name)
		}
		return
	}
	r := recorder{t, t.TempDir()}
	check(t, os.RemoveAll("../../testdata/cosign/keys"))
	check(t, os.MkdirAll("../../testdata/cosign/keys", 0o755))
	for _, k := range kinds {
		r.makeKey(k.name, k.make)
	}
	r.recordKeyless()
	predicate := filepath.Join(r.dir, "predicate.json")
	check(t, os.WriteFile(predicate, []byte(`{"spdxVersion":"SPDX-2.3"}`), 0o644))
	r.record("cosign2", *cosign2, nil)
	r.record("cosign3", *cosign3, []string{"--use-signing-config=false"})
	r.record("cosign2-bundle", *cosign2, []string{"--new-bundle-format=true"})
	r.record("cosign3-layers", *cosign3, []string{"--use-signing-config=false", "--new-bundle-format=false"})
	r.recordAs("attested", func(ref string) {
		r.run(*cosign3, "attest", "--use-signing-config=false", "--tlog-upload=false", "--key", r.path("p256.key"),
			"--type", "spdxjson", "--predicate", predicate, "--allow-http-registry", "--yes", ref)
	})
}

// keyless are signatures of a subject by a sigstore that is no more, and what
// it was trusted by. Nothing of it expires: the time of a signature counts.
type keyless struct {
	Root    json.RawMessage
	Subject digest.Digest
	Bundle  json.RawMessage
	Tiled   json.RawMessage // a bundle with an entry of the second version of Rekor
	Layer   testenv.Blob
}

const keylessFile = "../../testdata/cosign/keyless.json"

// recordKeyless makes the signatures that fuzzing begins with: all its
// processes need the same.
func (r recorder) recordKeyless() {
	r.t.Helper()
	s := newSigstore(r.t)
	k := keyless{Root: json.RawMessage(s.trustedRoot(r.t)), Subject: digest.FromString("subject")}
	o := s.good(k.Subject)
	k.Bundle = bundleText(r.t, o.bundle(r.t))
	k.Layer = *o.layer(r.t)
	o.tiled = true
	k.Tiled = bundleText(r.t, o.bundle(r.t))
	text, err := json.MarshalIndent(k, "", "  ")
	check(r.t, err)
	check(r.t, os.WriteFile(keylessFile, append(text, '\n'), 0o644))
}

func readKeyless(t testing.TB) (k keyless, trust oci.Trust) {
	t.Helper()
	text, err := os.ReadFile(keylessFile)
	check(t, err)
	check(t, json.Unmarshal(text, &k))
	return k, oci.Trust{
		Root:       secret("trusted_root.json", string(k.Root)),
		Identities: []source.OIDCIdentityMatch{{Issuer: "^" + issuer + "$", Subject: "^release@"}},
	}
}

type recorder struct {
	t   *testing.T
	dir string
}

func (r recorder) path(name string) string { return filepath.Join(r.dir, name) }

func (r recorder) run(program string, args ...string) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), program, args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "COSIGN_PASSWORD=", "HOME="+r.dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
}

// makeKey makes a key for cosign, and keeps its public half.
func (r recorder) makeKey(name string, generate func() (crypto.Signer, error)) {
	r.t.Helper()
	k, err := generate()
	check(r.t, err)
	der, err := x509.MarshalPKCS8PrivateKey(k)
	check(r.t, err)
	check(r.t, os.WriteFile(r.path(name+".pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	r.run(*cosign3, "import-key-pair", "--key", name+".pem", "--output-key-prefix", name)
	text, err := os.ReadFile(r.path(name + ".pub"))
	check(r.t, err)
	check(r.t, os.WriteFile(filepath.Join("../../testdata/cosign", "keys", name+".pub"), text, 0o644))
}

// record signs one artifact with every key.
func (r recorder) record(name, program string, flags []string) {
	r.t.Helper()
	r.recordAs(name, func(ref string) {
		for _, k := range kinds {
			args := append([]string{"sign", "--tlog-upload=false", "--key", r.path(k.name + ".key"), "--allow-http-registry", "--yes"}, flags...)
			r.run(program, append(args, ref)...)
		}
	})
}

// recordAs makes the layout of a repository in which sign signed something.
func (r recorder) recordAs(name string, sign func(ref string)) {
	r.t.Helper()
	g := testenv.StartRegistry(r.t, testenv.RegistryConfig{NoReferrers: true})
	d := g.Push("app", "1", testenv.Manifest{Layers: []testenv.Blob{{MediaType: "text/plain", Data: []byte("signed by " + name + "\n")}}})
	sign(g.Host + "/app@" + d.Digest.String())
	w := layoutWriter{r.t, g, filepath.Join("../../testdata/cosign", name), ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}}
	check(r.t, os.RemoveAll(w.dir))
	check(r.t, os.MkdirAll(filepath.Join(w.dir, "blobs", "sha256"), 0o755))
	tag := strings.Replace(d.Digest.String(), ":", "-", 1)
	for _, tag := range []string{"1", tag + ".sig", tag} {
		w.add(tag, tag)
	}
	text, err := json.MarshalIndent(w.index, "", "  ")
	check(r.t, err)
	check(r.t, os.WriteFile(filepath.Join(w.dir, "index.json"), append(text, '\n'), 0o644))
	check(r.t, os.WriteFile(filepath.Join(w.dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644))
}

// A layoutWriter copies manifests and their blobs into a layout.
type layoutWriter struct {
	t     *testing.T
	g     *testenv.Registry
	dir   string
	index ocispec.Index
}

// add copies what reference names, when it names something, as tag. Those that
// an index names come before it.
func (w *layoutWriter) add(reference, tag string) {
	w.t.Helper()
	text := w.g.Manifest("app", reference)
	if text == nil {
		return
	}
	var m struct {
		MediaType string
		Config    ocispec.Descriptor
		Layers    []ocispec.Descriptor
		Manifests []ocispec.Descriptor
	}
	check(w.t, json.Unmarshal(text, &m))
	for _, d := range m.Manifests {
		w.add(d.Digest.String(), "")
	}
	for _, d := range append(m.Layers, m.Config) {
		if d.Digest != "" {
			body, err := connect(w.t, w.g, "app").Blob(w.t.Context(), d)
			check(w.t, err)
			data, err := io.ReadAll(body)
			check(w.t, err)
			w.store(data)
		}
	}
	d := ocispec.Descriptor{MediaType: m.MediaType, Digest: digest.FromBytes(text), Size: int64(len(text))}
	if tag != "" {
		d.Annotations = map[string]string{ocispec.AnnotationRefName: tag}
	}
	w.store(text)
	w.index.Manifests = append(w.index.Manifests, d)
}

func (w *layoutWriter) store(data []byte) {
	w.t.Helper()
	check(w.t, os.WriteFile(filepath.Join(w.dir, "blobs", "sha256", digest.FromBytes(data).Encoded()), data, 0o644))
}
