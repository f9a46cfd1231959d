package gcs

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/source"
)

// An issuer issues an access token; a [source.Credential] without Token means
// that requests are anonymous.
type issuer func(context.Context) (source.Credential, error)

// anonymous is who has no token.
func anonymous(context.Context) (source.Credential, error) { return source.Credential{}, nil }

// identify returns who the bucket is read as. Errors are *[source.StepError],
// and wrap [source.ErrInvalid] where the spec is at fault.
func identify(a *bucket.Access, endpoint *url.URL) (issuer, error) {
	switch {
	case a.Secret.Name != "":
		k, err := readKey(a.Secret, a.Spec.Insecure)
		if err != nil {
			return nil, &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed", Err: fmt.Errorf("spec.secretRef: %w", err)}
		}
		return newExchange(a, k, endpoint).issue, nil
	case a.Spec.ServiceAccountName == "" && !google(endpoint.Hostname()):
		return anonymous, nil
	case endpoint.Scheme != "https":
		return nil, &source.StepError{Step: source.StepResolve, Reason: "InvalidProviderConfiguration", Err: fmt.Errorf("%w: spec.insecure: "+
			"the identity of this program is not sent in the clear: remove it, or set spec.secretRef", source.ErrInvalid)}
	}
	at := &url.URL{Scheme: "gs", Host: endpoint.Host, Path: "/" + a.Spec.BucketName}
	return func(ctx context.Context) (source.Credential, error) {
		c, err := a.LogIn(ctx, at)
		if a.Spec.ServiceAccountName == "" && (errors.Is(err, source.ErrNoIdentity) || errors.Is(err, errors.ErrUnsupported)) {
			return source.Credential{}, nil
		}
		return c, err
	}, nil
}

// clouds are the domains that a login may know hosts of. Which hosts it really
// shows a token is its own affair.
var clouds = []string{".googleapis.com", ".s3nsapis.fr"}

// google reports whether host is one of Google Cloud.
func google(host string) bool {
	for _, domain := range clouds {
		if strings.HasSuffix(strings.ToLower(host), domain) {
			return true
		}
	}
	return false
}
