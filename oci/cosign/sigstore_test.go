package cosign_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"testing"
	"time"

	"github.com/cyberphone/json-canonicalization/go/src/webpki.org/jsoncanonicalizer"
	ct "github.com/google/certificate-transparency-go"
	"github.com/google/certificate-transparency-go/tls"
	ctx509 "github.com/google/certificate-transparency-go/x509"
	"github.com/google/certificate-transparency-go/x509util"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	rekortiles "github.com/sigstore/rekor-tiles/v2/pkg/generated/protobuf"
	rekornote "github.com/sigstore/rekor-tiles/v2/pkg/note"
	"github.com/sigstore/rekor/pkg/util"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore/pkg/signature"
	formats "github.com/transparency-dev/formats/log"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"
	"google.golang.org/protobuf/encoding/protojson"
)

// A sigstore is a Sigstore instance for tests: a certificate authority, a timestamp authority,
// and both logs. The virtual instance of sigstore-go has no certificate
// transparency log, so only its timestamp authority is used.
type sigstore struct {
	fulcio    root.FulcioCertificateAuthority
	fulcioKey *ecdsa.PrivateKey // of the intermediate certificate
	ctlog     log
	rekor     log
	tsa       *ca.VirtualSigstore
}

// A log is the key of a transparency log.
type log struct{ key *ecdsa.PrivateKey }

func newSigstore(t testing.TB) *sigstore {
	t.Helper()
	top, topKey, err := ca.GenerateRootCa()
	must(t, err)
	intermediate, key, err := ca.GenerateFulcioIntermediate(top, topKey)
	must(t, err)
	tsa, err := ca.NewVirtualSigstore()
	must(t, err)
	// the validity of that intermediate certificate is too short
	template := *intermediate
	template.NotBefore = time.Now().Add(-3 * time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, &template, top, key.Public(), topKey)
	must(t, err)
	intermediate, err = x509.ParseCertificate(der)
	must(t, err)
	return &sigstore{
		fulcio: root.FulcioCertificateAuthority{
			Root: top, Intermediates: []*x509.Certificate{intermediate}, URI: "https://fulcio.localhost",
			ValidityPeriodStart: time.Now().Add(-4 * time.Hour), ValidityPeriodEnd: time.Now().Add(time.Hour),
		},
		fulcioKey: key, ctlog: log{ecKey(t, elliptic.P256())}, rekor: log{ecKey(t, elliptic.P256())}, tsa: tsa,
	}
}

// trustedRoot returns the trusted_root.json of s.
func (s *sigstore) trustedRoot(t testing.TB) string {
	t.Helper()
	material, err := root.NewTrustedRoot(root.TrustedRootMediaType01,
		[]root.CertificateAuthority{&s.fulcio}, s.ctlog.trusted("https://ctlog.localhost"),
		s.tsa.TimestampingAuthorities(), s.rekor.trusted("https://rekor.localhost"))
	must(t, err)
	text, err := material.MarshalJSON()
	must(t, err)
	return string(text)
}

func (l log) trusted(url string) map[string]*root.TransparencyLog {
	return map[string]*root.TransparencyLog{hex.EncodeToString(l.id()): {
		BaseURL: url, ID: l.id(), HashFunc: crypto.SHA256, PublicKey: l.key.Public(), SignatureHashFunc: crypto.SHA256,
		ValidityPeriodStart: time.Now().Add(-4 * time.Hour),
	}}
}

// id returns the hash of the log's key.
func (l log) id() []byte {
	der, err := x509.MarshalPKIXPublicKey(l.key.Public())
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(der)
	return sum[:]
}

func (l log) sign(t testing.TB, message []byte) []byte {
	t.Helper()
	sum := sha256.Sum256(message)
	sig, err := l.key.Sign(rand.Reader, sum[:], crypto.SHA256)
	must(t, err)
	return sig
}

var (
	oidIssuer   = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 1}
	oidIssuerV2 = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 8}
)

