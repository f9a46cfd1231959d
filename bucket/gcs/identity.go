package gcs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
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
	scope    = "https://www.googleapis.com/auth/devstorage.read_only"
	maxLife  = time.Hour // of a token
	maxToken = 64 << 10  // bytes of a token service's answer

	exchanging = "exchange the key of the service account for a token"
)

// identify returns the bearer of the tokens that the bucket is read with, nil
// when requests are anonymous. Errors are *[source.StepError], and wrap
// [source.ErrInvalid] where the spec is at fault.
func identify(ctx context.Context, a *bucket.Access, endpoint *url.URL) (*bucket.Bearer, error) {
	switch {
	case a.Secret.Name != "":
		k, err := readKey(a.Secret, a.Spec.Insecure)
		if err != nil {
			return nil, &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed", Err: fmt.Errorf("spec.secretRef: %w", err)}
		}
		return bucket.NewBearer(ctx, newExchange(a, k, endpoint).issue)
	case a.Spec.ServiceAccountName == "" && !google(endpoint.Hostname()):
		return nil, nil
	case endpoint.Scheme != "https":
		return nil, &source.StepError{Step: source.StepResolve, Reason: "InvalidProviderConfiguration", Err: fmt.Errorf("%w: spec.insecure: "+
			"the identity of this program is not sent in the clear: remove it, or set spec.secretRef", source.ErrInvalid)}
	}
	at := &url.URL{Scheme: "gs", Host: endpoint.Host, Path: "/" + a.Spec.BucketName}
	b, err := bucket.NewBearer(ctx, func(ctx context.Context) (source.Credential, error) { return a.LogIn(ctx, at) })
	if a.Spec.ServiceAccountName == "" && (errors.Is(err, source.ErrNoIdentity) || errors.Is(err, errors.ErrUnsupported)) {
		return nil, nil
	}
	return b, err
}

// clouds are the domains that a login may know hosts of. The login itself
// decides which hosts it shows a token.
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

// An exchange gets tokens for a key.
type exchange struct {
	config jwt.Config
	client *http.Client
	access *bucket.Access
}

func newExchange(a *bucket.Access, k *key, endpoint *url.URL) *exchange {
	way := a.Way
	if way.TLS != nil && !transport.SameOrigin(k.tokenURI, endpoint) { // the client certificate is for the endpoint
		way.TLS = way.TLS.Clone()
		way.TLS.Certificates, way.TLS.GetClientCertificate = nil, nil
	}
	config := jwt.Config{Email: k.Email, PrivateKey: []byte(k.Private), PrivateKeyID: k.ID, Scopes: []string{scope},
		TokenURL: k.tokenURI.String(), Audience: k.TokenURI}
	return &exchange{config: config, client: a.Client(k.tokenURI, way), access: a}
}

// issue asks for a token (RFC 7523 section 2.1). Errors are
// *[source.StepError] with the reason AuthenticationFailed.
func (e *exchange) issue(ctx context.Context) (source.Credential, error) {
	client, sent := *e.client, &exchanged{ctx: ctx, next: e.client.Transport, vault: e.access.Vault}
	client.Transport = sent
	token, err := e.config.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, &client)).Token()
	if err != nil {
		if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
			err = e.refusal(refused)
		} else if sent.err != nil {
			err = e.access.Explain(ctx, exchanging, sent.err)
		} else {
			err = errors.New(exchanging + ": the answer is not what it should be") // the error would show values
		}
		return source.Credential{}, &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed", Err: err}
	}
	c := source.Credential{Token: token.AccessToken, Expires: token.Expiry}
	if end := time.Now().Add(maxLife); c.Expires.After(end) {
		c.Expires = end
	}
	e.access.Vault.Conceal(c.Token)
	return c, nil
}

// An exchanged round tripper sends the one request of an exchange, which the
// library makes without a context, and keeps the error, which it makes a text of.
type exchanged struct {
	ctx   context.Context
	next  http.RoundTripper
	vault *bucket.Vault
	err   error
}

// RoundTrip implements [http.RoundTripper].
func (s *exchanged) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(s.ctx)
	req.Header.Set("User-Agent", "headgate")
	if again, err := transport.Afresh(req); err == nil && again.ParseForm() == nil {
		s.vault.Conceal(again.PostForm.Get("assertion"))
	}
	resp, err := s.next.RoundTrip(req)
	if err != nil {
		s.err = err
		return nil, err
	}
	resp.Body = bucket.Bounded(resp.Body, maxToken)
	return resp, nil
}

// A refusal is an answer of a token service. Its status says nothing of an
// object of the bucket.
type refusal struct{ *bucket.StatusError }

func (r refusal) Is(target error) bool { return target == fs.ErrPermission && r.final() }

// final reports whether asking again is of no use.
func (r refusal) final() bool {
	return r.Status/100 == 4 && r.Status != http.StatusTooManyRequests && r.Status != http.StatusRequestTimeout
}

// refusal returns the answer of a token service that refuses (RFC 6749 section 5.2).
func (e *exchange) refusal(refused *oauth2.RetrieveError) error {
	var answer struct {
		Code        any    `json:"error"`
		Description string `json:"error_description"`
	}
	json.Unmarshal(refused.Body, &answer) // what cannot be decoded is not shown
	code, _ := answer.Code.(string)
	after, _ := transport.RetryAfter(refused.Response.Header, time.Now())
	r := refusal{&bucket.StatusError{Doing: exchanging, Status: refused.Response.StatusCode, Code: e.access.Code(code),
		Message: e.access.Said(answer.Description), After: after}}
	if r.final() {
		r.Hint = "check that the key was not deleted, and the clock of this machine"
	}
	return r
}
