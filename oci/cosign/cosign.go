package cosign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/internal/attempt"
	"github.com/headgate-io/headgate/source"
)

// A Config says where the trusted root of keyless signatures comes from. The zero value is Sigstore's public good instance.
type Config struct {
	Mirror string           // URL of a TUF repository with a target trusted_root.json, "" for that of the public good instance
	Anchor []byte           // the root.json that Mirror is trusted by, nil for that of the public good instance
	Cache  string           // a directory that keeps for a day what Mirror said; "" keeps it in memory and writes nothing
	Now    func() time.Time // nil for time.Now
}

// New returns the technology cosign. What the TUF repository says is shared by
// all its verifiers. It is asked for at the first keyless verification, when a
// day has passed, and when no signature holds, for that not twice in a minute.
func New(c Config) oci.Technology {
	shared := newRoots(c)
	return func(r *oci.Repository, t oci.Trust) (oci.Verifier, error) {
		v := &verifier{repo: r, shared: shared}
		read := v.readIdentities
		if t.Keys.Name != "" {
			read = v.readKeys
		}
		if err := read(t); err != nil {
			return nil, err
		}
		return v, nil
	}
}

// A verifier implements [oci.Verifier]. It is safe for concurrent use.
type verifier struct {
	repo *oci.Repository
	keys []key // that are trusted; nil: the identities are

	identities []verify.PolicyOption
	given      judge  // by the trusted root of a Secret; nil: shared has it
	shared     *roots // of all verifiers
}

// A judge returns the signer of a signature, for messages. Errors are refusals.
type judge func(*signature) (string, error)

// Verify implements [oci.Verifier]. Errors wrap [source.ErrVerification] when
// there is no signature or none that holds; those of the registry and of the
// TUF repository do not.
func (v *verifier) Verify(ctx context.Context, subject ocispec.Descriptor) (source.Verification, error) {
	if err := subject.Digest.Validate(); err != nil {
		return source.Verification{}, fmt.Errorf("verify %.100q: %w", subject.Digest, err)
	}
	var signer string
	var err error
	switch {
	case v.keys != nil:
		signer, err = v.attempt(ctx, v.byKey, subject)
	case v.given != nil:
		signer, err = v.attempt(ctx, v.given, subject)
	default:
		signer, err = v.keyless(ctx, subject)
	}
	if err != nil {
		return source.Verification{}, err
	}
	return source.Verification{
		Mode:    "cosign",
		Signer:  signer,
		Message: fmt.Sprintf("verified signature of '%s' by '%s'", subject.Digest, signer),
	}, nil
}

// A signature is one that was read, of either format.
type signature struct {
	payload []byte                            // what the signer says
	message []byte                            // what was signed: payload, or an encoding of it
	made    []byte                            // the signature proper
	keyless bool                              // it came with a certificate
	claim   func([]byte, digest.Digest) error // whether a payload says that a digest is signed; errors are refusals

	// What keyless verification wants: the whole with what else it came with,
	// and what it must be about. Errors are what is wrong with it.
	entity func() (*entity, error)
	policy verify.ArtifactPolicyOption
}

// errOther is what refers to a subject and is no signature.
var errOther = errors.New("no signature")

// found is what may be a signature, as far as it could be read.
type found struct {
	place string // for messages
	*signature
	err error
}

// attempt returns the signer of the first signature of subject that holds.
func (v *verifier) attempt(ctx context.Context, j judge, subject ocispec.Descriptor) (string, error) {
	t := attempt.Tally{Subject: v.repo.Name() + "@" + subject.Digest.String(), Unsigned: "is not signed: sign it with cosign sign"}
	others := 0 // manifests that refer to the subject and are no signatures
	for _, list := range []iter.Seq[found]{v.bundles(ctx, subject), v.layers(ctx, subject)} {
		for s := range list {
			var signer string
			if s.err == nil {
				signer, s.err = j(s.signature)
			}
			if s.err == nil {
				s.err = s.claim(s.payload, subject.Digest)
			}
			switch {
			case s.err == nil:
				return signer, nil
			case ctx.Err() != nil:
				return "", s.err
			case errors.Is(s.err, errOther):
				others++
				t.Unsigned = fmt.Sprintf("is not signed: what refers to it are %d attestations or the like: sign it with cosign sign", others)
			default:
				t.Add(s.place, s.err)
			}
		}
	}
	return "", t.Err()
}

// manifest returns the image manifest d.
func (v *verifier) manifest(ctx context.Context, d ocispec.Descriptor) (m ocispec.Manifest, err error) {
	_, data, err := v.repo.Manifest(ctx, d)
	if err != nil {
		return m, attempt.Unreadable(err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, attempt.Refuse("its manifest: %w", err)
	}
	return m, nil
}
