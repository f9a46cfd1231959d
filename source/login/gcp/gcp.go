// Package gcp logs in to Artifact Registry, Container Registry and Cloud Storage
// of Google Cloud (reference A10, A11, A16).
//
// The identity is that of the program. The first of these that there is decides:
//
//	GOOGLE_APPLICATION_CREDENTIALS                  the file it names
//	GOOGLE_WORKLOAD_IDENTITY_PROVIDER, in a job     the job of GitHub or Forgejo Actions, as what that provider makes of
//	  of Actions                                    it, or as the service account in GOOGLE_SERVICE_ACCOUNT
//	gcloud/application_default_credentials.json     in $HOME/.config or %APPDATA%: what a developer logged in with
//	none                                            the service account of the machine, which its metadata server knows
//
// The provider is projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/NAME;
// the audience of the job's identity token is that with https://iam.googleapis.com/
// before it. A file holds the key of a service account, a user's login, or how
// another identity is exchanged (workload identity federation); where it says
// that tokens are exchanged must be an https URL, or on loopback. No program is
// run: a file that names one is refused. GCE_METADATA_HOST is the metadata server.
//
//   - The URL must be oci://LOCATION-docker.pkg.dev/..., oci://gcr.io/...,
//     oci://NAME.gcr.io/..., oci://docker.s3nsregistry.fr/... or
//     oci://LOCATION-docker.s3nsregistry.fr/..., or for buckets
//     gs://storage.googleapis.com/..., gs://storage.REGION.rep.googleapis.com/...,
//     gs://storage-NAME.p.googleapis.com/... or gs://storage.s3nsapis.fr/...
//     No other host is shown a token.
//   - Hosts of s3nsregistry.fr and s3nsapis.fr are of another cloud (universe
//     s3nsapis.fr), and are shown only identities of that cloud; the others only
//     those of googleapis.com. Files say so by universe_domain, the metadata server knows
//     it, and for jobs it is GOOGLE_CLOUD_UNIVERSE_DOMAIN.
//   - For a registry the password of the user oauth2accesstoken is an access
//     token with the scope cloud-platform. A bucket's is a bearer token with the
//     scope devstorage.read_only; that of a developer's login, and of a machine
//     that does not narrow them, has the scopes that were given to those.
//   - Where none of the four is there, the error satisfies [source.ErrNoIdentity].
//   - A token is used for 80 % of its life, an hour at most. One of a machine
//     that was refused may be issued again: the metadata server keeps those.
package gcp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// User is the user name that goes with an access token.
const User = "oauth2accesstoken"

// A Provider logs in with the identity of the program, and keeps its tokens.
type Provider struct {
	env    exchange.Environment
	tokens exchange.Credentials
}

// New returns a provider that tells the time by now, and looks variables of the
// environment up with lookup; nil means [time.Now] and [os.LookupEnv].
// A file that exchanges an identity of AWS makes the library read the
// environment of the process itself.
func New(now func() time.Time, lookup func(string) (string, bool)) *Provider {
	return &Provider{env: exchange.NewEnvironment(lookup), tokens: exchange.Credentials{Now: now}}
}

// Login is a [source.LoginFunc].
func (p *Provider) Login(ctx context.Context, r source.LoginRequest) (source.Credential, error) {
	at, client, err := exchange.Begin(r, endpointOf)
	if err != nil {
		return source.Credential{}, err
	}
	defer client.CloseIdleConnections()
	c, err := p.tokens.Get(ctx, at.universe+" "+at.scope, func(ctx context.Context) (source.Credential, error) {
		return identity{p.env, exchange.Until(ctx, client), at}.token(ctx)
	})
	if err == nil && !at.bucket {
		c.Username, c.Password, c.Token = User, c.Token, ""
	}
	return c, err
}

// metadataHost is where a machine finds its metadata server, by address, so
// that no name server has a say.
const metadataHost = "169.254.169.254"

// byMachine asks the metadata server for a token of the machine's service account.
func (i identity) byMachine(ctx context.Context) (source.Credential, error) {
	req, err := i.question(ctx, "universe/universe-domain")
	if err != nil {
		return source.Credential{}, err
	}
	universe, err := exchange.Text(i.client, req)
	if status, ok := errors.AsType[*exchange.StatusError](err); ok && status.Status == http.StatusNotFound {
		universe, err = "", nil // older servers know one cloud
	}
	if absent(err) {
		return source.Credential{}, exchange.NoIdentity(err)
	}
	if err != nil {
		return source.Credential{}, err
	}
	if err := i.belongs(strings.TrimSpace(universe)); err != nil {
		return source.Credential{}, err
	}
	var answer struct {
		Token   string `json:"access_token"`
		Seconds int    `json:"expires_in"`
	}
	key := "instance/service-accounts/default/token"
	if i.bucket {
		key += "?scopes=" + url.QueryEscape(i.scope)
	}
	if req, err = i.question(ctx, key); err != nil {
		return source.Credential{}, err
	}
	err = exchange.JSON(i.client, req, &answer)
	if status, ok := errors.AsType[*exchange.StatusError](err); absent(err) || ok && status.Status == http.StatusNotFound {
		return source.Credential{}, exchange.NoIdentity(err) // the machine has no service account
	}
	if err != nil {
		return source.Credential{}, err
	}
	return source.Credential{Token: answer.Token, Expires: time.Now().Add(time.Duration(answer.Seconds) * time.Second)}, nil
}

// absent reports whether err says that this is no machine of Google Cloud:
// nothing is there, or what refuses is another cloud's.
func absent(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	status, ok := errors.AsType[*exchange.StatusError](err)
	return ok && status.Header(flavor) != "Google"
}

// flavor is a header of requests to the metadata server, and of its answers.
const flavor = "Metadata-Flavor"

// question is a request for a key of the metadata server.
func (i identity) question(ctx context.Context, key string) (*http.Request, error) {
	host := i.env.Value(metadataVariable)
	if host == "" {
		host = metadataHost
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/computeMetadata/v1/"+key, nil)
	if err != nil {
		return nil, wrong("%s is not HOST or HOST:PORT", metadataVariable)
	}
	req.Header.Set(flavor, "Google")
	req.Header.Set("User-Agent", "headgate")
	return req, nil
}
