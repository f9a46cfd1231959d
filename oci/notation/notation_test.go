package notation_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/notaryproject/notation-core-go/signature"
	"github.com/notaryproject/notation-core-go/signature/cose"
	"github.com/notaryproject/notation-core-go/signature/jws"
	notaryproject "github.com/notaryproject/notation-go"
	"github.com/notaryproject/notation-go/registry"
	"github.com/notaryproject/notation-go/signer"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/notation"
	"github.com/headgate-io/headgate/source"
)

const artifactType = "application/vnd.cncf.notary.signature"

const repository = "team/app"

// A signedRepository is a repository in its own registry.
type signedRepository struct {
	*testenv.Registry
	t    *testing.T
	repo *oci.Repository
}

// newRepository returns an empty repository.
func newRepository(t *testing.T, c testenv.RegistryConfig) *signedRepository {
	t.Helper()
	g := testenv.StartRegistry(t, c)
	v := &transport.SecretReader{Namespace: "default"}
	repo, err := oci.Connect(t.Context(), oci.Access{URL: g.URL(repository), Insecure: true}, source.Env{}, v)
	must(t, err)
	t.Cleanup(repo.Close)
	return &signedRepository{g, t, repo}
}

// artifact pushes an artifact with this content.
func (s *signedRepository) artifact(content string) ocispec.Descriptor {
	s.t.Helper()
	return s.Push(repository, "", testenv.Manifest{ArtifactType: "application/vnd.test", Layers: []testenv.Blob{{MediaType: "text/plain", Data: []byte(content)}}})
}

// attach pushes an envelope as a signature of subject.
func (s *signedRepository) attach(subject ocispec.Descriptor, mediaType string, envelope []byte) ocispec.Descriptor {
	s.t.Helper()
	return s.Push(repository, "", testenv.Manifest{ArtifactType: artifactType, Subject: &subject, Layers: []testenv.Blob{{MediaType: mediaType, Data: envelope}}})
}

// verify verifies subject with the trust in a Secret.
func (s *signedRepository) verify(subject ocispec.Descriptor, secret map[string]string) (source.Verification, error) {
	s.t.Helper()
	v, err := notation.New(s.repo, oci.Trust{Keys: secretOf(secret)})
	must(s.t, err)
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	return v.Verify(ctx, subject)
}

func secretOf(data map[string]string) transport.Secret {
	s := transport.Secret{Name: "default/trust", Secret: source.Secret{Data: map[string][]byte{}}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return s
}

// A policy is a trust policy with one statement.
type policy struct {
	Name    string       `json:"name"`
	Scopes  []string     `json:"registryScopes"`
	Level   verification `json:"signatureVerification"`
	Stores  []string     `json:"trustStores,omitempty"`
	Trusted []string     `json:"trustedIdentities,omitempty"`
}

type verification struct {
	Level     string            `json:"level"`
	Override  map[string]string `json:"override,omitempty"`
	Timestamp string            `json:"verifyTimestamp,omitempty"`
}

// level returns a policy with a level, for all repositories and identities.
func level(name string) policy {
	return policy{Name: "all", Scopes: []string{"*"}, Level: verification{Level: name}, Stores: []string{"ca:team"}, Trusted: []string{"*"}}
}

// secret returns the data of a Secret with policies and certificates.
func secret(certs []byte, policies ...policy) map[string]string {
	doc, err := json.Marshal(map[string]any{"version": "1.0", "trustPolicies": policies})
	if err != nil {
		panic(err)
	}
	return map[string]string{"trustpolicy.json": string(doc), "ca.crt": string(certs)}
}

// An identity is a certificate and its key.
type identity struct {
	cert   *x509.Certificate
	key    crypto.Signer
	issuer *identity
}

// authority returns a self-signed authority.
func authority(t testing.TB, name string) *identity {
	t.Helper()
	return issue(t, nil, &x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: []string{"Test"}, Country: []string{"DE"}, Province: []string{"BE"}}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign})
}

// newSigner returns an identity with a signing certificate of issuer; change may be nil.
func newSigner(t testing.TB, issuer *identity, name string, change func(*x509.Certificate)) *identity {
	t.Helper()
	c := &x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: []string{"Test"}, Country: []string{"DE"}, Province: []string{"BE"}},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}}
	if change != nil {
		change(c)
	}
	return issue(t, issuer, c)
}