// certify issues a certificate that is valid for ten minutes, with a signed certificate
// timestamp of the log by unless that is nil.
func (s *sigstore) certify(t testing.TB, subject, issuer string, since time.Time, key crypto.PublicKey, by *log) *x509.Certificate {
	t.Helper()
	der, err := asn1.MarshalWithParams(issuer, "utf8")
	must(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: serial, EmailAddresses: []string{subject},
		NotBefore: since, NotAfter: since.Add(10 * time.Minute),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		ExtraExtensions: []pkix.Extension{{Id: oidIssuer, Value: []byte(issuer)}, {Id: oidIssuerV2, Value: der}},
	}
	issue := func() *x509.Certificate {
		der, err := x509.CreateCertificate(rand.Reader, template, s.fulcio.Intermediates[0], key, s.fulcioKey)
		must(t, err)
		c, err := x509.ParseCertificate(der)
		must(t, err)
		return c
	}
	c := issue()
	if by == nil {
		return c
	}
	template.ExtraExtensions = append(template.ExtraExtensions, s.sctExtension(t, *by, c.RawTBSCertificate))
	return issue()
}

// sctExtension returns the extension with a log's signed certificate timestamp.
func (s *sigstore) sctExtension(t testing.TB, by log, tbs []byte) pkix.Extension {
	t.Helper()
	sct := ct.SignedCertificateTimestamp{SCTVersion: ct.V1, Timestamp: uint64(time.Now().Add(-time.Minute).UnixMilli())}
	copy(sct.LogID.KeyID[:], by.id())
	input, err := ct.SerializeSCTSignatureInput(sct, ct.LogEntry{Leaf: ct.MerkleTreeLeaf{
		Version: ct.V1, LeafType: ct.TimestampedEntryLeafType,
		TimestampedEntry: &ct.TimestampedEntry{
			Timestamp: sct.Timestamp, EntryType: ct.PrecertLogEntryType,
			PrecertEntry: &ct.PreCert{IssuerKeyHash: sha256.Sum256(s.fulcio.Intermediates[0].RawSubjectPublicKeyInfo), TBSCertificate: tbs},
		},
	}})
	must(t, err)
	sct.Signature = ct.DigitallySigned{
		Algorithm: tls.SignatureAndHashAlgorithm{Hash: tls.SHA256, Signature: tls.ECDSA},
		Signature: by.sign(t, input),
	}
	list, err := x509util.MarshalSCTsIntoSCTList([]*ct.SignedCertificateTimestamp{&sct})
	must(t, err)
	text, err := tls.Marshal(*list)
	must(t, err)
	value, err := asn1.Marshal(text)
	must(t, err)
	return pkix.Extension{Id: asn1.ObjectIdentifier(ctx509.OIDExtensionCTSCT), Value: value}
}

// hashOf returns the hash of data in the format of Rekor's entries.
func hashOf(data []byte) map[string]string {
	sum := sha256.Sum256(data)
	return map[string]string{"algorithm": "sha256", "value": hex.EncodeToString(sum[:])}
}

// hashedrekord returns the entry for a signature of payload.
func hashedrekord(payload, sig, verifier []byte) (kind string, spec map[string]any) {
	return "hashedrekord", map[string]any{
		"data":      map[string]any{"hash": hashOf(payload)},
		"signature": map[string]any{"content": sig, "publicKey": map[string]any{"content": verifier}},
	}
}

// dsseEntry returns the entry for an envelope with payload.
func dsseEntry(envelope, payload, sig, verifier []byte) (kind string, spec map[string]any) {
	return "dsse", map[string]any{
		"envelopeHash": hashOf(envelope), "payloadHash": hashOf(payload),
		"signatures": []any{map[string]any{"signature": sig, "verifier": verifier}},
	}
}

