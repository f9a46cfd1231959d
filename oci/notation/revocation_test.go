package notation_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/digitorus/pkcs7"
	"github.com/notaryproject/notation-core-go/signature"
	"github.com/notaryproject/notation-core-go/signature/jws"
	"github.com/notaryproject/tspclient-go"
	"golang.org/x/crypto/ocsp"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// A revocationServer serves OCSP responses or a CRL.
type revocationServer struct {
	*httptest.Server
	asked atomic.Int32
}

func newRevocationServer(t *testing.T, answer func(r *http.Request) ([]byte, error)) *revocationServer {
	d := new(revocationServer)
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.asked.Add(1)
		text, err := answer(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Write(text)
	}))
	t.Cleanup(d.Close)
	return d
}

// newOCSPServer returns an OCSP server that answers with status for the certificates of ca.
func newOCSPServer(t *testing.T, ca *identity, status int) *revocationServer {
	return newRevocationServer(t, func(r *http.Request) ([]byte, error) {
		return ocsp.CreateResponse(ca.cert, ca.cert, ocsp.Response{
			Status: status, SerialNumber: serial(r), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: time.Now().Add(time.Hour), RevokedAt: time.Now().Add(-time.Hour),
		}, ca.key)
	})
}

// serial returns the serial number in an OCSP request.
func serial(r *http.Request) *big.Int {
	text, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodGet { // RFC 6960 appendix A
		text, _ = base64.StdEncoding.DecodeString(strings.TrimPrefix(r.URL.Path, "/"))
	}
	req, err := ocsp.ParseRequest(text)
	if err != nil {
		return big.NewInt(0)
	}
	return req.SerialNumber
}

// newCRLServer returns a server for a CRL of ca with the serial numbers revoked.
func newCRLServer(t *testing.T, ca *identity, revoked ...*big.Int) *revocationServer {
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: time.Now().Add(time.Hour)}
	for _, n := range revoked {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: n, RevocationTime: time.Now().Add(-time.Hour)})
	}
	text, err := x509.CreateRevocationList(rand.Reader, list, ca.cert, ca.key)
	must(t, err)
	return newRevocationServer(t, func(*http.Request) ([]byte, error) { return text, nil })
}

