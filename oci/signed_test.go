package oci_test

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
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/source"
)

// technologies are what signatures are verified with.
var technologies = map[string]oci.Technology{"cosign": cosign.New(cosign.Config{})}

// A keyPair signs as cosign does with a key, in the older of its two forms: a
// layer with a payload that names the digest, under a tag made of it.
type keyPair struct{ key *ecdsa.PrivateKey }

// signer is whom objects trust in these tests. It has the same key always.
var signer = sync.OnceValue(func() keyPair {
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), bytes.Repeat([]byte{1}, 32))
	if err != nil {
		panic(err)
	}
	return keyPair{key}
})

// public returns the Secret with the public key.
func (k keyPair) public() source.Secret {
	der, err := x509.MarshalPKIXPublicKey(k.key.Public())
	if err != nil {
		panic(err)
	}
	return source.Secret{Data: map[string][]byte{"cosign.pub": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})}}
}

// sign publishes a signature of claimed as that of subject.
func (k keyPair) sign(g *testenv.Registry, repo string, subject ocispec.Descriptor, claimed digest.Digest) {
	payload := []byte(`{"critical":{"identity":{"docker-reference":""},"image":{"docker-manifest-digest":"` + claimed.String() +
		`"},"type":"cosign container image signature"},"optional":null}`)
	sum := sha256.Sum256(payload)
	made, err := ecdsa.SignASN1(rand.Reader, k.key, sum[:])
	if err != nil {
		panic(err)
	}
	g.Push(repo, signatureTag(subject), testenv.Manifest{Layers: []testenv.Blob{{
		MediaType: "application/vnd.dev.cosign.simplesigning.v1+json", Data: payload,
		Annotations: map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(made)},
	}}})
}

// signatureTag is where the signature of subject is found.
func signatureTag(subject ocispec.Descriptor) string {
	return strings.Replace(subject.Digest.String(), ":", "-", 1) + ".sig"
}

// signed asks for verification with the key of the signer.
func signed(s *source.OCIRepositorySpec) {
	s.Verify = &source.OCIRepositoryVerification{Provider: "cosign", SecretRef: &source.LocalReference{Name: "keys"}}
}
