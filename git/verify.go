package git

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/internal/signature"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// modes maps a mode to the objects whose signatures it requires (specification,
// "GitRepositoryVerification"; reference A9).
var modes = map[string]struct{ tag, commit bool }{
	"":                      {},
	source.VerifyHEAD:       {commit: true},
	source.VerifyTag:        {tag: true},
	source.VerifyTagAndHEAD: {tag: true, commit: true},
}

// trustFingerprint returns a fingerprint of the mode of spec.verify and of the keys that it
// trusts, "" if the spec requires no verification.
func (o *Origin) trustFingerprint(ctx context.Context, sel selection) (string, error) {
	mode, err := o.verifyMode(sel)
	if mode == "" || err != nil {
		return "", err
	}
	secret, _, err := o.trustedKeys(ctx)
	if err != nil {
		return "", err
	}
	trust := fingerprint(mode, secret)
	o.trusted.Set(trust)
	return trust, nil
}

// fingerprint hashes a mode and the keys in a Secret.
func fingerprint(mode string, secret transport.Secret) string {
	sum := sha256.New()
	transport.HashInto(sum, mode)
	secret.HashInto(sum)
	return hex.EncodeToString(sum.Sum(nil))
}

// verifyMode returns the mode of spec.verify, "" when there is none.
func (o *Origin) verifyMode(sel selection) (mode string, err error) {
	mode = o.repo.Plan().Verify
	want, known := modes[mode]
	switch {
	case !known:
		err = fmt.Errorf("spec.verify.mode %q: want HEAD, Tag or TagAndHEAD", mode)
	case want.tag && !sel.selectsTag():
		err = fmt.Errorf("spec.verify.mode %s needs a tag, but spec.ref.%s selects none: set spec.ref.tag or semver, or mode HEAD", mode, sel.field)
	}
	if err != nil {
		err = &source.StepError{Step: source.StepVerify, Reason: "InvalidVerificationMode", Err: specError(err)}
	}
	return mode, err
}

// trustedKeys returns the Secret of spec.verify and its keys.
func (o *Origin) trustedKeys(ctx context.Context) (transport.Secret, *signature.Keys, error) {
	const field = "spec.verify.secretRef"
	secret, err := o.secretReader.Read(ctx, &o.repo.Spec.Verify.SecretRef, field)
	var keys *signature.Keys
	if err == nil {
		if keys, err = signature.Parse(secret.Data); err != nil {
			err = fmt.Errorf("%s: secret %s: %w", field, secret.Name, err)
		}
	}
	if err != nil {
		return transport.Secret{}, nil, transport.VerificationError(err)
	}
	return secret, keys, nil
}

// signedTag looks up the tag that led to rev, if its signature is required. If the
// tag has moved since, it leads elsewhere now: checkTag finds out.
func (o *Origin) signedTag(ctx context.Context, up upstream, sel selection, rev source.Revision) (object.Ref, error) {
	mode, err := o.verifyMode(sel)
	if err != nil || !modes[mode].tag {
		return object.Ref{}, err
	}
	if sel.locked {
		tag := object.Ref{Name: cmp.Or(sel.ref, "refs/tags/"+sel.label), ID: sel.commit}
		if !sel.tag.IsZero() {
			tag.ID, tag.Peeled = sel.tag, sel.commit
		}
		return tag, nil
	}
	if sel.semver != nil {
		sel.label = labelOf(rev.ID)
		sel.ref = "refs/tags/" + sel.label
	}
	return lookUp(ctx, up, sel)
}

// Verify implements [source.Content]: it checks the signatures that the spec asks for.
func (c *content) Verify(ctx context.Context) (source.Verification, error) {
	var v source.Verification
	if c.origin.repo.Spec.Verify != nil {
		var err error
		if v, err = c.verify(ctx); err != nil {
			return source.Verification{}, stepError(source.StepFetch, err)
		}
	}
	c.verified = true
	return v, nil
}

func (c *content) verify(ctx context.Context) (v source.Verification, err error) {
	mode, err := c.origin.verifyMode(c.sel)
	if mode == "" || err != nil {
		return v, err
	}
	secret, keys, err := c.origin.trustedKeys(ctx)
	if err == nil {
		err = c.origin.trusted.Check(fingerprint(mode, secret))
	}
	now := time.Now()
	var signers, parts []string
	if err == nil && modes[mode].tag {
		var signer string
		signer, err = c.checkTag(keys, now)
		signers = append(signers, signer)
		parts = append(parts, fmt.Sprintf("tag '%s' with key '%s'", c.tag.Tag(), signer))
	}
	if err == nil && modes[mode].commit {
		var signer string
		if signer, err = keys.Verify(c.commit.Payload, c.commit.PGPSignature, now); err != nil {
			err = verificationError("InvalidCommitSignature", "commit %s: %w", c.id, err)
		}
		signers = append(signers, signer)
		parts = append(parts, fmt.Sprintf("commit '%s' with key '%s'", c.id, signer))
	}
	if err != nil {
		return v, err
	}
	return source.Verification{
		Mode:    mode,
		Signer:  strings.Join(slices.Compact(signers), ", "),
		Message: "verified signature of " + strings.Join(parts, " and of "),
	}, nil
}

// verificationError returns the error for an object whose signature is not accepted.
func verificationError(reason, format string, args ...any) error {
	err := fmt.Errorf("%w: %w", source.ErrVerification, fmt.Errorf(format, args...))
	return &source.StepError{Step: source.StepVerify, Reason: reason, Err: err}
}

// checkTag verifies the selected tag object: it must lead to the commit, bear the
// name of the tag and be signed. If tags point at tags, the signature of the first is
// enough: it covers all that follow.
func (c *content) checkTag(keys *signature.Keys, now time.Time) (signer string, err error) {
	name := c.tag.Tag()
	switch {
	case c.tag.Commit() != c.id:
		return "", verificationError("InvalidGitObject", "tag %q has moved: it leads to %s now, not to the commit %s of the revision", name, c.tag.Commit(), c.id)
	case c.tag.ID == c.id:
		return "", verificationError("InvalidGitObject", "tag %q is not annotated, so it carries no signature: make it with git tag -s", name)
	}
	tag, err := object.ReadTag(c.db, c.tag.ID)
	if err != nil {
		return "", fmt.Errorf("tag %q: %w", name, err)
	}
	if tag.Name != name {
		return "", verificationError("InvalidGitObject", "tag %q holds a tag object that was made under the name %.80q", name, tag.Name)
	}
	signer, err = keys.Verify(tag.Payload, tag.PGPSignature, now)
	switch {
	case errors.Is(err, signature.ErrUnsigned):
		return "", verificationError("InvalidGitObject", "tag %q: %w", name, err)
	case err != nil:
		return "", verificationError("InvalidTagSignature", "tag %q: %w", name, err)
	}
	end, err := peel(c.db, c.tag.ID)
	if err != nil {
		return "", fmt.Errorf("tag %q: %w", name, err)
	}
	if end != c.id {
		return "", verificationError("InvalidGitObject", "tag %q leads to %s, not to the commit %s of the revision, whatever the repository says of it", name, end, c.id)
	}
	return signer, nil
}