// TestRevocation checks that revocation is checked at the addresses in certificates, and that the
// level decides about the effect.
func TestRevocation(t *testing.T) {
	ca, other := authority(t, "root"), authority(t, "other")
	down := newRevocationServer(t, func(*http.Request) ([]byte, error) { return nil, errors.New("down") })
	noise := newRevocationServer(t, func(*http.Request) ([]byte, error) { return make([]byte, 64<<10), nil })
	at := func(ocsp, crl *revocationServer) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			if ocsp != nil {
				c.OCSPServer = []string{ocsp.URL}
			}
			if crl != nil {
				c.CRLDistributionPoints = []string{crl.URL}
			}
		}
	}
	good, bad := newOCSPServer(t, ca, ocsp.Good), newOCSPServer(t, ca, ocsp.Revoked)
	foreign := newOCSPServer(t, other, ocsp.Good)
	list := newCRLServer(t, ca, big.NewInt(1000))
	middle := issue(t, ca, &x509.Certificate{
		Subject: pkix.Name{CommonName: "middle", Organization: []string{"Test"}, Province: []string{"BE"}, Country: []string{"DE"}},
		IsCA:    true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, OCSPServer: []string{down.URL},
	})
	revoking := newOCSPServer(t, middle, ocsp.Revoked)
	skip := level("strict")
	skip.Level.Override = map[string]string{"revocation": "skip"}
	for _, c := range []struct {
		name    string
		policy  policy
		issuer  *identity
		change  func(*x509.Certificate)
		refused string
		message string
		asked   *revocationServer
		silent  *revocationServer
	}{
		{"good by OCSP", level("strict"), ca, at(good, nil), "", "at level strict", good, nil},
		{"revoked by OCSP", level("strict"), ca, at(bad, nil), `revocation: signing certificate with subject "CN=builder,O=Test,ST=BE,C=DE" is revoked`, "", bad, nil},
		{"revoked at level permissive", level("permissive"), ca, at(bad, nil), "", "; revocation: signing certificate with subject", bad, nil},
		{"revoked, not asked", skip, ca, at(bad, nil), "", "does not enforce revocation", nil, bad},
		{"good by CRL", level("strict"), ca, at(nil, list), "", "at level strict", list, nil},
		{"revoked by CRL", level("strict"), ca, func(c *x509.Certificate) {
			at(nil, list)(c)
			c.SerialNumber = big.NewInt(1000)
		}, "is revoked", "", list, nil},
		{"OCSP down, CRL good", level("strict"), ca, at(down, list), "", "at level strict", down, nil},
		{"OCSP of a stranger", level("strict"), ca, at(foreign, nil), "revocation status is unknown: " + foreign.URL, "", foreign, nil},
		{"down", level("strict"), ca, at(down, nil), "revocation status is unknown: " + down.URL + ": ", "", down, nil},
		{"down at level permissive", level("permissive"), ca, at(nil, down), "", "revocation status is unknown: " + down.URL, down, nil},
		{"noise", level("strict"), ca, at(noise, nil), "revocation status is unknown: " + noise.URL, "", noise, nil},
		{"noise for a CRL", level("strict"), ca, at(nil, noise), "revocation status is unknown: " + noise.URL, "", noise, nil},
		{"revoked by OCSP, of an issuer not known", level("strict"), middle, at(revoking, nil), "is revoked", "", down, nil},
		{"of nobody trusted", level("audit"), other, at(foreign, foreign), "", "the certificate is not trusted", nil, foreign},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newRepository(t, testenv.RegistryConfig{})
			subject := s.artifact("hello")
			leaf := newSigner(t, c.issuer, "builder", c.change)
			s.attach(subject, jws.MediaTypeEnvelope, leaf.sign(t, subject, jws.MediaTypeEnvelope, nil))
			for _, d := range []*revocationServer{c.asked, c.silent} {
				if d != nil {
					d.asked.Store(0)
				}
			}
			v, err := s.verify(subject, secret(ca.pem(), c.policy))
			switch unknown := strings.Contains(c.refused, "unknown"); {
			case unknown:
				wantError(t, err, c.refused)
				if errors.Is(err, source.ErrVerification) || v != (source.Verification{}) {
					t.Errorf("refused without an answer: %v", err)
				}
			case c.refused != "":
				wantRefused(t, err, c.refused)
			default:
				must(t, err)
				if !strings.Contains(v.Message, c.message) {
					t.Errorf("message %q does not say %q", v.Message, c.message)
				}
			}
			if c.asked != nil && c.asked.asked.Load() == 0 {
				t.Error("nobody was asked")
			}
			if c.silent != nil && c.silent.asked.Load() > 0 {
				t.Error("a stranger decided who was asked")
			}
		})
	}
}

// TestRevocationIsAskedAgain checks that revocation results are not cached.
func TestRevocationIsAskedAgain(t *testing.T) {
	ca := authority(t, "root")
	var revoked atomic.Bool
	responder := newRevocationServer(t, func(r *http.Request) ([]byte, error) {
		status := ocsp.Good
		if revoked.Load() {
			status = ocsp.Revoked
		}
		return ocsp.CreateResponse(ca.cert, ca.cert, ocsp.Response{Status: status, SerialNumber: serial(r), NextUpdate: time.Now().Add(time.Hour), RevokedAt: time.Now()}, ca.key)
	})
	s := newRepository(t, testenv.RegistryConfig{})
	subject := s.artifact("hello")
	leaf := newSigner(t, ca, "builder", func(c *x509.Certificate) { c.OCSPServer = []string{responder.URL} })
	s.attach(subject, jws.MediaTypeEnvelope, leaf.sign(t, subject, jws.MediaTypeEnvelope, nil))
	_, err := s.verify(subject, secret(ca.pem(), level("strict")))
	must(t, err)
	revoked.Store(true)
	_, err = s.verify(subject, secret(ca.pem(), level("strict")))
	wantRefused(t, err, "is revoked")
}

// TestRevocationOfSeveral checks that an unknown revocation status of one signature does not
// affect the result for the next.
func TestRevocationOfSeveral(t *testing.T) {
	ca := authority(t, "root")
	down := newRevocationServer(t, func(*http.Request) ([]byte, error) { return nil, errors.New("down") })
	asking := newSigner(t, ca, "asking", func(c *x509.Certificate) { c.OCSPServer = []string{down.URL} })
	expired := newSigner(t, ca, "expired", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-4*time.Hour), time.Now().Add(-time.Hour)
	})
	s := newRepository(t, testenv.RegistryConfig{})
	subject := s.artifact("hello")
	s.attach(subject, jws.MediaTypeEnvelope, asking.sign(t, subject, jws.MediaTypeEnvelope, func(r *signature.SignRequest) {
		r.ExtendedSignedAttributes = []signature.Attribute{{Key: "example.com/strange", Critical: true, Value: "yes"}}
	}))
	s.attach(subject, jws.MediaTypeEnvelope, expired.sign(t, subject, jws.MediaTypeEnvelope, func(r *signature.SignRequest) {
		r.SigningTime = time.Now().Add(-3 * time.Hour)
	}))
	policy := level("permissive")
	policy.Level.Override = map[string]string{"authenticTimestamp": "enforce"}
	_, err := s.verify(subject, secret(ca.pem(), policy))
	wantRefused(t, err, "example.com/strange", "authenticTimestamp: ", "it was expired at")
	if strings.Contains(err.Error(), down.URL) {
		t.Errorf("error %v tells of a question that was not asked", err)
	}
}