func issue(t testing.TB, issuer *identity, c *x509.Certificate) *identity {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	if c.SerialNumber == nil {
		c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
		must(t, err)
	}
	if c.NotBefore.IsZero() {
		c.NotBefore, c.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(48*time.Hour)
	}
	id := &identity{key: key, issuer: issuer}
	parent, parentKey := c, crypto.Signer(key)
	if issuer != nil {
		parent, parentKey = issuer.cert, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), parentKey)
	must(t, err)
	id.cert, err = x509.ParseCertificate(der)
	must(t, err)
	return id
}

func (id *identity) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: id.cert.Raw})
}

func (id *identity) chain() (chain []*x509.Certificate) {
	for ; id != nil; id = id.issuer {
		chain = append(chain, id.cert)
	}
	return chain
}

var mediaTypes = []string{jws.MediaTypeEnvelope, cose.MediaTypeEnvelope}

// sign returns an envelope for subject; change may be nil.
func (id *identity) sign(t testing.TB, subject ocispec.Descriptor, mediaType string, change func(*signature.SignRequest)) []byte {
	t.Helper()
	payload, err := json.Marshal(map[string]any{"targetArtifact": subject})
	must(t, err)
	local, err := signature.NewLocalSigner(id.chain(), id.key)
	must(t, err)
	req := &signature.SignRequest{
		Payload: signature.Payload{ContentType: "application/vnd.cncf.notary.payload.v1+json", Content: payload},
		Signer:  local, SigningTime: time.Now().Add(-time.Hour), SigningScheme: signature.SigningSchemeX509, SigningAgent: "test",
	}
	if change != nil {
		change(req)
	}
	envelope, err := signature.NewEnvelope(mediaType)
	must(t, err)
	content, err := envelope.Sign(req)
	must(t, err)
	return content
}

// wantRefused checks that err is a refusal that contains all of texts.
func wantRefused(t *testing.T, err error, texts ...string) {
	t.Helper()
	testenv.ErrorIs(t, err, source.ErrVerification, "refusal")
	wantError(t, err, texts...)
}

func wantError(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		testenv.ErrorSays(t, err, text)
	}
}

var must = testenv.Must

// TestSignedByNotation checks that signatures that the notation library made and pushed are
// valid.
func TestSignedByNotation(t *testing.T) {
	ca := authority(t, "root")
	leaf := newSigner(t, ca, "builder", nil)
	for name, c := range map[string]testenv.RegistryConfig{"referrers": {}, "tag": {NoReferrers: true}} {
		for _, mediaType := range mediaTypes {
			t.Run(name+" "+mediaType, func(t *testing.T) {
				s := newRepository(t, c)
				subject := s.artifact("hello")
				target, err := remote.NewRepository(s.Host + "/" + repository)
				must(t, err)
				target.PlainHTTP = true
				by, err := signer.NewGenericSigner(leaf.key, leaf.chain())
				must(t, err)
				_, err = notaryproject.Sign(t.Context(), by, registry.NewRepository(target), notaryproject.SignOptions{
					ArtifactReference: subject.Digest.String(),
					SignerSignOptions: notaryproject.SignerSignOptions{SignatureMediaType: mediaType, ExpiryDuration: time.Hour},
				})
				must(t, err)
				v, err := s.verify(subject, secret(ca.pem(), level("strict")))
				must(t, err)
				testenv.Equal(t, v.Message, "verified signature of '"+subject.Digest.String()+"' by 'CN=builder,O=Test,ST=BE,C=DE' at level strict", "message")
				if v.Mode != "notation" || v.Level != "strict" || v.Ignored || v.Signer != "CN=builder,O=Test,ST=BE,C=DE" {
					t.Errorf("got %+v", v)
				}
			})
		}
	}
}

