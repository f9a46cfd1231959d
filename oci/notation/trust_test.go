package notation_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/notaryproject/notation-core-go/signature/cose"
	"github.com/notaryproject/notation-core-go/signature/jws"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	gocose "github.com/veraison/go-cose"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/notation"
	"github.com/headgate-io/headgate/source"
)

func TestTrustIsChecked(t *testing.T) {
	ca := authority(t, "root")
	good := secret(ca.pem(), level("strict"))
	with := func(key, value string) oci.Trust {
		data := maps.Clone(good)
		data[key] = value
		return oci.Trust{Keys: secretOf(data)}
	}
	without := func(key string) oci.Trust {
		data := maps.Clone(good)
		delete(data, key)
		return oci.Trust{Keys: secretOf(data)}
	}
	document := func(p policy) oci.Trust { return with("trustpolicy.json", secret(nil, p)["trustpolicy.json"]) }
	change := func(f func(*policy)) oci.Trust {
		p := level("strict")
		f(&p)
		return document(p)
	}
	cases := map[string]struct {
		trust   oci.Trust
		invalid bool
		say     []string
	}{
		"no Secret":              {oci.Trust{}, true, []string{"spec.verify.secretRef is missing", "trustpolicy.json"}},
		"a trusted root":         {oci.Trust{Keys: secretOf(good), Root: transport.Secret{Name: "default/root"}}, true, []string{"trustedRootSecretRef is for provider cosign"}},
		"identities":             {oci.Trust{Keys: secretOf(good), Identities: []source.OIDCIdentityMatch{{}}}, true, []string{"matchOIDCIdentity", "trustedIdentities"}},
		"no policy":              {without("trustpolicy.json"), false, []string{"secret default/trust has no key trustpolicy.json"}},
		"no certificates":        {without("ca.crt"), false, []string{"secret default/trust has no certificates", ".crt or .pem"}},
		"policy is not JSON":     {with("trustpolicy.json", "{"), false, []string{"default/trust: trustpolicy.json: is not a trust policy"}},
		"policy with more":       {with("trustpolicy.json", good["trustpolicy.json"]+"{}"), false, []string{"is not a trust policy"}},
		"policy is null":         {with("trustpolicy.json", "null"), false, []string{"it is null"}},
		"policy is a number":     {with("trustpolicy.json", "7"), false, []string{"is not a trust policy"}},
		"no version":             {with("trustpolicy.json", "{}"), false, []string{"empty version"}},
		"version of tomorrow":    {with("trustpolicy.json", `{"version":"9.0"}`), false, []string{`unsupported version "9.0"`}},
		"no statements":          {with("trustpolicy.json", `{"version":"1.0"}`), false, []string{"zero trust policy statements"}},
		"no name":                {change(func(p *policy) { p.Name = "" }), false, []string{"missing a name"}},
		"no scopes":              {change(func(p *policy) { p.Scopes = nil }), false, []string{"registry scopes"}},
		"a scope in a scope":     {change(func(p *policy) { p.Scopes = []string{"registry.example/*"} }), false, []string{"wild card"}},
		"no stores":              {change(func(p *policy) { p.Stores = nil }), false, []string{"trust stores or trusted identities"}},
		"store of no type":       {change(func(p *policy) { p.Stores = []string{"team"} }), false, []string{"malformed trust store"}},
		"store of a strange":     {change(func(p *policy) { p.Stores = []string{"x:team"} }), false, []string{"unsupported trust store type"}},
		"no level":               {change(func(p *policy) { p.Level.Level = "" }), false, []string{"level is empty"}},
		"strange level":          {change(func(p *policy) { p.Level.Level = "lax" }), false, []string{`invalid signature verification level "lax"`}},
		"integrity overridden":   {change(func(p *policy) { p.Level.Override = map[string]string{"integrity": "log"} }), false, []string{"can not be overridden"}},
		"skip with override":     {change(func(p *policy) { p.Level = verification{Level: "skip", Override: map[string]string{"expiry": "log"}} }), false, []string{"can't be used to customize"}},
		"strange identity":       {change(func(p *policy) { p.Trusted = []string{"x509.subject: CN"} }), false, []string{"invalid identity value"}},
		"text for a certificate": {with("b.pem", "not one"), false, []string{"secret default/trust: b.pem: holds neither PEM nor DER"}},
		"empty certificate":      {with("b.pem", ""), false, []string{"b.pem: is empty"}},
		"a key":                  {with("b.crt", "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n"), false, []string{`b.crt: holds a block of type "PRIVATE KEY"`}},
		"a torn certificate":     {with("b.crt", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"), false, []string{"b.crt: holds a certificate that cannot be parsed"}},
		"torn PEM":               {with("b.crt", "-----BEGIN CERTIFICATE-----\nMAA="), false, []string{"b.crt: holds PEM that cannot be parsed"}},
		"a huge key":             {with("b.pem", string(hugeCertificate(t, ca))), false, []string{"default/trust: b.pem: holds an RSA key of more than 8192 bits"}},
	}
	s := newRepository(t, testenv.RegistryConfig{})
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := notation.New(s.repo, c.trust)
			wantError(t, err, c.say...)
			testenv.Equal(t, errors.Is(err, source.ErrInvalid), c.invalid, "invalid spec: %v", err)
		})
	}
	if len(s.Requests()) > 0 {
		t.Errorf("asked the registry: %v", s.Requests())
	}
}