// addEntry returns the only entry of a log, with an inclusion promise and an inclusion proof.
func (l log) addEntry(t testing.TB, at time.Time, kind string, spec any) *protorekor.TransparencyLogEntry {
	t.Helper()
	body := canonical(t, map[string]any{"apiVersion": "0.0.1", "kind": kind, "spec": spec})
	e := &protorekor.TransparencyLogEntry{
		LogId:             &protocommon.LogId{KeyId: l.id()},
		KindVersion:       &protorekor.KindVersion{Kind: kind, Version: "0.0.1"},
		IntegratedTime:    at.Unix(),
		CanonicalizedBody: body,
	}
	e.InclusionPromise = &protorekor.InclusionPromise{SignedEntryTimestamp: l.promise(t, e)}
	signer, err := signature.LoadECDSASignerVerifier(l.key, crypto.SHA256)
	must(t, err)
	hash := rfc6962.DefaultHasher.HashLeaf(body)
	checkpoint, err := util.CreateAndSignCheckpoint(t.Context(), "rekor.localhost", 123, 1, hash, signer)
	must(t, err)
	e.InclusionProof = &protorekor.InclusionProof{TreeSize: 1, RootHash: hash, Checkpoint: &protorekor.Checkpoint{Envelope: string(checkpoint)}}
	return e
}

// promise returns the log's inclusion promise for an entry.
func (l log) promise(t testing.TB, e *protorekor.TransparencyLogEntry) []byte {
	t.Helper()
	return l.sign(t, canonical(t, map[string]any{
		"body": e.CanonicalizedBody, "integratedTime": e.IntegratedTime, "logIndex": e.LogIndex, "logID": hex.EncodeToString(l.id()),
	}))
}

// addTileEntry returns an entry in the format of the second version of Rekor: with a proof and
// without a time.
func (l log) addTileEntry(t testing.TB, message, sig []byte, c *x509.Certificate) *protorekor.TransparencyLogEntry {
	t.Helper()
	sum := sha256.Sum256(message)
	text, err := protojson.Marshal(&rekortiles.Entry{ApiVersion: "0.0.2", Kind: "hashedrekord", Spec: &rekortiles.Spec{Spec: &rekortiles.Spec_HashedRekordV002{
		HashedRekordV002: &rekortiles.HashedRekordLogEntryV002{
			Data: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: sum[:]},
			Signature: &rekortiles.Signature{Content: sig, Verifier: &rekortiles.Verifier{
				KeyDetails: protocommon.PublicKeyDetails_PKIX_ECDSA_P256_SHA_256,
				Verifier:   &rekortiles.Verifier_X509Certificate{X509Certificate: &protocommon.X509Certificate{RawBytes: c.Raw}},
			}},
		},
	}}})
	must(t, err)
	body, err := jsoncanonicalizer.Transform(text)
	must(t, err)
	signer, err := signature.LoadECDSASignerVerifier(l.key, crypto.SHA256)
	must(t, err)
	noteSigner, err := rekornote.NewNoteSigner(t.Context(), "rekor.localhost", signer)
	must(t, err)
	hash := rfc6962.DefaultHasher.HashLeaf(body)
	checkpoint, err := note.Sign(&note.Note{Text: string(formats.Checkpoint{Origin: "rekor.localhost", Size: 1, Hash: hash}.Marshal())}, noteSigner)
	must(t, err)
	return &protorekor.TransparencyLogEntry{
		LogId:             &protocommon.LogId{KeyId: l.id()},
		KindVersion:       &protorekor.KindVersion{Kind: "hashedrekord", Version: "0.0.2"},
		CanonicalizedBody: body,
		InclusionProof:    &protorekor.InclusionProof{TreeSize: 1, RootHash: hash, Checkpoint: &protorekor.Checkpoint{Envelope: string(checkpoint)}},
	}
}

func canonical(t testing.TB, v any) []byte {
	t.Helper()
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	must(t, enc.Encode(v))
	out, err := jsoncanonicalizer.Transform(text.Bytes())
	must(t, err)
	return out
}
