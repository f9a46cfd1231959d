// Package attempt collects the results of checking the signatures of a subject one after
// another, for the verifiers of oci/cosign and oci/notation. An invalid or unreadable
// signature does not prevent another one from being accepted.
package attempt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// A refusal is a permanent defect of one signature.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// Refuse returns a refusal with the text of [fmt.Errorf].
func Refuse(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// Refused reports whether err is a refusal.
func Refused(err error) bool {
	_, ok := errors.AsType[refusal](err)
	return ok
}

// Unreadable makes err a refusal if content is absent or does not match its descriptor,
// because that will not change. It returns other errors of a registry, which may be
// temporary, and nil unchanged.
func Unreadable(err error) error {
	if _, ok := errors.AsType[*oci.ContentError](err); ok || errors.Is(err, fs.ErrNotExist) {
		return refusal{err}
	}
	return err
}

// Blob reads the blob d. It refuses a blob of more than limit bytes.
func Blob(ctx context.Context, r *oci.Repository, d ocispec.Descriptor, limit int64) ([]byte, error) {
	if d.Size < 0 || d.Size > limit {
		return nil, Refuse("it has %d bytes, more than the limit of %d", d.Size, limit)
	}
	if err := d.Digest.Validate(); err != nil {
		return nil, Refuse("the manifest names a blob %.100q: %w", string(d.Digest), err)
	}
	body, err := r.Blob(ctx, d)
	if err != nil {
		return nil, Unreadable(err)
	}
	defer body.Close()
	data, err := io.ReadAll(body) // at most d.Size
	return data, Unreadable(err)
}

const (
	maxReasons = 5
	maxText    = 300 // bytes of a reason
)

// Failures collects the reasons why the signatures of a subject are not valid.
type Failures struct {
	Subject  string // HOST[:PORT]/PATH@DIGEST
	Unsigned string // text for a subject without signatures
	Untried  string // text about signatures that were not checked, "" if there are none

	refused    []string // the first maxReasons refusals
	count      int      // number of all refusals
	firstError error    // the first error that is not a refusal
}

// Add records why the signature with this name is not valid.
func (t *Failures) Add(name string, err error) {
	switch {
	case !Refused(err):
		if t.firstError == nil {
			t.firstError = fmt.Errorf("%s: %w", name, err)
		}
	case t.count < maxReasons:
		t.refused = append(t.refused, name+": "+Clip(err.Error()))
		fallthrough
	default:
		t.count++
	}
}

// Err returns the error for a subject without a valid signature. It wraps
// [source.ErrVerification] unless a signature could not be read.
func (t *Failures) Err() error {
	reasons := t.refused
	if t.count > maxReasons {
		reasons = append(reasons, fmt.Sprintf("and %d more", t.count-maxReasons))
	}
	if t.Untried != "" {
		reasons = append(reasons, t.Untried)
	}
	text := strings.Join(reasons, "; ")
	switch {
	case t.firstError != nil && text != "":
		return fmt.Errorf("signatures of %s: %w (of those that could be read none holds: %s)", t.Subject, t.firstError, text)
	case t.firstError != nil:
		return fmt.Errorf("signatures of %s: %w", t.Subject, t.firstError)
	case text != "":
		return fmt.Errorf("%w: no signature of %s holds: %s", source.ErrVerification, t.Subject, text)
	}
	return fmt.Errorf("%w: %s %s", source.ErrVerification, t.Subject, t.Unsigned)
}

// Clip redacts an untrusted text, removes control characters, and shortens it to about
// 300 bytes.
func Clip(text string) string {
	text = redact.String(text)
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}