// TestCertificates checks that certificates are read from keys that end in .crt or .pem, as PEM and
// DER.
func TestCertificates(t *testing.T) {
	ca, other := authority(t, "root"), authority(t, "other")
	leaf := newSigner(t, ca, "builder", nil)
	s := newRepository(t, testenv.RegistryConfig{})
	subject := s.artifact("hello")
	s.attach(subject, jws.MediaTypeEnvelope, leaf.sign(t, subject, jws.MediaTypeEnvelope, nil))
	base := secret(other.pem(), level("strict"))
	for name, c := range map[string]struct {
		key, value string
		good       bool
	}{
		"PEM":                {"a.pem", string(ca.pem()), true},
		"DER":                {"a.crt", string(ca.cert.Raw), true},
		"several":            {"a.pem", string(other.pem()) + string(ca.pem()), true},
		"several in DER":     {"a.pem", string(other.cert.Raw) + string(ca.cert.Raw), true},
		"text before":        {"a.pem", "the root\n" + string(ca.pem()) + "\nthat was it\n", true},
		"the signer's own":   {"a.pem", string(leaf.pem()), true},
		"under another key":  {"a.cert", string(ca.pem()), false},
		"name in the middle": {"a.pem.old", string(ca.pem()), false},
	} {
		t.Run(name, func(t *testing.T) {
			data := maps.Clone(base)
			data[c.key] = c.value
			if _, err := s.verify(subject, data); c.good {
				must(t, err)
			} else {
				wantRefused(t, err, "authenticity")
			}
		})
	}
}

