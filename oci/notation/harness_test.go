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
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/notaryproject/notation-core-go/signature"
	"github.com/notaryproject/notation-core-go/signature/cose"
	"github.com/notaryproject/notation-core-go/signature/jws"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/notation"
	"github.com/headgate-io/headgate/source"
)

const artifactType = "application/vnd.cncf.notary.signature"

const repository = "team/app"

// A signedRepository is a repository in a registry of its own.
type signedRepository struct {
	*testenv.Registry
	t    *testing.T
	repo *oci.Repository
}

// newRepository returns an empty repository.
func newRepository(t *testing.T, c testenv.RegistryConfig) *signedRepository {
	t.Helper()
	g := testenv.StartRegistry(t, c)
	v := &transport.Vault{Namespace: "default"}
	repo, err := oci.Connect(t.Context(), oci.Access{URL: g.URL(repository), Insecure: true}, source.Env{}, v)
	check(t, err)
	t.Cleanup(repo.Close)
	return &signedRepository{g, t, repo}
}

// artifact pushes an artifact with a content.
func (s *signedRepository) artifact(content string) ocispec.Descriptor {
	s.t.Helper()
	return s.Push(repository, "", testenv.Manifest{ArtifactType: "application/vnd.test", Layers: []testenv.Blob{{MediaType: "text/plain", Data: []byte(content)}}})
}

// attach pushes an envelope as a signature of subject.
func (s *signedRepository) attach(subject ocispec.Descriptor, mediaType string, envelope []byte) ocispec.Descriptor {
	s.t.Helper()
	return s.Push(repository, "", testenv.Manifest{ArtifactType: artifactType, Subject: &subject, Layers: []testenv.Blob{{MediaType: mediaType, Data: envelope}}})
}

// verify verifies subject by a Secret.
func (s *signedRepository) verify(subject ocispec.Descriptor, secret map[string]string) (source.Verification, error) {
	s.t.Helper()
	v, err := notation.New(s.repo, oci.Trust{Keys: secretOf(secret)})
	check(s.t, err)
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

// level is a policy for every repository and every identity.
func level(name string) policy {
	return policy{Name: "all", Scopes: []string{"*"}, Level: verification{Level: name}, Stores: []string{"ca:team"}, Trusted: []string{"*"}}
}

// secret is a Secret with policies and certificates.
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

// newSigner returns an identity that issuer lets sign; change may be nil.
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
	check(t, err)
	if c.SerialNumber == nil {
		c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
		check(t, err)
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
	check(t, err)
	id.cert, err = x509.ParseCertificate(der)
	check(t, err)
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
	check(t, err)
	local, err := signature.NewLocalSigner(id.chain(), id.key)
	check(t, err)
	req := &signature.SignRequest{
		Payload: signature.Payload{ContentType: "application/vnd.cncf.notary.payload.v1+json", Content: payload},
		Signer:  local, SigningTime: time.Now().Add(-time.Hour), SigningScheme: signature.SigningSchemeX509, SigningAgent: "test",
	}
	if change != nil {
		change(req)
	}
	envelope, err := signature.NewEnvelope(mediaType)
	check(t, err)
	content, err := envelope.Sign(req)
	check(t, err)
	return content
}

// wantRefused checks that err is a refusal that says all of texts.
func wantRefused(t *testing.T, err error, texts ...string) {
	t.Helper()
	if !errors.Is(err, source.ErrVerification) {
		t.Errorf("not a refusal: %v", err)
	}
	wantError(t, err, texts...)
}

func wantError(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one that says %q", texts)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not say %q", err, text)
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
