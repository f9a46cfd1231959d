package cosign_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/source"
)

// TestRecordedSignatures verifies recorded signatures of the cosign command, with each kind of
// key, in both formats and with both kinds of registries.
func TestRecordedSignatures(t *testing.T) {
	for sort, config := range registries {
		g := testenv.StartRegistry(t, config)
		for _, format := range []string{"cosign2", "cosign3", "cosign2-bundle", "cosign3-layers"} {
			l := openLayout(t, format)
			l.push(t, g, format)
			for _, k := range kinds {
				t.Run(sort+"/"+format+"/"+k, func(t *testing.T) {
					got, err := verify(t, g, format, recorded(t, k), l.subject)
					must(t, err)
					print := fingerprint(t, k)
					want := source.Verification{Mode: "cosign", Signer: print,
						Message: "verified signature of '" + l.subject.Digest.String() + "' by '" + print + "'"}
					testenv.Equal(t, got, want)
				})
			}
		}
	}
}

func fingerprint(t *testing.T, name string) string {
	block, _ := pem.Decode(recorded(t, name).Keys.Data[name+".pub"])
	sum := sha256.Sum256(block.Bytes)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// TestAnyKeyMayMatch verifies a signature with several trusted keys.
func TestAnyKeyMayMatch(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	l := openLayout(t, "cosign3")
	l.push(t, g, "app")
	trust := recorded(t, "p256")
	trust.Keys.Data["a.pub"] = []byte(publicPEM(t, ecKey(t, elliptic.P256()).Public()))
	trust.Keys.Data["z.pub"] = []byte(publicPEM(t, ecKey(t, elliptic.P384()).Public()))
	trust.Keys.Data["password"] = []byte("not a key, and not looked at")
	got, err := verify(t, g, "app", trust, l.subject)
	must(t, err)
	testenv.Equal(t, got.Signer, fingerprint(t, "p256"), "signer")
}

// TestKeysAreRead tests valid and invalid Secrets with keys.
func TestKeysAreRead(t *testing.T) {
	good := publicPEM(t, ecKey(t, elliptic.P256()).Public())
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(ecKey(t, elliptic.P256()))
	must(t, err)
	secretText := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	r := connect(t, testenv.StartRegistry(t, testenv.RegistryConfig{}), "app")
	for name, test := range map[string]struct {
		entries []string
		want    string
	}{
		"no entry":          {nil, "secretRef: secret default/trust has no entry with a public key (NAME.pub)"},
		"no entry .pub":     {[]string{"cosign.key", good}, "has no entry with a public key"},
		"no PEM":            {[]string{"a.pub", good, "b.pub", "ssh-ed25519 AAAA"}, `entry "b.pub" is no PEM`},
		"broken":            {[]string{"a.pub", pemOf("PUBLIC KEY", "junk")}, `entry "a.pub" holds no public key`},
		"certificate":       {[]string{"a.pub", pemOf("CERTIFICATE", "junk")}, `holds a PEM block "CERTIFICATE"`},
		"private key":       {[]string{"a.pub", secretText}, "holds a private key"},
		"two keys":          {[]string{"a.pub", good + good}, "holds more than one PEM block"},
		"weak RSA":          {[]string{"a.pub", publicPEM(t, weak.Public())}, "RSA key of 1024 bits, want 2048 to 8192"},
		"giant RSA":         {[]string{"a.pub", publicPEM(t, hugeRSAKey(t, 10_000))}, "RSA key of 10000 bits, want 2048 to 8192"},
		"ECDSA on P-224":    {[]string{"a.pub", publicPEM(t, ecKey(t, elliptic.P224()).Public())}, "P-224"},
		"X25519":            {[]string{"a.pub", x25519}, "want ECDSA, Ed25519 or RSA"},
		"more than 64 keys": {manyKeys(good), "has 65 keys, more than the limit of 64"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := cosign.New(cosign.Config{})(r, oci.Trust{Keys: secret(test.entries...)})
			if missing := missingParts(err, test.want); missing != nil {
				t.Errorf("error %v lacks %q", err, missing)
			}
			if errors.Is(err, source.ErrInvalid) {
				t.Errorf("error %v says that the spec is wrong", err)
			}
			if err != nil && strings.Contains(err.Error(), "MIG") {
				t.Errorf("error %v shows the key", err)
			}
		})
	}
}

// TestPKCS1PublicKey tests RSA keys in the older PKCS #1 format.
func TestPKCS1PublicKey(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	l := openLayout(t, "cosign2")
	l.push(t, g, "app")
	trust := recorded(t, "rsa")
	block, _ := pem.Decode(trust.Keys.Data["rsa.pub"])
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	must(t, err)
	trust.Keys.Data["rsa.pub"] = []byte(pemOf("RSA PUBLIC KEY", string(x509.MarshalPKCS1PublicKey(public.(*rsa.PublicKey)))))
	got, err := verify(t, g, "app", trust, l.subject)
	must(t, err)
	testenv.Equal(t, got.Signer, fingerprint(t, "rsa"), "signer")
}

