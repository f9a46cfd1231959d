package source

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// A LoginFunc gets credentials from the provider that a spec names, for
// example a cloud's token service. It may keep them until they expire.
// Errors do not hold what they are about.
type LoginFunc func(ctx context.Context, request LoginRequest) (Credential, error)

// A LoginRequest says who wants to reach what.
type LoginRequest struct {
	Provider       string       // spec.provider: azure, github, aws or gcp
	URL            *url.URL     // what is to be reached, without user information
	Secret         Secret       // spec.secretRef, zero when there is none
	Namespace      string       // of the object
	ServiceAccount string       // spec.serviceAccountName, "" for the identity of the program itself
	Client         *http.Client // for the provider's own requests: spec.proxySecretRef and the CA of the Secret, no credentials
}

// A Credential is what a provider issued: a bearer token, or a user name and a password.
type Credential struct {
	Username, Password string
	Token              string
	Expires            time.Time // zero when it is not known
}
