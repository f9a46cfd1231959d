package oci

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// maxManifest is the maximum size in bytes of a manifest, an index, or one page of a list
// (distribution specification 1.1, "Pushing manifests").
const maxManifest = 4 << 20

// The media types of manifests and indexes, OCI's and Docker's.
const (
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	dockerIndex    = "application/vnd.docker.distribution.manifest.list.v2+json"
	ociArtifact    = "application/vnd.oci.artifact.manifest.v1+json" // of a draft of 1.1
)

// genericTypes are media types that do not identify a kind of manifest.
var genericTypes = map[string]bool{"": true, "application/json": true, "application/octet-stream": true, "text/plain": true, "binary/octet-stream": true}

// readManifest fetches the manifest or index that reference names. It checks digest, size
// and media type of want, as far as they are set.
func readManifest(ctx context.Context, from backend, reference string, want ocispec.Descriptor) (got ocispec.Descriptor, content []byte, err error) {
	mediaType, content, err := from.manifest(ctx, reference)
	if err != nil {
		return got, nil, err
	}
	algorithm := digest.Canonical
	if want.Digest != "" {
		algorithm = want.Digest.Algorithm()
	}
	got = ocispec.Descriptor{Digest: algorithm.FromBytes(content), Size: int64(len(content))}
	switch {
	case want.Size > 0 && want.Size != got.Size:
		return got, nil, wrongSize(want, got.Size)
	case want.Digest != "" && want.Digest != got.Digest:
		return got, nil, wrongDigest(want.Digest, got.Digest)
	}
	got.MediaType, err = typeOf(content, mediaType, want.MediaType)
	return got, content, err
}

// readAll reads r to its end. It fails if r has more than limit bytes.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	var buf bytes.Buffer
	n, err := buf.ReadFrom(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, fmt.Errorf("it has more than %d bytes", limit)
	}
	return buf.Bytes(), nil
}

// typeOf returns the media type of a manifest: the one in the document, which the digest
// covers, or else the one in the registry's response, in the descriptor, or derived
// from the fields of the document. It fails if two of them contradict each other, because
// other programs could then interpret the document differently.
func typeOf(content []byte, header, descriptor string) (string, error) {
	var shape struct {
		MediaType string          `json:"mediaType"`
		Config    json.RawMessage `json:"config"`
		Layers    json.RawMessage `json:"layers"`
		Manifests json.RawMessage `json:"manifests"`
	}
	if err := json.Unmarshal(content, &shape); err != nil {
		return "", fmt.Errorf("it is no manifest: %w", err)
	}
	image := shape.Layers != nil || shape.Config != nil
	if image && shape.Manifests != nil {
		return "", errors.New("it is a manifest and an index at once")
	}
	manifestType := ""
	for _, claim := range []string{shape.MediaType, header, descriptor} {
		switch {
		case genericTypes[claim]:
		case manifestType == "":
			manifestType = claim
		case claim != manifestType:
			return "", fmt.Errorf("its media type is %.100q here and %.100q there: the registry or the program that pushed it is wrong", manifestType, claim)
		}
	}
	switch {
	case image && forms[manifestType] == isIndex, shape.Manifests != nil && forms[manifestType] == isManifest:
		return "", fmt.Errorf("it is not what its media type %s says", manifestType)
	case manifestType != "":
		return manifestType, nil
	case shape.Manifests != nil:
		return ocispec.MediaTypeImageIndex, nil
	case shape.Layers != nil:
		return ocispec.MediaTypeImageManifest, nil
	}
	return "", errors.New("nothing tells its media type")
}

// A form is the kind of document that a media type denotes.
type form int

const (
	isManifest form = iota + 1
	isIndex
	isRetired
)

// forms maps the media types that registries store as manifests; all others are blobs.
var forms = map[string]form{
	ocispec.MediaTypeImageManifest: isManifest, ocispec.MediaTypeImageIndex: isIndex,
	dockerManifest: isManifest, dockerIndex: isIndex, ociArtifact: isRetired,
}

// A document is a manifest or an index.
type document struct {
	Layers      descriptors       `json:"layers"`
	Manifests   descriptors       `json:"manifests"`
	Annotations map[string]string `json:"annotations"`
}

// decode decodes the document raw, which has the media type that [typeOf] returned.
func decode(raw []byte, mediaType string) (d document, err error) {
	switch forms[mediaType] {
	case 0:
		return d, fmt.Errorf("its media type %.100q is none of a manifest or an index: push it again with a current tool", mediaType)
	case isRetired:
		return d, errors.New("it is an artifact manifest of a draft of OCI 1.1, which is not supported: push it again with a current tool")
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return d, fmt.Errorf("it cannot be read: %w", err)
	}
	return d, nil
}

// maxEntries is the maximum number of layers of a manifest, and of manifests of an index.
const maxEntries = 10_000

// descriptors is a list of at most maxEntries descriptors, because short descriptors use
// much more memory than their text.
type descriptors []ocispec.Descriptor

// UnmarshalJSON implements [json.Unmarshaler].
func (list *descriptors) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	in := json.NewDecoder(bytes.NewReader(text))
	if start, err := in.Token(); err != nil || start != json.Delim('[') {
		return errors.New("its entries are no list")
	}
	*list = descriptors{}
	for in.More() {
		if len(*list) == maxEntries {
			return fmt.Errorf("it has more than %d entries", maxEntries)
		}
		var d ocispec.Descriptor
		if err := in.Decode(&d); err != nil {
			return err
		}
		*list = append(*list, d)
	}
	return nil
}

