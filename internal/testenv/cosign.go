package testenv

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// A Cosign signs as cosign does with a key, in the older of its two forms: a
// layer with a payload that names the digest, under a tag made of it.
type Cosign struct {
	t   testing.TB
	key *ecdsa.PrivateKey
}

// NewCosign returns a signer whose key is made of seed, and always the same.
func NewCosign(t testing.TB, seed byte) *Cosign {
	t.Helper()
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), bytes.Repeat([]byte{seed}, 32))
	check(t, err)
	return &Cosign{t, key}
}

// Public returns the public key in PEM.
func (c *Cosign) Public() []byte {
	c.t.Helper()
	der, err := x509.MarshalPKIXPublicKey(c.key.Public())
	check(c.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// Sign publishes a signature of claimed as that of subject.
func (c *Cosign) Sign(g *Registry, repo string, subject ocispec.Descriptor, claimed digest.Digest) {
	c.t.Helper()
	payload := []byte(`{"critical":{"identity":{"docker-reference":""},"image":{"docker-manifest-digest":"` + claimed.String() +
		`"},"type":"cosign container image signature"},"optional":null}`)
	sum := sha256.Sum256(payload)
	made, err := ecdsa.SignASN1(rand.Reader, c.key, sum[:])
	check(c.t, err)
	g.Push(repo, SignatureTag(subject), Manifest{Layers: []Blob{{
		MediaType: "application/vnd.dev.cosign.simplesigning.v1+json", Data: payload,
		Annotations: map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(made)},
	}}})
}

// SignatureTag is where the signature of subject is found.
func SignatureTag(subject ocispec.Descriptor) string {
	return strings.Replace(subject.Digest.String(), ":", "-", 1) + ".sig"
}