// TestLevels checks that a failed check that the level does not enforce is named in the message.
func TestLevels(t *testing.T) {
	ca, other := authority(t, "root"), authority(t, "other")
	leaf := newSigner(t, ca, "builder", nil)
	foreign := newSigner(t, other, "mallory", nil)
	short := newSigner(t, ca, "short", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-4*time.Hour), time.Now().Add(-time.Hour)
	})
	expired := func(r *signature.SignRequest) {
		r.SigningTime, r.Expiry = time.Now().Add(-3*time.Hour), time.Now().Add(-2*time.Hour)
	}
	custom := level("strict")
	custom.Level.Override = map[string]string{"expiry": "log", "revocation": "skip"}
	unsure := level("strict")
	unsure.Level.Override = map[string]string{"authenticity": "log"}
	enforcing := level("audit")
	enforcing.Level.Override = map[string]string{"authenticity": "enforce"}
	skip := level("skip")
	for _, c := range []struct {
		name    string
		policy  policy
		by      *identity
		change  func(*signature.SignRequest)
		level   string
		ignored bool
		say     []string
		silent  string
	}{
		{"strict", level("strict"), leaf, nil, "strict", false, []string{"at level strict"}, "enforce"},
		{"permissive", level("permissive"), leaf, nil, "permissive", false,
			[]string{"verified signature of", "at level permissive, which does not enforce authenticTimestamp, expiry, revocation"}, "expired"},
		{"permissive expired", level("permissive"), leaf, expired, "permissive", false, []string{"verified", "expiry: digital signature has expired on"}, ""},
		{"permissive expired certificate", level("permissive"), short, expired, "permissive", false,
			[]string{"authenticTimestamp: ", "it was expired at"}, ""},
		{"audit", level("audit"), leaf, nil, "audit", true, []string{"verified signature of", "does not enforce authenticity, authenticTimestamp, expiry, revocation"}, "nobody"},
		{"audit foreign", level("audit"), foreign, nil, "audit", true,
			[]string{"no trusted identity vouches", "authenticity: "}, "verified"},
		{"audit that enforces authenticity", enforcing, leaf, nil, "custom", false, []string{"verified signature of", "does not enforce authenticTimestamp, expiry, revocation"}, "nobody"},
		{"skip", skip, foreign, expired, "skip", true, []string{"no signature was looked for", "'all'", "level skip"}, "verified"},
		{"custom", custom, leaf, expired, "custom", false, []string{"at level custom, which does not enforce expiry, revocation; expiry: "}, ""},
		{"custom authenticity", unsure, foreign, nil, "custom", true, []string{"no trusted identity vouches"}, ""},
		{"custom authenticity that holds", unsure, leaf, nil, "custom", true, []string{"verified signature of", "does not enforce authenticity"}, ""},
	} {
		for _, mediaType := range mediaTypes {
			t.Run(c.name+" "+mediaType, func(t *testing.T) {
				s := newRepository(t, testenv.RegistryConfig{})
				subject := s.artifact("hello")
				s.attach(subject, mediaType, c.by.sign(t, subject, mediaType, c.change))
				s.Reset()
				v, err := s.verify(subject, secret(ca.pem(), c.policy))
				must(t, err)
				if v.Mode != "notation" || v.Level != c.level || v.Ignored != c.ignored || (v.Signer == "") != (c.by == foreign) {
					t.Errorf("got %+v", v)
				}
				for _, text := range c.say {
					if !strings.Contains(v.Message, text) {
						t.Errorf("message %q does not say %q", v.Message, text)
					}
				}
				if c.silent != "" && strings.Contains(v.Message, c.silent) {
					t.Errorf("message %q says %q", v.Message, c.silent)
				}
				if c.level == "skip" && len(s.Requests()) > 0 {
					t.Errorf("asked the registry: %v", s.Requests())
				}
			})
		}
	}
}

// TestOneOfSeveral checks that one valid signature is sufficient, in any position.
func TestOneOfSeveral(t *testing.T) {
	ca, other := authority(t, "root"), authority(t, "other")
	s := newRepository(t, testenv.RegistryConfig{})
	subject := s.artifact("hello")
	for range 6 {
		mallory := newSigner(t, other, "mallory", nil)
		s.attach(subject, jws.MediaTypeEnvelope, mallory.sign(t, subject, jws.MediaTypeEnvelope, nil))
	}
	s.attach(subject, cose.MediaTypeEnvelope, []byte("nonsense"))
	s.Push(repository, "", testenv.Manifest{ArtifactType: "application/vnd.sbom", Subject: &subject})
	leaf := newSigner(t, ca, "builder", nil)
	s.attach(subject, cose.MediaTypeEnvelope, leaf.sign(t, subject, cose.MediaTypeEnvelope, nil))
	v, err := s.verify(subject, secret(ca.pem(), level("strict")))
	must(t, err)
	if !strings.Contains(v.Signer, "builder") {
		t.Errorf("got %+v", v)
	}
}