// A Verifier checks the signatures of the content of a repository.
type Verifier interface {
	// Verify checks that a trusted signer signed subject. Errors
	// wrap [source.ErrVerification] when a signature was refused or there is none.
	Verify(ctx context.Context, subject ocispec.Descriptor) (source.Verification, error)
}

// A Technology returns the verifier for the content of r, for one value of
// spec.verify.provider. It sends no requests. Errors are about t,
// and wrap [source.ErrInvalid] if the spec is at fault.
type Technology func(r *Repository, t Trust) (Verifier, error)

// A Trust describes the signers that spec.verify trusts.
type Trust struct {
	Keys       Secret                     // spec.verify.secretRef; its Name is "" if there is none
	Root       Secret                     // spec.verify.trustedRootSecretRef
	Identities []source.OIDCIdentityMatch // spec.verify.matchOIDCIdentity
}

// A Check verifies signatures as the spec of one object requires.
type Check struct {
	Spec         *source.OCIRepositoryVerification // spec.verify
	Technologies map[string]Technology             // by spec.verify.provider
	SecretReader *SecretReader
}

// Trust reads the signers that the spec trusts. It also returns their fingerprint, which
// changes with the keys, identities and roots. Errors are *[source.StepError].
func (c Check) Trust(ctx context.Context) (t Trust, print string, err error) {
	if _, err := c.technology(); err != nil {
		return t, "", err
	}
	t.Identities = c.Spec.MatchOIDCIdentity
	if t.Keys, err = c.SecretReader.Read(ctx, c.Spec.SecretRef, "spec.verify.secretRef"); err == nil {
		t.Root, err = c.SecretReader.Read(ctx, c.Spec.TrustedRootSecretRef, "spec.verify.trustedRootSecretRef")
	}
	if err != nil {
		return Trust{}, "", transport.VerificationError(err)
	}
	return t, t.fingerprint(c.provider()), nil
}

// Verify checks that a signer in t signed subject, which is in r.
func (c Check) Verify(ctx context.Context, r *Repository, subject ocispec.Descriptor, t Trust) (source.Verification, error) {
	technology, err := c.technology()
	if err != nil {
		return source.Verification{}, err
	}
	verifier, err := technology(r, t)
	if err != nil {
		return source.Verification{}, err
	}
	return verifier.Verify(ctx, subject)
}

// provider returns spec.verify.provider or its default.
func (c Check) provider() string { return cmp.Or(c.Spec.Provider, "cosign") }

// technology returns the technology of the provider.
func (c Check) technology() (Technology, error) {
	if make := c.Technologies[c.provider()]; make != nil {
		return make, nil
	}
	known := strings.Join(slices.Sorted(maps.Keys(c.Technologies)), " or ")
	return nil, transport.VerificationError(invalid(fmt.Errorf("spec.verify.provider %q: this program verifies with %s", c.provider(), cmp.Or(known, "none"))))
}

// signatures returns the check of the signatures that spec.verify requires.
func (o *Origin) signatures() Check {
	return Check{Spec: o.repo.Spec.Verify, Technologies: o.technologies, SecretReader: &o.secretReader}
}

// trust reads the signers that spec.verify trusts into o.trusted, and returns their
// fingerprint, or "" without spec.verify.
func (o *Origin) trust(ctx context.Context) (print string, err error) {
	if o.repo.Spec.Verify == nil {
		return "", nil
	}
	var t Trust
	err = o.within(ctx, "read the Secrets of spec.verify", func(ctx context.Context) (err error) {
		t, print, err = o.signatures().Trust(ctx)
		return err
	})
	if err != nil {
		return "", err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.trusted = &t
	return print, nil
}

// fingerprint hashes a provider and the signers in t.
func (t Trust) fingerprint(provider string) string {
	sum := sha256.New()
	transport.HashInto(sum, provider, t.Keys.Name, t.Root.Name)
	t.Keys.HashInto(sum)
	t.Root.HashInto(sum)
	for _, m := range t.Identities {
		transport.HashInto(sum, m.Issuer, m.Subject)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Verify implements [source.Content]. It verifies the digest in the revision, which covers
// all content of the revision.
func (c *content) Verify(ctx context.Context) (v source.Verification, err error) {
	if c.origin.repo.Spec.Verify == nil {
		return v, nil
	}
	c.origin.mu.Lock()
	trusted := c.origin.trusted
	c.origin.mu.Unlock()
	err = c.origin.within(ctx, "verify", func(ctx context.Context) (err error) {
		check := c.origin.signatures()
		if trusted == nil {
			var t Trust
			if t, _, err = check.Trust(ctx); err != nil {
				return err
			}
			trusted = &t
		}
		v, err = check.Verify(ctx, c.repo, c.subject, *trusted)
		return err
	})
	if err != nil {
		return source.Verification{}, transport.VerificationError(fmt.Errorf("%s: %w", c.rev.ID, err))
	}
	c.passed = true
	if v != (source.Verification{}) {
		v.Message = cmp.Or(v.Message, fmt.Sprintf("verified signature of revision %s", c.rev.ID))
	}
	return v, nil
}
