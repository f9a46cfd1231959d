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
	"io/fs"
	"math/big"
	"strings"
	"testing"

	"github.com/notaryproject/notation-core-go/signature/cose"
	"github.com/notaryproject/notation-core-go/signature/jws"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	gocose "github.com/veraison/go-cose"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/notation"
	"github.com/headgate-io/headgate/source"
)

// Signatures without end are looked at up to a bound.
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

// What is not a signature is refused before it is read.
func TestMalformedSignatures(t *testing.T) {
	ca := authority(t, "root")
	envelope := testenv.Blob{MediaType: jws.MediaTypeEnvelope, Data: []byte("{}")}
	claim := func(d ocispec.Descriptor) func(*signedRepository, ocispec.Descriptor) {
		return func(s *signedRepository, subject ocispec.Descriptor) {
			text, err := json.Marshal(ocispec.Manifest{MediaType: ocispec.MediaTypeImageManifest, ArtifactType: artifactType, Subject: &subject,
				Config: ocispec.DescriptorEmptyJSON, Layers: []ocispec.Descriptor{d}})
			check(t, err)
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
		check(t, err)
		return string(text)
	}
	for name, c := range map[string]struct {
		push  func(*signedRepository, ocispec.Descriptor)
		say   string
		blobs int // that may be read
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

// hugeCertificate returns one by ca of a key that would take minutes to compute with, in DER.
func hugeCertificate(t *testing.T, ca *identity) []byte {
	t.Helper()
	n := new(big.Int).Lsh(big.NewInt(1), 1<<20)
	n.SetBit(n, 0, 1)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &rsa.PublicKey{N: n, E: 1<<31 - 1}, ca.key)
	check(t, err)
	return der
}

// A key that would take minutes to compute with is refused.
func TestHugeKeys(t *testing.T) {
	ca := authority(t, "root")
	der := hugeCertificate(t, ca)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	by, err := gocose.NewSigner(gocose.AlgorithmES256, key)
	check(t, err)
	inCOSE := func(label, value any) []byte {
		m := gocose.NewSign1Message()
		m.Payload = []byte("{}")
		m.Headers.Protected.SetAlgorithm(gocose.AlgorithmES256)
		m.Headers.Unprotected[label] = value
		check(t, m.Sign(rand.Reader, nil, by))
		text, err := m.MarshalCBOR()
		check(t, err)
		return text
	}
	inJSON := func(header map[string]any) []byte {
		text, err := json.Marshal(map[string]any{"header": header})
		check(t, err)
		return text
	}
	token := timestampToken(t, [][]byte{der}, 1)
	for name, c := range map[string]struct {
		mediaType string
		envelope  []byte
		say       string
	}{
		"JWS":                 {jws.MediaTypeEnvelope, inJSON(map[string]any{"x5c": [][]byte{ca.cert.Raw, der}}), "has 1048577 bits, at most 8192"},
		"COSE":                {cose.MediaTypeEnvelope, inCOSE(gocose.HeaderLabelX5Chain, []any{ca.cert.Raw, der}), "has 1048577 bits, at most 8192"},
		"JWS timestamp":       {jws.MediaTypeEnvelope, inJSON(map[string]any{"io.cncf.notary.timestampSignature": token}), "has 1048577 bits, at most 8192"},
		"COSE timestamp":      {cose.MediaTypeEnvelope, inCOSE("io.cncf.notary.timestampSignature", token), "has 1048577 bits, at most 8192"},
		"timestamp's chain":   {jws.MediaTypeEnvelope, inJSON(map[string]any{"io.cncf.notary.timestampSignature": timestampToken(t, repeat(ca.cert.Raw, 17), 1)}), "its timestamp has 17 certificates"},
		"timestamp's signers": {jws.MediaTypeEnvelope, inJSON(map[string]any{"io.cncf.notary.timestampSignature": timestampToken(t, repeat(ca.cert.Raw, 1), 17)}), "its timestamp has 17 signers"},
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

func repeat(der []byte, n int) (all [][]byte) {
	for range n {
		all = append(all, der)
	}
	return all
}

// A registry that fails, and a caller who gave up, refuse nothing.
func TestWhatCannotBeKnown(t *testing.T) {
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
		check(t, err)
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("the caller is gone")
		go func() {
			<-s.Stalled()
			cancel(gone)
		}()
		if _, err = v.Verify(ctx, subject); !errors.Is(err, gone) || errors.Is(err, source.ErrVerification) {
			t.Errorf("got %v", err)
		}
	})
}
