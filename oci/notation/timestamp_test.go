package notation_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/notaryproject/notation-core-go/signature"
	"github.com/notaryproject/tspclient-go"

	"github.com/headgate-io/headgate/internal/testenv"
)

var (
	oidSignedData    = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}
	oidTSTInfo       = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 1, 4}
	oidContentType   = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 3}
	oidMessageDigest = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 4}
	oidSigningCertV2 = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 2, 47}
	oidExtKeyUsage   = asn1.ObjectIdentifier{2, 5, 29, 37}
	oidTimeStamping  = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 8}
	sha256Algorithm  = pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}}
	ecdsaAlgorithm   = pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}}
)

// The structures of RFC 5652 that a timestamp is made of.
type (
	contentInfo struct {
		Type    asn1.ObjectIdentifier
		Content asn1.RawValue `asn1:"explicit,tag:0"`
	}
	signedData struct {
		Version      int
		Digests      []pkix.AlgorithmIdentifier `asn1:"set"`
		Encapsulated encapsulated
		Certificates asn1.RawValue
		Signers      []signerInfo `asn1:"set"`
	}
	encapsulated struct {
		Type    asn1.ObjectIdentifier
		Content []byte `asn1:"explicit,tag:0"`
	}
	signerInfo struct {
		Version   int
		ID        issuerAndSerial
		Digest    pkix.AlgorithmIdentifier
		Attrs     []attribute `asn1:"tag:0,set"`
		Algorithm pkix.AlgorithmIdentifier
		Signature []byte
	}
	issuerAndSerial struct {
		Issuer asn1.RawValue
		Serial *big.Int
	}
	attribute struct {
		Type   asn1.ObjectIdentifier
		Values []asn1.RawValue `asn1:"set"`
	}
	signingCertV2 struct{ Certs []certID }
	certID        struct{ Hash []byte }
)

func der(t testing.TB, v any, params string) []byte {
	t.Helper()
	out, err := asn1.MarshalWithParams(v, params)
	check(t, err)
	return out
}

// token returns a timestamp token of RFC 3161 around info.
func token(t testing.TB, info []byte, certs [][]byte, signers ...signerInfo) []byte {
	t.Helper()
	all := asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true}
	for _, c := range certs {
		all.Bytes = append(all.Bytes, c...)
	}
	data := der(t, signedData{3, []pkix.AlgorithmIdentifier{sha256Algorithm}, encapsulated{oidTSTInfo, info}, all, signers}, "")
	return der(t, contentInfo{oidSignedData, asn1.RawValue{FullBytes: explicit(t, data)}}, "")
}

func explicit(t testing.TB, inner []byte) []byte {
	return der(t, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: inner}, "")
}

// timestampToken returns a token that holds certificates and n signers, and that nobody signed.
func timestampToken(t testing.TB, certs [][]byte, n int) []byte {
	t.Helper()
	name := asn1.RawValue{FullBytes: der(t, pkix.Name{CommonName: "x"}.ToRDNSequence(), "")}
	signers := make([]signerInfo, n)
	for i := range signers {
		signers[i] = signerInfo{1, issuerAndSerial{name, big.NewInt(int64(i))}, sha256Algorithm, []attribute{{oidContentType, []asn1.RawValue{{FullBytes: der(t, oidTSTInfo, "")}}}}, ecdsaAlgorithm, []byte{0}}
	}
	return token(t, []byte{0}, certs, signers...)
}

// A clock is a timestamping authority that stands still.
type clock struct {
	t  *testing.T
	id *identity
	at time.Time
}

// newClock returns an authority that issuer lets say what time it is.
func newClock(t *testing.T, issuer *identity, at time.Time) *clock {
	usage := der(t, []asn1.ObjectIdentifier{oidTimeStamping}, "")
	return &clock{t, newSigner(t, issuer, "clock", func(c *x509.Certificate) {
		c.ExtKeyUsage, c.ExtraExtensions = nil, []pkix.Extension{{Id: oidExtKeyUsage, Critical: true, Value: usage}}
	}), at}
}

// Timestamp implements [tspclient.Timestamper].
func (c *clock) Timestamp(_ context.Context, req *tspclient.Request) (*tspclient.Response, error) {
	info := der(c.t, tspclient.TSTInfo{Version: 1, Policy: asn1.ObjectIdentifier{1, 2, 3}, MessageImprint: req.MessageImprint,
		SerialNumber: big.NewInt(1), GenTime: c.at.UTC().Truncate(time.Second), Nonce: req.Nonce}, "")
	digest, hash := sha256.Sum256(info), sha256.Sum256(c.id.cert.Raw)
	attrs := []attribute{
		{oidContentType, []asn1.RawValue{{FullBytes: der(c.t, oidTSTInfo, "")}}},
		{oidMessageDigest, []asn1.RawValue{{FullBytes: der(c.t, digest[:], "")}}},
		{oidSigningCertV2, []asn1.RawValue{{FullBytes: der(c.t, signingCertV2{[]certID{{hash[:]}}}, "")}}},
	}
	sum := sha256.Sum256(der(c.t, attrs, "set"))
	signature, err := c.id.key.Sign(rand.Reader, sum[:], crypto.SHA256)
	check(c.t, err)
	id := issuerAndSerial{asn1.RawValue{FullBytes: c.id.cert.RawIssuer}, c.id.cert.SerialNumber}
	text := token(c.t, info, [][]byte{c.id.cert.Raw}, signerInfo{1, id, sha256Algorithm, attrs, ecdsaAlgorithm, signature})
	return &tspclient.Response{TimestampToken: asn1.RawValue{FullBytes: text}}, nil
}

// A timestamp by an authority in the Secret keeps a signature good after its
// certificate has expired.
func TestTimestamp(t *testing.T) {
	ca, clocks, strangers := authority(t, "root"), authority(t, "clocks"), authority(t, "strangers")
	short := newSigner(t, ca, "builder", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-4*time.Hour), time.Now().Add(-time.Hour)
	})
	certs := append(ca.pem(), clocks.pem()...)
	stamped := level("strict")
	stamped.Stores = append(stamped.Stores, "tsa:clocks")
	for _, c := range []struct {
		name   string
		policy policy
		issuer *identity
		at     time.Duration // ago
		say    string        // "" when it is good
	}{
		{"good", stamped, clocks, 2 * time.Hour, ""},
		{"made too late", stamped, clocks, 30 * time.Minute, "authenticTimestamp: timestamp can be after certificate"},
		{"by a stranger", stamped, strangers, 2 * time.Hour, "authenticTimestamp: failed to verify the timestamp countersignature"},
		{"not asked for", level("strict"), clocks, 2 * time.Hour, "authenticTimestamp: verification time is after certificate"},
	} {
		for _, mediaType := range mediaTypes {
			t.Run(c.name+" "+mediaType, func(t *testing.T) {
				s := newRepository(t, testenv.RegistryConfig{})
				subject := s.artifact("hello")
				s.attach(subject, mediaType, short.sign(t, subject, mediaType, func(r *signature.SignRequest) {
					r.SigningTime, r.Timestamper = time.Now().Add(-3*time.Hour), newClock(t, c.issuer, time.Now().Add(-c.at))
					r.TSARootCAs = x509.NewCertPool()
					r.TSARootCAs.AddCert(c.issuer.cert)
				}))
				v, err := s.verify(subject, secret(certs, c.policy))
				if c.say != "" {
					wantRefused(t, err, c.say)
					return
				}
				check(t, err)
				if !strings.Contains(v.Signer, "builder") {
					t.Errorf("got %+v", v)
				}
			})
		}
	}
}
