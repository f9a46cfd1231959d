package cosign

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"strings"

	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/headgate-io/headgate/oci/internal/attempt"
)

// The annotations of a layer with a signature.
const (
	signatureKey   = "dev.cosignproject.cosign/signature"
	certificateKey = "dev.sigstore.cosign/certificate"
	chainKey       = "dev.sigstore.cosign/chain"
	rekorKey       = "dev.sigstore.cosign/bundle"
	timestampKey   = "dev.sigstore.cosign/rfc3161timestamp"
)

const (
	simpleType    = "application/vnd.dev.cosign.simplesigning.v1+json"
	simplePayload = "cosign container image signature"
)

const maxTag = 128 // characters (distribution specification 1.1, "Pulling manifests")

// layers lists the signatures in the manifest of the tag that stands for those of subject.
func (v *verifier) layers(ctx context.Context, subject ocispec.Descriptor) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		tag := strings.Replace(subject.Digest.String(), ":", "-", 1) + ".sig"
		if len(tag) > maxTag {
			return // there is none for sha512
		}
		m, err := v.tagged(ctx, tag)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err == nil && len(m.Layers) == 0 {
			err = attempt.Refuse("it names a manifest without layers")
		}
		if err != nil {
			yield(candidate{name: "tag " + tag}, err)
			return
		}
		for i, layer := range m.Layers {
			if i == maxSignatures {
				yield(candidate{name: "tag " + tag}, attempt.Refuse("it has %d signatures, more than the limit of %d", len(m.Layers), maxSignatures))
				return
			}
			c := candidate{fmt.Sprintf("signature %d of the tag", i+1), func(ctx context.Context) (*signature, error) {
				return v.layer(ctx, layer)
			}}
			if !yield(c, nil) {
				return
			}
		}
	}
}

// tagged returns the image manifest that tag names.
func (v *verifier) tagged(ctx context.Context, tag string) (*ocispec.Manifest, error) {
	d, err := v.repo.Head(ctx, tag)
	if err != nil {
		return nil, err
	}
	return v.manifest(ctx, d)
}

// layer reads the signature in the layer d.
func (v *verifier) layer(ctx context.Context, d ocispec.Descriptor) (*signature, error) {
	if d.MediaType != simpleType {
		return nil, attempt.Refuse("it has the type %.100q, want %s", d.MediaType, simpleType)
	}
	payload, err := attempt.Blob(ctx, v.repo, d, maxPayload)
	if err != nil {
		return nil, err
	}
	return decodeLayer(payload, d.Annotations)
}

// decodeLayer reads the signature in a layer. Errors are refusals.
func decodeLayer(payload []byte, annotations map[string]string) (*signature, error) {
	made, err := base64.StdEncoding.DecodeString(annotations[signatureKey])
	if err != nil || len(made) == 0 {
		return nil, attempt.Refuse("its annotation %s is missing or no base64", signatureKey)
	}
	return &signature{
		payload: payload,
		message: payload,
		made:    made,
		keyless: annotations[certificateKey] != "",
		claim:   simple,
		entity:  func() (verify.SignedEntity, error) { return newEntity(payload, made, annotations) },
		policy:  func() verify.ArtifactPolicyOption { return verify.WithArtifact(bytes.NewReader(payload)) },
	}, nil
}

// simple checks that payload says that subject is signed.
func simple(payload []byte, subject digest.Digest) error {
	var p struct {
		Critical struct {
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
			Type string `json:"type"`
		} `json:"critical"`
	}
	if err := json.Unmarshal(payload, &p); err != nil {
		return attempt.Refuse("its payload: %w", err)
	}
	if p.Critical.Type != simplePayload {
		return attempt.Refuse("its payload is %.100q, want %q", p.Critical.Type, simplePayload)
	}
	if p.Critical.Image.Digest != subject.String() {
		return attempt.Refuse("it is the signature of something else: %.100q", p.Critical.Image.Digest)
	}
	return nil
}