// x25519 is a public key that is not for signatures.
const x25519 = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VuAyEAhSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=\n-----END PUBLIC KEY-----\n"

func manyKeys(text string) (entries []string) {
	for i := range 65 {
		entries = append(entries, strings.Repeat("k", i+1)+".pub", text)
	}
	return entries
}

func ecKey(t testing.TB, c elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	must(t, err)
	return k
}

// hugeRSAKey returns an RSA key with this number of bits, without a private key.
func hugeRSAKey(t testing.TB, bits uint) *rsa.PublicKey {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), bits-1))
	must(t, err)
	return &rsa.PublicKey{N: n.SetBit(n.SetBit(n, int(bits-1), 1), 0, 1), E: 65537}
}

func pemOf(kind, content string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte(content)}))
}

func publicPEM(t testing.TB, public any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	must(t, err)
	return pemOf("PUBLIC KEY", string(der))
}

// TestIdentitiesAreRead tests valid and invalid identities in a spec.
func TestIdentitiesAreRead(t *testing.T) {
	s := newSigstore(t)
	r := connect(t, testenv.StartRegistry(t, testenv.RegistryConfig{}), "app")
	any := []source.OIDCIdentityMatch{{Issuer: ".*", Subject: ".*"}}
	for name, test := range map[string]struct {
		trust   oci.Trust
		invalid bool
		want    string
	}{
		"none":             {oci.Trust{}, true, "spec.verify.matchOIDCIdentity: |the pattern .* for both"},
		"no issuer":        {oci.Trust{Identities: []source.OIDCIdentityMatch{any[0], {Subject: "x"}}}, true, "spec.verify.matchOIDCIdentity[1]: |issuer and subject are both required"},
		"no subject":       {oci.Trust{Identities: []source.OIDCIdentityMatch{{Issuer: "x"}}}, true, "spec.verify.matchOIDCIdentity[0]: "},
		"broken pattern":   {oci.Trust{Identities: []source.OIDCIdentityMatch{{Issuer: "(", Subject: "x"}}}, true, "spec.verify.matchOIDCIdentity[0]: |missing closing )"},
		"no trusted root":  {oci.Trust{Identities: any, Root: secret("root.json", s.trustedRoot(t))}, false, "spec.verify.trustedRootSecretRef: secret default/trust has no entry trusted_root.json"},
		"broken root":      {oci.Trust{Identities: any, Root: secret("trusted_root.json", "{")}, false, "secret default/trust: entry trusted_root.json: "},
		"root of no type":  {oci.Trust{Identities: any, Root: secret("trusted_root.json", "{}")}, false, "unsupported TrustedRoot media type"},
		"root of no certs": {oci.Trust{Identities: any, Root: secret("trusted_root.json", `{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1","certificateAuthorities":[{}]}`)}, false, "missing cert chain"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := cosign.New(cosign.Config{})(r, test.trust)
			if missing := missingParts(err, test.want); missing != nil || errors.Is(err, source.ErrInvalid) != test.invalid {
				t.Errorf("error %v lacks %q; that the spec is wrong: %t, want %t", err, missing, errors.Is(err, source.ErrInvalid), test.invalid)
			}
		})
	}
}

// TestAnyIdentityMayMatch tests unanchored patterns, and several identities.
func TestAnyIdentityMayMatch(t *testing.T) {
	s := newSigstore(t)
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	subject := subjectOf(g, "app")
	attach(t, g, "app", subject, s.good(subject.Digest).bundle(t))
	root := secret("trusted_root.json", s.trustedRoot(t))
	for _, test := range []struct {
		ids  []source.OIDCIdentityMatch
		want string
	}{
		{[]source.OIDCIdentityMatch{{Issuer: "nobody", Subject: "nobody"}, {Issuer: "example", Subject: "lease@"}}, ""},
		{[]source.OIDCIdentityMatch{{Issuer: ".*", Subject: ".*"}}, ""},
		{[]source.OIDCIdentityMatch{{Issuer: "^" + issuer + "$", Subject: "nobody"}, {Issuer: "nobody", Subject: ".*"}}, "it is by release@example.org"},
	} {
		got, err := verify(t, g, "app", oci.Trust{Root: root, Identities: test.ids}, subject)
		judge(t, got, err, test.want, identity+" ("+issuer+")")
	}
}

// kinds are the kinds of keys that cosign supports.
var kinds = []string{"p256", "p384", "p521", "rsa", "ed25519"}