// TestScopes checks that a statement applies to the repositories in its scopes.
func TestScopes(t *testing.T) {
	ca := authority(t, "root")
	leaf := newSigner(t, ca, "builder", nil)
	s := newRepository(t, testenv.RegistryConfig{})
	subject := s.artifact("hello")
	s.attach(subject, jws.MediaTypeEnvelope, leaf.sign(t, subject, jws.MediaTypeEnvelope, nil))
	repo, otherRepo := s.Host+"/team/app", "registry.example/team/app"
	at := func(name, lvl string, scopes ...string) policy {
		p := level(lvl)
		p.Name, p.Scopes = name, scopes
		return p
	}
	many := make([]string, 12)
	for i := range many {
		many[i] = fmt.Sprintf("registry.example/app%d", i)
	}
	for name, c := range map[string]struct {
		policies []policy
		level    string
		say      []string
	}{
		"all":              {[]policy{at("a", "strict", "*")}, "strict", nil},
		"exact":            {[]policy{at("a", "strict", repo)}, "strict", nil},
		"one of several":   {[]policy{at("a", "strict", otherRepo, repo)}, "strict", nil},
		"exact before all": {[]policy{at("a", "permissive", "*"), at("b", "strict", repo)}, "strict", nil},
		"exact first":      {[]policy{at("b", "strict", repo), at("a", "permissive", "*")}, "strict", nil},
		"none":             {[]policy{at("a", "strict", otherRepo), at("b", "skip", s.Host+"/team")}, "", []string{"no statement for " + repo, "secret default/trust", `"` + otherRepo + `"`, "add it"}},
		"none of many":     {[]policy{at("a", "skip", many...)}, "", []string{"registry.example/app9", "and 2 more"}},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := s.verify(subject, secret(ca.pem(), c.policies...))
			if c.level == "" {
				wantRefused(t, err, c.say...)
				return
			}
			must(t, err)
			testenv.Equal(t, v.Level, c.level, v)
		})
	}
}

// TestEndlessSignatures checks that the number of checked signatures is limited.
func TestEndlessSignatures(t *testing.T) {
	ca := authority(t, "root")
	s := newRepository(t, testenv.RegistryConfig{})
	subject := s.artifact("hello")
	for i := range 40 {
		s.attach(subject, jws.MediaTypeEnvelope, []byte(strings.Repeat("x", i+1)))
	}
	s.Reset()
	_, err := s.verify(subject, secret(ca.pem(), level("strict")))
	wantRefused(t, err, "more than 32 signatures, of which the first 32 were tried")
	if n := s.Count(testenv.GetBlob); n > 32 {
		t.Errorf("%d envelopes were read", n)
	}
	if len(err.Error()) > 2000 {
		t.Errorf("the error has %d bytes: %v", len(err.Error()), err)
	}
}