// TestSigningAuthority checks that the authority of a signing service is trusted through its
// own type of store, for signatures made while the certificate was valid.
func TestSigningAuthority(t *testing.T) {
	ca := authority(t, "root")
	short := newSigner(t, ca, "service", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-4*time.Hour), time.Now().Add(-time.Hour)
	})
	s := newRepository(t, testenv.RegistryConfig{})
	subject := s.artifact("hello")
	s.attach(subject, jws.MediaTypeEnvelope, short.sign(t, subject, jws.MediaTypeEnvelope, func(r *signature.SignRequest) {
		r.SigningScheme, r.SigningTime = signature.SigningSchemeX509SigningAuthority, time.Now().Add(-2*time.Hour)
	}))
	p := level("strict")
	_, err := s.verify(subject, secret(ca.pem(), p))
	wantRefused(t, err, "authenticity")
	p.Stores = []string{"signingAuthority:services"}
	v, err := s.verify(subject, secret(ca.pem(), p))
	must(t, err)
	if !strings.Contains(v.Signer, "service") {
		t.Errorf("got %+v", v)
	}
}

// TestRefused checks that invalid signatures are refused with the name of the failed check.
func TestRefused(t *testing.T) {
	ca, other := authority(t, "root"), authority(t, "other")
	leaf, foreign := newSigner(t, ca, "builder", nil), newSigner(t, other, "builder", nil)
	short := newSigner(t, ca, "builder", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-4*time.Hour), time.Now().Add(-time.Hour)
	})
	picky := level("strict")
	picky.Trusted = []string{"x509.subject: C=DE, ST=BE, O=Test, CN=releaser"}
	stamped := level("strict")
	stamped.Stores = append(stamped.Stores, "tsa:clock")
	early := func(r *signature.SignRequest) { r.SigningTime = time.Now().Add(-3 * time.Hour) }
	for _, c := range []struct {
		name   string
		policy policy
		by     *identity
		change func(*signature.SignRequest)
		say    []string
	}{
		{"wrong CA", level("strict"), foreign, nil, []string{"authenticity: "}},
		{"wrong CA at level permissive", level("permissive"), foreign, nil, []string{"authenticity: "}},
		{"expired signature", level("strict"), leaf, func(r *signature.SignRequest) {
			r.SigningTime, r.Expiry = time.Now().Add(-3*time.Hour), time.Now().Add(-2*time.Hour)
		}, []string{"expiry: digital signature has expired on"}},
		{"expired certificate", level("strict"), short, early, []string{"authenticTimestamp: ", "it was expired at"}},
		{"untrusted identity", picky, leaf, nil, []string{"authenticity: ", "does not match the X.509 trusted identities", "releaser"}},
		{"no timestamp", stamped, leaf, nil, []string{"authenticTimestamp: no timestamp countersignature"}},
		{"critical attribute", level("strict"), leaf, func(r *signature.SignRequest) {
			r.ExtendedSignedAttributes = []signature.Attribute{{Key: "example.com/only-on-sundays", Critical: true, Value: "yes"}}
		}, []string{"its critical attribute \"example.com/only-on-sundays\" is not known"}},
		{"plugin", level("strict"), leaf, func(r *signature.SignRequest) {
			r.ExtendedSignedAttributes = []signature.Attribute{{Key: "io.cncf.notary.verificationPlugin", Critical: true, Value: "com.example.plugin"}}
		}, []string{"verification plugin \"com.example.plugin\"", "plugins are not run"}},
		{"plugin at level audit", level("audit"), leaf, func(r *signature.SignRequest) {
			r.ExtendedSignedAttributes = []signature.Attribute{{Key: "io.cncf.notary.verificationPlugin", Critical: true, Value: "com.example.plugin"}}
		}, []string{"plugins are not run"}},
		{"payload of another type", level("strict"), leaf, func(r *signature.SignRequest) { r.Payload.ContentType = "application/json" }, []string{"integrity: payload content type"}},
		{"payload that names nothing", level("audit"), leaf, func(r *signature.SignRequest) { r.Payload.Content = []byte(`{"targetArtifact":{}}`) }, []string{`integrity: it is the signature of ""`}},
		{"payload that is no descriptor", level("audit"), leaf, func(r *signature.SignRequest) { r.Payload.Content = []byte(`{"targetArtifact":7}`) }, []string{`integrity: it is the signature of ""`}},
	} {
		for _, mediaType := range mediaTypes {
			t.Run(c.name+" "+mediaType, func(t *testing.T) {
				s := newRepository(t, testenv.RegistryConfig{})
				subject := s.artifact("hello")
				d := s.attach(subject, mediaType, c.by.sign(t, subject, mediaType, c.change))
				v, err := s.verify(subject, secret(ca.pem(), c.policy))
				wantRefused(t, err, append(c.say, "no signature of ", subject.Digest.String(), "signature "+d.Digest.String())...)
				testenv.Equal(t, v.Message, "", v)
			})
		}
	}
}

