package s3

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

const (
	// maxLead is how long before their end keys are replaced; keys that live less
	// than ten times as long are replaced after nine tenths of their life.
	maxLead = time.Minute
	// minLife is what keys must have left for that. The others, which are those of
	// a clock that is wrong, are used until they are refused: nobody is to log in
	// for each request.
	minLife = 10 * time.Second
)

// keys are what requests are signed with; the zero value stands for none.
type keys struct {
	access, secret, session string

	until   time.Time // when to replace them, zero for never
	refused func()    // forgets them where they were issued, may be nil
}

// An issuer gives keys that end.
type issuer func(ctx context.Context) (source.Credential, error)

// A keyring has the keys of a bucket. It is safe for concurrent use.
type keyring struct {
	issue issuer        // nil: the keys are what they are
	turn  chan struct{} // held by whoever uses now
	now   *keys         // nil: none were issued so far
}

// keysFor returns the keys for the bucket of a, which is at a site.
func keysFor(a *bucket.Access, at site) (*keyring, error) {
	k := &keyring{turn: make(chan struct{}, 1)}
	var err error
	switch sts := a.Spec.STS; {
	case a.Spec.SecretRef != nil:
		k.now = new(keys)
		if k.now.access, k.now.secret, err = transport.S3Keys(a.Secret.Name, a.Secret.Secret); err != nil {
			err = &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed", Err: fmt.Errorf("spec.secretRef: %w", err)}
		}
	case sts != nil && sts.Provider != source.STSAWS:
		k.issue, err = exchangeAt(a)
	case a.Spec.Provider == "aws":
		k.issue, err = ownIdentity(a, at)
	default:
		k.now = new(keys)
	}
	return k, err
}

// ownIdentity has keys issued to the identity of this program.
func ownIdentity(a *bucket.Access, at site) (issuer, error) {
	if at.base.Scheme == "http" && transport.ZoneOfHost(at.base) != transport.Link {
		return nil, &source.StepError{Step: source.StepResolve, Reason: "InvalidProviderConfiguration",
			Err: fmt.Errorf("%w: spec.insecure: the identity of this program is not shown in the clear: remove it, or set spec.secretRef", source.ErrInvalid)}
	}
	u := &url.URL{Scheme: "s3", Host: at.server, Path: "/" + a.Spec.BucketName}
	if a.Spec.STS != nil {
		if _, err := a.STSEndpoint(); err != nil {
			return nil, err
		}
		u.RawQuery = url.Values{"sts": {a.Spec.STS.Endpoint}}.Encode()
	}
	return func(ctx context.Context) (source.Credential, error) {
		issued, err := a.LogIn(ctx, u)
		if errors.Is(err, errors.ErrUnsupported) {
			err = &source.StepError{Step: source.StepResolve, Reason: "InvalidProviderConfiguration",
				Err: fmt.Errorf("%w: spec.provider: this program cannot log in with provider aws: set spec.secretRef", source.ErrInvalid)}
		}
		return issued, err
	}, nil
}

// get returns the keys to sign with. Errors are those of the issuer, and of ctx.
func (k *keyring) get(ctx context.Context) (*keys, error) {
	if err := k.take(ctx); err != nil {
		return nil, err
	}
	defer k.leave()
	if k.now == nil || k.issue != nil && !k.now.until.IsZero() && !time.Now().Before(k.now.until) {
		if err := k.replace(ctx); err != nil {
			return nil, err
		}
	}
	return k.now, nil
}

// renew replaces keys that were refused, unless somebody did already. It
// reports whether there are others now.
func (k *keyring) renew(ctx context.Context, refused *keys) (bool, error) {
	if k.issue == nil {
		return false, nil
	}
	if err := k.take(ctx); err != nil {
		return false, err
	}
	defer k.leave()
	if k.now != refused {
		return true, nil
	}
	if refused.refused != nil {
		refused.refused()
	}
	return true, k.replace(ctx)
}

// replace has new keys issued.
func (k *keyring) replace(ctx context.Context) error {
	k.now = nil
	issued, err := k.issue(ctx)
	if err != nil {
		return err
	}
	if !bucket.Sendable(issued.Username) || issued.Password == "" || issued.Token != "" && !bucket.Sendable(issued.Token) {
		return &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed", Err: errors.New("log in: the keys that were issued are empty or hold control characters")}
	}
	k.now = &keys{access: issued.Username, secret: issued.Password, session: issued.Token, refused: issued.Refused}
	if left := time.Until(issued.Expires); left >= minLife {
		k.now.until = issued.Expires.Add(-min(maxLead, left/10))
	}
	return nil
}

func (k *keyring) take(ctx context.Context) error {
	select {
	case k.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (k *keyring) leave() { <-k.turn }
