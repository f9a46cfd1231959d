package cosign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"strings"

	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// A candidate is what may turn out to be a signature once it is read.
type candidate struct {
	name string // where it is, for messages
	open func(context.Context) (*signature, error)
}

// A signature is one that was read, of either format.
type signature struct {
	payload []byte                            // what the signer says
	message []byte                            // what was signed: payload, or an encoding of it
	made    []byte                            // the signature proper
	keyless bool                              // it came with a certificate
	claim   func([]byte, digest.Digest) error // whether a payload says that a digest is signed; errors are a refusal

	// What keyless verification wants: the whole with what else it came with,
	// and what it must be about. Errors are what is wrong with it.
	entity func() (verify.SignedEntity, error)
	policy func() verify.ArtifactPolicyOption
}

// A refusal is what is wrong with one signature. Others may hold.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func refuse(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// unreadable makes err a refusal when something is not there or not what its
// digest says, for that will not change.
func unreadable(err error) error {
	var content *oci.ContentError
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &content) {
		return refusal{err}
	}
	return err
}

// errOther is what refers to a subject and is no signature.
var errOther = errors.New("no signature")

// candidates lists what may be signatures of subject, newer format first.
func (v *verifier) candidates(ctx context.Context, subject ocispec.Descriptor) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		for c, err := range v.bundles(ctx, subject) {
			if !yield(c, err) {
				return
			}
		}
		for c, err := range v.layers(ctx, subject) {
			if !yield(c, err) {
				return
			}
		}
	}
}

// read returns the blob d, which has at most limit bytes.
func (v *verifier) read(ctx context.Context, d ocispec.Descriptor, limit int64) ([]byte, error) {
	if d.Size < 0 || d.Size > limit {
		return nil, refuse("it has %d bytes, more than the limit of %d", d.Size, limit)
	}
	if err := d.Digest.Validate(); err != nil {
		return nil, refuse("the manifest names a blob %.100q: %w", d.Digest, err)
	}
	body, err := v.repo.Blob(ctx, d)
	if err != nil {
		return nil, unreadable(err)
	}
	defer body.Close()
	data, err := io.ReadAll(body) // at most d.Size
	return data, unreadable(err)
}

// manifest returns the image manifest d.
func (v *verifier) manifest(ctx context.Context, d ocispec.Descriptor) (*ocispec.Manifest, error) {
	_, data, err := v.repo.Manifest(ctx, d)
	if err != nil {
		return nil, unreadable(err)
	}
	m := new(ocispec.Manifest)
	if err := json.Unmarshal(data, m); err != nil {
		return nil, refuse("its manifest: %w", err)
	}
	return m, nil
}

// A tally is what became of the signatures of a subject.
type tally struct {
	repo    string
	subject digest.Digest
	refused []string // signatures that do not hold, the first few
	count   int      // of them
	others  int      // what is no signature
	trouble error    // what could not be known, the first of it
}

func (t *tally) add(name string, err error) {
	switch {
	case errors.Is(err, errOther):
		t.others++
	case broken(err):
		if t.count++; t.count <= maxReasons {
			t.refused = append(t.refused, fmt.Sprintf("%s: %.300s", name, err))
		}
	case t.trouble == nil:
		t.trouble = fmt.Errorf("%s: %w", name, err)
	}
}

const maxReasons = 5

// broken reports whether err is what is wrong with one signature, for good.
func broken(err error) bool {
	var r refusal
	return errors.As(err, &r)
}

// err returns the error of a subject without a signature that holds.
func (t *tally) err() error {
	if t.count > maxReasons {
		t.refused = append(t.refused, fmt.Sprintf("and %d more", t.count-maxReasons))
	}
	reasons := strings.Join(t.refused, "; ")
	switch {
	case t.trouble != nil && t.count > 0:
		return fmt.Errorf("signatures of %s@%s: %w (of those that could be read none holds: %s)", t.repo, t.subject, t.trouble, reasons)
	case t.trouble != nil:
		return fmt.Errorf("signatures of %s@%s: %w", t.repo, t.subject, t.trouble)
	case t.count > 0:
		return fmt.Errorf("%w: no signature of %s@%s holds: %s", source.ErrVerification, t.repo, t.subject, reasons)
	case t.others > 0:
		return fmt.Errorf("%w: %s@%s is not signed: what refers to it are %d attestations or the like: sign it with cosign sign", source.ErrVerification, t.repo, t.subject, t.others)
	}
	return fmt.Errorf("%w: %s@%s is not signed: sign it with cosign sign", source.ErrVerification, t.repo, t.subject)
}