// TestSignatureOfSomethingElse checks that a signature attached to another subject is refused.
func TestSignatureOfSomethingElse(t *testing.T) {
	ca := authority(t, "root")
	leaf := newSigner(t, ca, "builder", nil)
	for _, lvl := range []string{"strict", "permissive", "audit"} {
		for _, mediaType := range mediaTypes {
			t.Run(lvl+" "+mediaType, func(t *testing.T) {
				s := newRepository(t, testenv.RegistryConfig{})
				good, evil := s.artifact("hello"), s.artifact("evil")
				s.attach(evil, mediaType, leaf.sign(t, good, mediaType, nil))
				_, err := s.verify(evil, secret(ca.pem(), level(lvl)))
				wantRefused(t, err, fmt.Sprintf("integrity: it is the signature of %q", good.Digest))

				renamed := good
				renamed.MediaType, renamed.Size = "application/vnd.other", 7
				s.attach(good, mediaType, leaf.sign(t, renamed, mediaType, nil))
				_, err = s.verify(good, secret(ca.pem(), level(lvl)))
				wantRefused(t, err, `integrity: it is the signature of 7 bytes of type "application/vnd.other"`)
			})
		}
	}
}

// TestTamperedPayload checks that a payload that was changed after signing is refused.
func TestTamperedPayload(t *testing.T) {
	ca := authority(t, "root")
	leaf := newSigner(t, ca, "builder", nil)
	s := newRepository(t, testenv.RegistryConfig{})
	good, evil := s.artifact("hello"), s.artifact("evil")
	genuine, forged := map[string]any{}, map[string]any{}
	must(t, json.Unmarshal(leaf.sign(t, good, jws.MediaTypeEnvelope, nil), &genuine))
	must(t, json.Unmarshal(newSigner(t, authority(t, "x"), "x", nil).sign(t, evil, jws.MediaTypeEnvelope, nil), &forged))
	genuine["payload"] = forged["payload"]
	text, err := json.Marshal(genuine)
	must(t, err)
	s.attach(evil, jws.MediaTypeEnvelope, text)
	_, err = s.verify(evil, secret(ca.pem(), level("audit")))
	wantRefused(t, err, "integrity: ")

	bytes := leaf.sign(t, good, cose.MediaTypeEnvelope, nil)
	changed := strings.Replace(string(bytes), good.Digest.Encoded(), evil.Digest.Encoded(), 1)
	changed = strings.Replace(changed, fmt.Sprint(`"size":`, good.Size), fmt.Sprint(`"size":`, evil.Size), 1)
	s.attach(evil, cose.MediaTypeEnvelope, []byte(changed))
	_, err = s.verify(evil, secret(ca.pem(), level("audit")))
	wantRefused(t, err, "integrity: ", "; signature ")
}

// TestStrippedSignature checks that verification fails if the signature is missing.
func TestStrippedSignature(t *testing.T) {
	ca := authority(t, "root")
	leaf := newSigner(t, ca, "builder", nil)
	for name, c := range map[string]testenv.RegistryConfig{"referrers": {}, "tag": {NoReferrers: true}} {
		t.Run(name, func(t *testing.T) {
			s := newRepository(t, c)
			subject := s.artifact("hello")
			_, err := s.verify(subject, secret(ca.pem(), level("audit")))
			wantRefused(t, err, s.Host+"/team/app@"+subject.Digest.String()+" has no signature: sign it with notation sign")

			d := s.attach(subject, jws.MediaTypeEnvelope, leaf.sign(t, subject, jws.MediaTypeEnvelope, nil))
			_, err = s.verify(subject, secret(ca.pem(), level("strict")))
			must(t, err)
			s.Override(repository, d.Digest.String(), false, ocispec.MediaTypeImageManifest, []byte("{}"))
			_, err = s.verify(subject, secret(ca.pem(), level("strict")))
			wantRefused(t, err, "its manifest: ")
		})
	}
}