// TestMalformedSignatures checks that malformed signatures are refused, and that oversized
// envelopes are not downloaded.
func TestMalformedSignatures(t *testing.T) {
	ca := authority(t, "root")
	envelope := testenv.Blob{MediaType: jws.MediaTypeEnvelope, Data: []byte("{}")}
	claim := func(d ocispec.Descriptor) func(*signedRepository, ocispec.Descriptor) {
		return func(s *signedRepository, subject ocispec.Descriptor) {
			text, err := json.Marshal(ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, ArtifactType: artifactType, Subject: &subject,
				Config: ocispec.DescriptorEmptyJSON, Layers: []ocispec.Descriptor{d}})
			must(t, err)
			s.PushRaw(repository, "", ocispec.MediaTypeImageManifest, text)
		}
	}
	push := func(blobs ...testenv.Blob) func(*signedRepository, ocispec.Descriptor) {
		return func(s *signedRepository, subject ocispec.Descriptor) {
			s.Push(repository, "", testenv.Manifest{ArtifactType: artifactType, Subject: &subject, Layers: blobs})
		}
	}
	blob := func(mediaType, data string) testenv.Blob {
		return testenv.Blob{MediaType: mediaType, Data: []byte(data)}
	}
	chain := func(n int) string {
		x5c := make([][]byte, n)
		for i := range x5c {
			x5c[i] = ca.cert.Raw
		}
		text, err := json.Marshal(map[string]any{"header": map[string]any{"x5c": x5c}})
		must(t, err)
		return string(text)
	}
	for name, c := range map[string]struct {
		push  func(*signedRepository, ocispec.Descriptor)
		say   string
		blobs int // number of blobs that may be read
	}{
		"no envelope":        {push(), "has 0 layers: want one", 0},
		"two envelopes":      {push(envelope, blob("x/y", "z")), "has 2 layers: want one", 0},
		"huge envelope":      {claim(ocispec.Descriptor{MediaType: jws.MediaTypeEnvelope, Digest: digest.FromString("x"), Size: 1 << 40}), "has 1099511627776 bytes, more than the limit of 262144", 0},
		"negative size":      {claim(ocispec.Descriptor{MediaType: jws.MediaTypeEnvelope, Digest: digest.FromString("x"), Size: -1}), "has -1 bytes", 0},
		"strange digest":     {claim(ocispec.Descriptor{MediaType: jws.MediaTypeEnvelope, Digest: "sha256:../../x", Size: 1}), `names a blob "sha256:../../x"`, 0},
		"absent envelope":    {claim(ocispec.Descriptor{MediaType: jws.MediaTypeEnvelope, Digest: digest.FromString("x"), Size: 1}), "its envelope: ", 1},
		"huge manifest":      {push(blob(strings.Repeat("x", 300<<10), "y")), "its manifest has ", 0},
		"unknown envelope":   {push(blob("application/pgp-signature", "x")), `"application/pgp-signature": want application/jose+json or application/cose`, 1},
		"text for JSON":      {push(blob(jws.MediaTypeEnvelope, "x")), "integrity: its envelope cannot be parsed", 1},
		"text for CBOR":      {push(blob(cose.MediaTypeEnvelope, "x")), "integrity: its envelope cannot be parsed", 1},
		"empty JSON":         {push(envelope), "integrity: ", 1},
		"text for a chain":   {push(blob(jws.MediaTypeEnvelope, `{"header":{"x5c":["AAAA"]}}`)), "its certificate 1 cannot be parsed", 1},
		"a chain that bears": {push(blob(jws.MediaTypeEnvelope, chain(16))), "integrity: ", 1},
		"endless chain":      {push(blob(jws.MediaTypeEnvelope, chain(17))), "its chain has 17 certificates, at most 16", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRepository(t, testenv.RegistryConfig{})
			subject := s.artifact("hello")
			c.push(s, subject)
			s.Reset()
			_, err := s.verify(subject, secret(ca.pem(), level("audit")))
			wantRefused(t, err, c.say)
			if n := s.Count(testenv.GetBlob); n > c.blobs {
				t.Errorf("%d blobs were read, want %d", n, c.blobs)
			}
		})
	}
}

// hugeCertificate returns a certificate of ca, in DER, with a key that would take minutes to
// check.
func hugeCertificate(t *testing.T, ca *identity) []byte {
	t.Helper()
	n := new(big.Int).Lsh(big.NewInt(1), 1<<20)
	n.SetBit(n, 0, 1)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &rsa.PublicKey{N: n, E: 1<<31 - 1}, ca.key)
	must(t, err)
	return der
}

// TestHugeKeys checks that a key that would take minutes to check is refused.
func TestHugeKeys(t *testing.T) {
	ca := authority(t, "root")
	der := hugeCertificate(t, ca)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	by, err := gocose.NewSigner(gocose.AlgorithmES256, key)
	must(t, err)
	inCOSE := func(label, value any) []byte {
		m := gocose.NewSign1Message()
		m.Payload = []byte("{}")
		m.Headers.Protected.SetAlgorithm(gocose.AlgorithmES256)
		m.Headers.Unprotected[label] = value
		must(t, m.Sign(rand.Reader, nil, by))
		text, err := m.MarshalCBOR()
		must(t, err)
		return text
	}
	inJSON := func(header map[string]any) []byte {
		text, err := json.Marshal(map[string]any{"header": header})
		must(t, err)
		return text
	}
	many := func(certs, signers int) []byte {
		return token(t, []byte{0}, slices.Repeat([][]byte{ca.cert.Raw}, certs), slices.Repeat([]*identity{ca}, signers)...)
	}
	stamp := token(t, []byte{0}, [][]byte{der}, ca)
	for name, c := range map[string]struct {
		mediaType string
		envelope  []byte
		say       string
	}{
		"JWS":                 {jws.MediaTypeEnvelope, inJSON(map[string]any{"x5c": [][]byte{ca.cert.Raw, der}}), "has 1048577 bits, at most 8192"},
		"COSE":                {cose.MediaTypeEnvelope, inCOSE(gocose.HeaderLabelX5Chain, []any{ca.cert.Raw, der}), "has 1048577 bits, at most 8192"},
		"JWS timestamp":       {jws.MediaTypeEnvelope, inJSON(map[string]any{"io.cncf.notary.timestampSignature": stamp}), "has 1048577 bits, at most 8192"},
		"COSE timestamp":      {cose.MediaTypeEnvelope, inCOSE("io.cncf.notary.timestampSignature", stamp), "has 1048577 bits, at most 8192"},
		"timestamp's chain":   {jws.MediaTypeEnvelope, inJSON(map[string]any{"io.cncf.notary.timestampSignature": many(17, 1)}), "its timestamp has 17 certificates"},
		"timestamp's signers": {jws.MediaTypeEnvelope, inJSON(map[string]any{"io.cncf.notary.timestampSignature": many(1, 17)}), "its timestamp has 17 signers"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRepository(t, testenv.RegistryConfig{})
			subject := s.artifact("hello")
			s.attach(subject, c.mediaType, c.envelope)
			_, err := s.verify(subject, secret(ca.pem(), level("audit")))
			wantRefused(t, err, c.say)
		})
	}
}

