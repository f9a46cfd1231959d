package git

import (
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

// signatures says whose signatures are asked for.
type signatures struct{ tag, commit bool }

// modes says whose signatures a mode asks for (specification,
// "GitRepositoryVerification"; reference A9).
var modes = map[string]signatures{
	"":                      {},
	source.VerifyHEAD:       {commit: true},
	source.VerifyTag:        {tag: true},
	source.VerifyTagAndHEAD: {tag: true, commit: true},
}

// trust returns a fingerprint of what spec.verify asks for and of the keys that
// it trusts, "" when the spec asks for no verification.
func (o *Origin) trust(ctx context.Context, sel selection) (string, error) {
	mode, _, err := o.asked(sel)
	if mode == "" || err != nil {
		return "", err
	}
	secret, _, err := o.keys(ctx)
	if err != nil {
		return "", err
	}
	trust := fingerprint(mode, secret)
	o.trusted.Set(trust)
	return trust, nil
}

// fingerprint is one of a mode and of the keys in a Secret.
func fingerprint(mode string, secret transport.Secret) string {
	sum := sha256.New()
	transport.Note(sum, mode)
	secret.Note(sum)
	return hex.EncodeToString(sum.Sum(nil))
}

// asked returns the mode of spec.verify, "" when there is none, and what it means.
func (o *Origin) asked(sel selection) (mode string, want signatures, err error) {
	mode = o.repo.Plan().Verify
	want, known := modes[mode]
	switch {
	case !known:
		err = invalidMode("spec.verify.mode %q: want HEAD, Tag or TagAndHEAD", mode)
	case want.tag && !sel.tagged():
		err = invalidMode("spec.verify.mode %s needs a tag, but spec.ref.%s selects none: set spec.ref.tag or semver, or mode HEAD", mode, sel.field)
	}
	return mode, want, err
}

func invalidMode(format string, args ...any) error {
	return &source.StepError{Step: source.StepVerify, Reason: "InvalidVerificationMode", Err: invalid(fmt.Errorf(format, args...))}
}

// tagged reports whether s selects a tag, which a later run may find elsewhere.
func (s selection) tagged() bool {
	return s.semver != nil || strings.HasPrefix(s.ref, "refs/tags/")
}

// keys returns the Secret of spec.verify and its keys.
func (o *Origin) keys(ctx context.Context) (transport.Secret, *signature.Keys, error) {
	const field = "spec.verify.secretRef"
	secret, err := o.vault.Read(ctx, &o.repo.Spec.Verify.SecretRef, field)
	var keys *signature.Keys
	if err == nil {
		if keys, err = signature.Parse(secret.Data); err != nil {
			err = fmt.Errorf("%s: secret %s: %w", field, secret.Name, err)
		}
	}
	if err != nil {
		return transport.Secret{}, nil, transport.Unverified(err)
	}
	return secret, keys, nil
}

// signedTag looks up the tag that rev was found by, when its signature is
// asked for. It is not the one that rev was found by if it has moved since.
func (o *Origin) signedTag(ctx context.Context, up upstream, sel selection, rev source.Revision) (ref, error) {
	_, want, err := o.asked(sel)
	if err != nil || !want.tag {
		return ref{}, err
	}
	if sel.semver != nil {
		sel.label = rev.ID[:max(0, strings.LastIndexByte(rev.ID, '@'))]
		sel.ref = "refs/tags/" + sel.label
	}
	return lookUp(ctx, up, sel)
}

// check verifies the signatures that the spec asks for and notes the result in
// c.verified. refused is a signature that does not hold; err, that it cannot be
// known.
func (c *content) check(ctx context.Context) (refused, err error) {
	mode, want, err := c.origin.asked(c.sel)
	if mode == "" || err != nil {
		return nil, err
	}
	secret, keys, err := c.origin.keys(ctx)
	if err == nil {
		err = c.origin.trusted.Check(fingerprint(mode, secret))
	}
	if err != nil {
		return nil, err
	}
	now := time.Now()
	var signers, parts []string
	if want.tag {
		signer, refused, err := c.checkTag(keys, now)
		if refused != nil || err != nil {
			return refused, err
		}
		signers = append(signers, signer)
		parts = append(parts, fmt.Sprintf("tag '%s' with key '%s'", c.tag.tag(), signer))
	}
	if want.commit {
		signer, err := keys.Verify(c.commit.Payload, c.commit.PGPSignature, now)
		if err != nil {
			return refusal("InvalidCommitSignature", "commit %s: %w", c.id, err), nil
		}
		signers = append(signers, signer)
		parts = append(parts, fmt.Sprintf("commit '%s' with key '%s'", c.id, signer))
	}
	c.verified = source.Verification{
		Mode:    mode,
		Signer:  strings.Join(slices.Compact(signers), ", "),
		Message: "verified signature of " + strings.Join(parts, " and of "),
	}
	return nil, nil
}

// refusal is an object whose signature does not hold.
func refusal(reason, format string, args ...any) error {
	err := fmt.Errorf("%w: %w", source.ErrVerification, fmt.Errorf(format, args...))
	return &source.StepError{Step: source.StepVerify, Reason: reason, Err: err}
}

// checkTag verifies the tag object at the tag that is selected: that it leads
// to the commit, bears the name of the tag and is signed. Where tags point at
// tags, the signature of the first counts: it vouches for all that follow.
func (c *content) checkTag(keys *signature.Keys, now time.Time) (signer string, refused, err error) {
	name := c.tag.tag()
	switch {
	case c.tag.commit() != c.id:
		return "", refusal("InvalidGitObject", "tag %q has moved: it leads to %s now, not to the commit %s of the revision", name, c.tag.commit(), c.id), nil
	case c.tag.ID == c.id:
		return "", refusal("InvalidGitObject", "tag %q is not annotated, so it carries no signature: make it with git tag -s", name), nil
	}
	tag, err := object.ReadTag(c.db, c.tag.ID)
	if err != nil {
		return "", nil, fmt.Errorf("tag %q: %w", name, err)
	}
	if tag.Name != name {
		return "", refusal("InvalidGitObject", "tag %q holds a tag object that was made under the name %.80q", name, tag.Name), nil
	}
	signer, err = keys.Verify(tag.Payload, tag.PGPSignature, now)
	switch {
	case errors.Is(err, signature.ErrUnsigned):
		return "", refusal("InvalidGitObject", "tag %q: %w", name, err), nil
	case err != nil:
		return "", refusal("InvalidTagSignature", "tag %q: %w", name, err), nil
	}
	end, err := follow(c.db, tag)
	if err != nil {
		return "", nil, fmt.Errorf("tag %q: %w", name, err)
	}
	if end != c.id {
		return "", refusal("InvalidGitObject", "tag %q leads to %s, not to the commit %s of the revision, whatever the repository says of it", name, end, c.id), nil
	}
	return signer, nil, nil
}

// follow returns what the tag leads to in the end.
func follow(db object.Database, tag *object.TagData) (object.ID, error) {
	for range object.MaxTags {
		if tag.Type != object.Tag {
			return tag.Object, nil
		}
		next, err := object.ReadTag(db, tag.Object)
		if err != nil {
			return object.ID{}, err
		}
		tag = next
	}
	return object.ID{}, fmt.Errorf("more than %d tags point at each other", object.MaxTags)
}
