package gcs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/jwt"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

const (
	scope      = "https://www.googleapis.com/auth/devstorage.read_only"
	secretKey  = "serviceaccount" // where a Secret has the key of a service account
	maxKeyFile = 16 << 10         // bytes; it bounds the time that a signature takes
	maxLife    = time.Hour        // of a token
)

func stepError(reason string, err error) error {
	return &source.StepError{Step: source.StepResolve, Reason: reason, Err: err}
}

// identify returns the tokens that the bucket is read with, nil when requests are
// anonymous. Errors are *[source.StepError], and wrap [source.ErrInvalid] where
// the spec is at fault.
func identify(ctx context.Context, a *bucket.Access, endpoint *url.URL) (*bucket.Issued, error) {
	host := strings.ToLower(endpoint.Hostname())
	switch {
	case a.Secret.Name != "":
		config, at, err := readKey(a.Secret.Data[secretKey], a.Spec.Insecure)
		if err != nil {
			return nil, stepError("AuthenticationFailed", fmt.Errorf("spec.secretRef: %w", &transport.SecretError{Secret: a.Secret.Name, Key: secretKey, Problem: err.Error()}))
		}
		return bucket.NewIssued(ctx, exchange(a, config, at, endpoint))
	// The login decides which hosts of these domains it shows a token.
	case a.Spec.ServiceAccountName == "" && !strings.HasSuffix(host, ".googleapis.com") && !strings.HasSuffix(host, ".s3nsapis.fr"):
		return nil, nil
	case endpoint.Scheme != "https":
		return nil, stepError("InvalidProviderConfiguration", fmt.Errorf("%w: spec.insecure: the identity of this program is not sent in the clear: "+
			"remove it, or set spec.secretRef", source.ErrInvalid))
	}
	at := &url.URL{Scheme: "gs", Host: endpoint.Host, Path: "/" + a.Spec.BucketName}
	tokens, err := bucket.NewIssued(ctx, func(ctx context.Context) (source.Credential, error) { return a.LogIn(ctx, at) })
	if a.Spec.ServiceAccountName == "" && (errors.Is(err, source.ErrNoIdentity) || errors.Is(err, errors.ErrUnsupported)) {
		return nil, nil
	}
	return tokens, err
}

// readKey reads the file that Google Cloud makes of the key of a service account,
// and returns where it is exchanged. insecure allows a token service on loopback
// without TLS. Errors show none of its values but the type.
func readKey(text []byte, insecure bool) (*jwt.Config, *url.URL, error) {
	var k struct {
		Type     string `json:"type"`
		Email    string `json:"client_email"`
		ID       string `json:"private_key_id"`
		Private  string `json:"private_key"`
		TokenURI string `json:"token_uri"`
		Universe string `json:"universe_domain"`
	}
	switch {
	case len(text) == 0:
		return nil, nil, errors.New("is missing: it is the JSON key of a service account")
	case len(text) > maxKeyFile:
		return nil, nil, fmt.Errorf("has %d bytes, at most %d are allowed", len(text), maxKeyFile)
	case json.Unmarshal(text, &k) != nil: // the error would show values
		return nil, nil, errors.New("is not JSON: it is the JSON key of a service account")
	case k.Type != "service_account": // files of other types say what to ask or to run
		return nil, nil, fmt.Errorf("has the type %.40q: only service_account is accepted; without secretRef the identity of this program is used", k.Type)
	case k.Email == "":
		return nil, nil, errors.New("has no client_email: download the key again")
	}
	uri := cmp.Or(k.TokenURI, "https://oauth2."+cmp.Or(k.Universe, "googleapis.com")+"/token")
	u, err := url.Parse(uri)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Scheme != "https" && !(u.Scheme == "http" && insecure && loopback(u.Hostname())) {
		return nil, nil, errors.New("has a token_uri that is not an https URL: http is for loopback, with spec.insecure")
	}
	return &jwt.Config{Email: k.Email, PrivateKey: []byte(k.Private), PrivateKeyID: k.ID, Scopes: []string{scope}, TokenURL: uri, Audience: uri}, u, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// exchange returns what asks the token service at a URL for a token (RFC 7523
// section 2.1). Errors are *[source.StepError] with the reason AuthenticationFailed.
func exchange(a *bucket.Access, config *jwt.Config, at, endpoint *url.URL) func(context.Context) (source.Credential, error) {
	way := a.Way
	if way.TLS != nil && !transport.SameOrigin(at, endpoint) { // the client certificate is for the endpoint
		way.TLS = way.TLS.Clone()
		way.TLS.Certificates, way.TLS.GetClientCertificate = nil, nil
	}
	client := a.Client(at, way)
	return func(ctx context.Context) (source.Credential, error) {
		s := a.TokenService(ctx, client, "check that the key was not deleted, and the clock of this machine")
		token, err := config.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, s.Client())).Token()
		if err != nil {
			return source.Credential{}, s.Failed("exchange the key of the service account for a token", err)
		}
		a.Vault.Conceal(token.AccessToken)
		c := source.Credential{Token: token.AccessToken, Expires: token.Expiry}
		if end := time.Now().Add(maxLife); c.Expires.After(end) {
			c.Expires = end
		}
		return c, nil
	}
}
