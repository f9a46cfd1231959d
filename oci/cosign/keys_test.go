package cosign_test

import (
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
	"math/big"
	"os"
	"strings"
	"testing"

	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/source"
)

// TestRecordedSignatures verifies what the real cosign wrote, by each key it
// signed with, in both formats and from both sorts of registries.
func TestRecordedSignatures(t *testing.T) {
	for sort, config := range registries {
		g := testenv.StartRegistry(t, config)
		for _, format := range []string{"cosign2", "cosign3", "cosign2-bundle", "cosign3-layers"} {
			l := openLayout(t, format)
			l.push(t, g, format)
			for _, k := range kinds {
				t.Run(sort+"/"+format+"/"+k, func(t *testing.T) {
					got, err := verify(t, g, format, recorded(t, k), l.subject)
					check(t, err)
					print := fingerprint(t, k)
					want := source.Verification{Mode: "cosign", Signer: print,
						Message: "verified signature of '" + l.subject.Digest.String() + "' by '" + print + "'"}
					if got != want {
						t.Errorf("got %+v, want %+v", got, want)
					}
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

// TestAnyKeyMayMatch has the key that signed among others.
func TestAnyKeyMayMatch(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	l := openLayout(t, "cosign3")
	l.push(t, g, "app")
	trust := recorded(t, "p256")
	trust.Keys.Data["a.pub"] = []byte(publicPEM(t, ecKey(t, elliptic.P256()).Public()))
	trust.Keys.Data["z.pub"] = []byte(publicPEM(t, ecKey(t, elliptic.P384()).Public()))
	trust.Keys.Data["password"] = []byte("not a key, and not looked at")
	got, err := verify(t, g, "app", trust, l.subject)
	check(t, err)
	if got.Signer != fingerprint(t, "p256") {
		t.Errorf("signer %s", got.Signer)
	}
}

// TestKeysAreRead is about what a Secret can hold.
func TestKeysAreRead(t *testing.T) {
	good := publicPEM(t, ecKey(t, elliptic.P256()).Public())
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	check(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(ecKey(t, elliptic.P256()))
	check(t, err)
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
		"giant RSA":         {[]string{"a.pub", publicPEM(t, giant(t, 10_000))}, "RSA key of 10000 bits, want 2048 to 8192"},
		"ECDSA on P-224":    {[]string{"a.pub", publicPEM(t, ecKey(t, elliptic.P224()).Public())}, "P-224"},
		"X25519":            {[]string{"a.pub", x25519}, "want ECDSA, Ed25519 or RSA"},
		"more than 64 keys": {manyKeys(good), "has 65 keys, more than the limit of 64"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := cosign.New(cosign.Config{})(r, oci.Trust{Keys: secret(test.entries...)})
			if missing := lacks(err, test.want); missing != nil {
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

// TestPKCS1PublicKey reads the older of two forms of RSA keys.
func TestPKCS1PublicKey(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	l := openLayout(t, "cosign2")
	l.push(t, g, "app")
	trust := recorded(t, "rsa")
	block, _ := pem.Decode(trust.Keys.Data["rsa.pub"])
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	check(t, err)
	trust.Keys.Data["rsa.pub"] = []byte(pemOf("RSA PUBLIC KEY", string(x509.MarshalPKCS1PublicKey(public.(*rsa.PublicKey)))))
	got, err := verify(t, g, "app", trust, l.subject)
	check(t, err)
	if got.Signer != fingerprint(t, "rsa") {
		t.Errorf("signer %s", got.Signer)
	}
}

// x25519 is a key that signs nothing.
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
	check(t, err)
	return k
}

// giant returns an RSA key of so many bits. Nobody has its private half.
func giant(t testing.TB, bits uint) *rsa.PublicKey {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), bits-1))
	check(t, err)
	return &rsa.PublicKey{N: n.SetBit(n.SetBit(n, int(bits-1), 1), 0, 1), E: 65537}
}

func pemOf(kind, content string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte(content)}))
}

func publicPEM(t testing.TB, public any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(public)
	check(t, err)
	return pemOf("PUBLIC KEY", string(der))
}

// TestIdentitiesAreRead is about what a spec can say of identities.
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
			if missing := lacks(err, test.want); missing != nil || errors.Is(err, source.ErrInvalid) != test.invalid {
				t.Errorf("error %v lacks %q; that the spec is wrong: %t, want %t", err, missing, errors.Is(err, source.ErrInvalid), test.invalid)
			}
		})
	}
}

// TestAnyIdentityMayMatch has patterns that match anywhere, and several of them.
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

// kinds are those of keys that cosign signs with.
var kinds = []string{"p256", "p384", "p521", "rsa", "ed25519"}

// TestRecordedKeyless verifies signatures of a subject by a sigstore that is no more, by what
// it was trusted by. Nothing of it expires: the time of a signature counts.
func TestRecordedKeyless(t *testing.T) {
	var k struct {
		Root    json.RawMessage
		Subject digest.Digest
		Bundle  json.RawMessage
		Tiled   json.RawMessage // a bundle with an entry of the second version of Rekor
		Layer   testenv.Blob
	}
	text, err := os.ReadFile("../../testdata/cosign/keyless.json")
	check(t, err)
	check(t, json.Unmarshal(text, &k))
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