// TestRecordedKeyless verifies recorded signatures of a former sigstore with its trusted root.
// They do not expire, because the time of the signature is used.
func TestRecordedKeyless(t *testing.T) {
	var k struct {
		Root    json.RawMessage
		Subject digest.Digest
		Bundle  json.RawMessage
		Tiled   json.RawMessage // a bundle with an entry of the second version of Rekor
		Layer   testenv.Blob
	}
	text, err := os.ReadFile("../../testdata/cosign/keyless.json")
	must(t, err)
	must(t, json.Unmarshal(text, &k))
	trust := oci.Trust{
		Root:       secret("trusted_root.json", string(k.Root)),
		Identities: []source.OIDCIdentityMatch{{Issuer: "^" + issuer + "$", Subject: "^release@"}},
	}
	subject := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: k.Subject, Size: 7}
	g := testenv.StartRegistry(t, testenv.RegistryConfig{NoReferrers: true})
	refer(g, "bundle", subject, testenv.Blob{MediaType: bundleType, Data: k.Bundle})
	refer(g, "tiled", subject, testenv.Blob{MediaType: bundleType, Data: k.Tiled})
	tag(g, "layer", subject, k.Layer)
	for _, repo := range []string{"bundle", "tiled", "layer"} {
		got, err := verify(t, g, repo, trust, subject)
		judge(t, got, err, "", identity+" ("+issuer+")")
	}
}

// A layout is an OCI image layout below testdata/cosign.
type layout struct {
	dir     string
	index   ocispec.Index
	subject ocispec.Descriptor // has the tag 1
}

func openLayout(t testing.TB, name string) *layout {
	t.Helper()
	l := &layout{dir: filepath.Join("../../testdata/cosign", name)}
	text, err := os.ReadFile(filepath.Join(l.dir, "index.json"))
	must(t, err)
	must(t, json.Unmarshal(text, &l.index))
	for _, d := range l.index.Manifests {
		if d.Annotations[ocispec.AnnotationRefName] == "1" {
			l.subject = ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
		}
	}
	return l
}

func (l *layout) blob(t testing.TB, d digest.Digest) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(l.dir, "blobs", "sha256", d.Encoded()))
	must(t, err)
	return data
}

// push copies l to a repository of g.
func (l *layout) push(t testing.TB, g *testenv.Registry, repo string) {
	t.Helper()
	for _, d := range l.index.Manifests {
		text := l.blob(t, d.Digest)
		var m ocispec.Manifest
		must(t, json.Unmarshal(text, &m))
		for _, b := range append(m.Layers, m.Config) {
			if b.Digest != "" {
				g.PushBlob(repo, testenv.Blob{MediaType: b.MediaType, Data: l.blob(t, b.Digest)})
			}
		}
		g.PushRaw(repo, d.Annotations[ocispec.AnnotationRefName], d.MediaType, text)
	}
}

// registries are kinds of registries with which all signature formats must work.
var registries = map[string]testenv.RegistryConfig{
	"referrers API": {},
	"fallback tag":  {NoReferrers: true},
}

// connect returns a repository of g.
func connect(t testing.TB, g *testenv.Registry, repo string) *oci.Repository {
	t.Helper()
	r, err := oci.Connect(t.Context(), oci.Access{URL: g.URL(repo), Insecure: true}, source.Env{}, &transport.SecretReader{Namespace: "default"})
	must(t, err)
	t.Cleanup(r.Close)
	return r
}

// verify verifies subject in a repository of g.
func verify(t testing.TB, g *testenv.Registry, repo string, trust oci.Trust, subject ocispec.Descriptor) (source.Verification, error) {
	t.Helper()
	v, err := cosign.New(cosign.Config{})(connect(t, g, repo), trust)
	must(t, err)
	return v.Verify(t.Context(), subject)
}

// secret returns a Secret with entries NAME, VALUE, …
func secret(entries ...string) transport.Secret {
	s := transport.Secret{Name: "default/trust", Secret: source.Secret{Data: map[string][]byte{}}}
	for i := 0; i < len(entries); i += 2 {
		s.Data[entries[i]] = []byte(entries[i+1])
	}
	return s
}

// recorded returns a Trust in recorded public keys.
func recorded(t testing.TB, names ...string) oci.Trust {
	t.Helper()
	var entries []string
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("../../testdata/cosign", "keys", name+".pub"))
		must(t, err)
		entries = append(entries, name+".pub", string(text))
	}
	return oci.Trust{Keys: secret(entries...)}
}

var must = testenv.Must

// missingParts returns the parts of wants, separated by |, that the text of err does not contain.
func missingParts(err error, wants string) (missing []string) {
	for want := range strings.SplitSeq(wants, "|") {
		if err == nil || !strings.Contains(err.Error(), want) {
			missing = append(missing, want)
		}
	}
	return missing
}

// This example fetches an artifact if it was signed with one of the keys in a Secret.
func Example() {
	var set source.Set
	if err := set.Decode("sources.yaml", strings.NewReader(`
apiVersion: source.headgate.dev/v1
kind: OCIRepository
metadata: {name: app}
spec: {url: "oci://registry.example.org/app", interval: 5m, verify: {provider: cosign, secretRef: {name: cosign}}}
`)); err != nil {
		panic(err)
	}
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: "store"})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	app := set.Objects[0].(*source.OCIRepository)
	origin := oci.New(app, source.Env{Secrets: source.DirSecrets("secrets")}, map[string]oci.Technology{"cosign": cosign.New(cosign.Config{})})
	reconciler := source.Reconciler{Store: store}
	if _, err := reconciler.Reconcile(context.Background(), app, origin); err != nil {
		panic(err)
	}
	fmt.Println(app.Status.Artifact.Revision)
}