var (
	oidTSTInfo       = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 1, 4}
	oidSigningCertV2 = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 16, 2, 47}
	oidExtKeyUsage   = asn1.ObjectIdentifier{2, 5, 29, 37}
	oidTimeStamping  = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 8}
)

// The attribute of RFC 5035 that identifies the certificate of a signer.
type (
	signingCertV2 struct{ Certs []certID }
	certID        struct{ Hash []byte }
)

func der(t testing.TB, v any) []byte {
	t.Helper()
	out, err := asn1.Marshal(v)
	must(t, err)
	return out
}

// token returns a timestamp token of RFC 3161 with the content info and the certificates certs.
func token(t testing.TB, info []byte, certs [][]byte, signers ...*identity) []byte {
	t.Helper()
	data, err := pkcs7.NewSignedData(info)
	must(t, err)
	data.SetDigestAlgorithm(pkcs7.OIDDigestAlgorithmSHA256)
	data.SetContentType(oidTSTInfo)
	data.GetSignedData().Version = 3
	for _, c := range certs {
		data.AddCertificate(&x509.Certificate{Raw: c})
	}
	for _, id := range signers {
		hash := sha256.Sum256(id.cert.Raw)
		named := pkcs7.Attribute{Type: oidSigningCertV2, Value: signingCertV2{[]certID{{hash[:]}}}}
		must(t, data.AddSigner(id.cert, id.key, pkcs7.SignerInfoConfig{SkipCertificates: true, ExtraSignedAttributes: []pkcs7.Attribute{named}}))
	}
	text, err := data.Finish()
	must(t, err)
	return text
}

// A timestampAuthority is a timestamping authority with a fixed time.
type timestampAuthority struct {
	t  *testing.T
	id *identity
	at time.Time
}

// newTimestampAuthority returns a timestamping authority with a certificate of issuer.
func newTimestampAuthority(t *testing.T, issuer *identity, at time.Time) *timestampAuthority {
	usage := der(t, []asn1.ObjectIdentifier{oidTimeStamping})
	return &timestampAuthority{t, newSigner(t, issuer, "clock", func(c *x509.Certificate) {
		c.ExtKeyUsage, c.ExtraExtensions = nil, []pkix.Extension{{Id: oidExtKeyUsage, Critical: true, Value: usage}}
	}), at}
}

// Timestamp implements [tspclient.Timestamper].
func (c *timestampAuthority) Timestamp(_ context.Context, req *tspclient.Request) (*tspclient.Response, error) {
	info := der(c.t, tspclient.TSTInfo{Version: 1, Policy: asn1.ObjectIdentifier{1, 2, 3}, MessageImprint: req.MessageImprint,
		SerialNumber: big.NewInt(1), GenTime: c.at.UTC().Truncate(time.Second), Nonce: req.Nonce})
	text := token(c.t, info, [][]byte{c.id.cert.Raw}, c.id)
	return &tspclient.Response{TimestampToken: asn1.RawValue{FullBytes: text}}, nil
}

// TestTimestamp checks that a signature with a timestamp by an authority in the Secret remains
// valid after its certificate has expired.
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
		at     time.Duration // age of the timestamp
		say    string        // part of the error, "" if the signature is valid
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
					r.SigningTime, r.Timestamper = time.Now().Add(-3*time.Hour), newTimestampAuthority(t, c.issuer, time.Now().Add(-c.at))
					r.TSARootCAs = x509.NewCertPool()
					r.TSARootCAs.AddCert(c.issuer.cert)
				}))
				v, err := s.verify(subject, secret(certs, c.policy))
				if c.say != "" {
					wantRefused(t, err, c.say)
					return
				}
				must(t, err)
				if !strings.Contains(v.Signer, "builder") {
					t.Errorf("got %+v", v)
				}
			})
		}
	}
}
