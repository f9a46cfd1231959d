package source

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"
)

// ErrProvider marks a login that cannot work as it is configured: keys are
// missing from the Secret, the URL is none of the provider's, or this program
// has no identity there. Other errors of a login may pass.
var ErrProvider = errors.New("invalid provider configuration")

// ErrNoIdentity marks a login that nothing was found for: this program has no
// identity with the provider, so that it can come as nobody only.
var ErrNoIdentity = errors.New("no identity")

// A LoginFunc gets credentials from the provider that a spec names, for
// example a cloud's token service. It may keep them until they expire, and is
// safe for concurrent use.
//
// Errors wrap [ErrProvider] when the configuration is at fault, and
// [ErrInvalid] as well when that is the spec alone; [ErrNoIdentity] when there
// is nothing to log in with. They hold neither
// credentials nor the URL and provider they are about.
type LoginFunc func(ctx context.Context, request LoginRequest) (Credential, error)

// A LoginRequest says who wants to reach what.
type LoginRequest struct {
	Provider       string   // spec.provider: azure, github, aws or gcp
	URL            *url.URL // what is to be reached, without user information; oci://HOST/PATH for a registry, s3://, gs:// or azblob://HOST/BUCKET for a bucket
	Secret         Secret   // spec.secretRef
	SecretName     string   // NAMESPACE/NAME of it, "" when there is none
	Namespace      string   // of the object
	ServiceAccount string   // spec.serviceAccountName, "" for the identity of the program itself

	// Client is for the provider's own requests: it goes through
	// spec.proxySecretRef, trusts the CA of the Secret, and has no credentials.
	Client *http.Client
	// OwnTrust tells that a Secret says which servers Client, and what will
	// reach URL, trust. Whoever writes the Secret could read along, so the
	// identity of the program itself must not be used.
	OwnTrust bool
}

// A Credential is what a provider issued: a bearer token, or a user name and a
// password. All of them are to be kept out of texts.
type Credential struct {
	Username, Password string
	Token              string
	Refresh            string    // a token that is exchanged for others, docker's identity token
	Expires            time.Time // zero when it is not known
	Refused            func()    // to be called when the credential was refused: it is not issued again; may be nil
}

// A KeychainFunc returns the credentials that the user of the program keeps for
// a registry, HOST[:PORT], such as those of docker login; the zero Credential
// when there are none.
type KeychainFunc func(ctx context.Context, host string) (Credential, error)