// TestRevocationUnknown checks that an error of the registry or a canceled context is not
// reported as a refused signature.
func TestRevocationUnknown(t *testing.T) {
	ca := authority(t, "root")
	leaf := newSigner(t, ca, "builder", nil)
	for _, phase := range []testenv.Phase{testenv.ListReferrers, testenv.GetManifest, testenv.GetBlob} {
		t.Run(string(phase), func(t *testing.T) {
			s := newRepository(t, testenv.RegistryConfig{Defect: &testenv.Defect{Phase: phase, Status: 403}})
			subject := s.artifact("hello")
			s.attach(subject, jws.MediaTypeEnvelope, leaf.sign(t, subject, jws.MediaTypeEnvelope, nil))
			_, err := s.verify(subject, secret(ca.pem(), level("strict")))
			wantError(t, err, "signatures of "+s.Host+"/team/app@"+subject.Digest.String(), "403")
			if errors.Is(err, source.ErrVerification) || !errors.Is(err, fs.ErrPermission) && phase == testenv.ListReferrers {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		s := newRepository(t, testenv.RegistryConfig{Defect: &testenv.Defect{Phase: testenv.GetBlob, Do: testenv.Stall}})
		subject := s.artifact("hello")
		s.attach(subject, jws.MediaTypeEnvelope, leaf.sign(t, subject, jws.MediaTypeEnvelope, nil))
		v, err := notation.New(s.repo, oci.Trust{Keys: secretOf(secret(ca.pem(), level("strict")))})
		must(t, err)
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("the caller is gone")
		go func() {
			<-s.Stalled()
			cancel(cause)
		}()
		if _, err = v.Verify(ctx, subject); !errors.Is(err, cause) || errors.Is(err, source.ErrVerification) {
			t.Errorf("got %v", err)
		}
	})
}

// This example fetches an artifact if the trust policy in a Secret accepts its signature.
func Example() {
	var set source.Set
	if err := set.Decode("sources.yaml", strings.NewReader(`
apiVersion: source.headgate.dev/v1
kind: OCIRepository
metadata: {name: app}
spec: {url: "oci://registry.example.org/app", interval: 5m, verify: {provider: notation, secretRef: {name: notation}}}
`)); err != nil {
		log.Fatal(err)
	}
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: "store"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	app := set.Objects[0].(*source.OCIRepository)
	origin := oci.New(app, source.Env{Secrets: source.DirSecrets("secrets")}, map[string]oci.Technology{"notation": notation.New})
	reconciler := source.Reconciler{Store: store}
	if _, err := reconciler.Reconcile(context.Background(), app, origin); err != nil {
		log.Fatal(err)
	}
	fmt.Println(app.Status.Artifact.Revision)
}
