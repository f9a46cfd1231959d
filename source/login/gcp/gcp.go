// Package gcp logs in to Artifact Registry, Container Registry and Cloud Storage
// of Google Cloud (reference A10, A11, A16).
//
// For a service account of a cluster, the workload identity provider in its annotation
// gcp.auth.fluxcd.io/workload-identity-provider exchanges a token of the account; without
// the annotation, the pool of the GKE cluster that the program runs in does. If the
// annotation iam.gke.io/gcp-service-account names a service account of Google, the identity
// is that one. Without a service account, the provider uses the identity of the program:
// the first of these that exists:
//
//	GOOGLE_APPLICATION_CREDENTIALS                  the file it names
//	GOOGLE_WORKLOAD_IDENTITY_PROVIDER, in a job     the job of GitHub or Forgejo Actions, exchanged by that provider,
//	  of Actions                                    or the service account in GOOGLE_SERVICE_ACCOUNT
//	gcloud/application_default_credentials.json     in $HOME/.config or %APPDATA%: the login of a developer
//	none                                            the service account of the machine, from its metadata server
//
// The provider is
// projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/NAME; the audience
// of the job's identity token is https://iam.googleapis.com/ followed by the provider. A
// file holds the key of a service account, a user's login, or a configuration to exchange
// another identity (workload identity federation). The URLs at which it exchanges tokens
// must be https, or on loopback. No program is run: a file that names one is rejected.
// GCE_METADATA_HOST is the metadata server.
//
//   - The URL must be oci://LOCATION-docker.pkg.dev/..., oci://gcr.io/...,
//     oci://NAME.gcr.io/..., oci://docker.s3nsregistry.fr/... or
//     oci://LOCATION-docker.s3nsregistry.fr/..., or for buckets
//     gs://storage.googleapis.com/..., gs://storage.REGION.rep.googleapis.com/...,
//     gs://storage-NAME.p.googleapis.com/... or gs://storage.s3nsapis.fr/... No other host
//     receives a token.
//   - Hosts of s3nsregistry.fr and s3nsapis.fr belong to another cloud (universe
//     s3nsapis.fr), and receive only identities of that cloud; the other hosts receive only
//     those of googleapis.com. A file names its cloud in universe_domain, a machine's
//     metadata server knows its own, and for jobs it is GOOGLE_CLOUD_UNIVERSE_DOMAIN.
//   - For a registry, the password of the user oauth2accesstoken is an access token with
//     the scope cloud-platform. For a bucket, the credential is a bearer token with the
//     scope devstorage.read_only; a developer's login, and a machine that does not narrow
//     the scopes, give tokens with the scopes that were granted to them.
//   - If none of the four exists, the error satisfies [source.ErrNoIdentity].
//   - A token is used for 80 % of its lifetime, at most an hour. A refused token of a
//     machine may be returned again: the metadata server caches it.
package gcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"golang.org/x/oauth2/google/externalaccount"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// User is the user name that goes with an access token.
const User = "oauth2accesstoken"

// A Provider logs in with the identity of the program, and keeps its tokens. The zero value
// is ready to use. With a file that exchanges an identity of AWS, the library reads the
// environment of the process itself.
type Provider struct {
	Now    func() time.Time                 // nil for time.Now
	Lookup func(name string) (string, bool) // environment lookup, nil for os.LookupEnv

	tokens exchange.Credentials
}

// Login is a [source.LoginFunc].
func (p *Provider) Login(ctx context.Context, r source.LoginRequest) (source.Credential, error) {
	at, account, client, err := exchange.Begin(ctx, r, endpointOf)
	if err != nil {
		return source.Credential{}, err
	}
	defer client.CloseIdleConnections()
	c, err := p.tokens.Get(ctx, p.Now, at.universe+" "+at.scope+exchange.AccountKey(account), func(ctx context.Context) (source.Credential, error) {
		return identity{p.Lookup, account, exchange.WithContext(ctx, client), at}.token(ctx)
	})
	if err == nil && !at.bucket {
		c.Username, c.Password, c.Token = User, c.Token, ""
	}
	return c, err
}

// metadataHost is the metadata server of a machine. It is an IP address, so that no name
// server can redirect it.
const metadataHost = "169.254.169.254"

// byMetadataServer asks the metadata server for a token of the machine's service account.
func (i identity) byMetadataServer(ctx context.Context) (source.Credential, error) {
	req, err := i.metadataRequest(ctx, "universe/universe-domain")
	if err != nil {
		return source.Credential{}, err
	}
	universe, err := exchange.Text(i.client, req)
	if status, ok := errors.AsType[*exchange.StatusError](err); ok && status.Status == http.StatusNotFound {
		universe, err = "", nil // older servers know only one cloud
	}
	if notOnGoogleCloud(err) {
		return source.Credential{}, exchange.NoIdentity(err)
	}
	if err != nil {
		return source.Credential{}, err
	}
	if err := i.checkUniverse(strings.TrimSpace(universe)); err != nil {
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
	if req, err = i.metadataRequest(ctx, key); err != nil {
		return source.Credential{}, err
	}
	err = exchange.JSON(i.client, req, &answer)
	if status, ok := errors.AsType[*exchange.StatusError](err); notOnGoogleCloud(err) || ok && status.Status == http.StatusNotFound {
		return source.Credential{}, exchange.NoIdentity(err) // the machine has no service account
	}
	if err != nil {
		return source.Credential{}, err
	}
	return source.Credential{Token: answer.Token, Expires: time.Now().Add(time.Duration(answer.Seconds) * time.Second)}, nil
}

// notOnGoogleCloud reports whether err says that this is not a machine of Google Cloud: nothing
// listens there, or another cloud's server refused.
func notOnGoogleCloud(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	status, ok := errors.AsType[*exchange.StatusError](err)
	return ok && status.Header(flavor) != "Google"
}

// flavor is a header of requests to the metadata server, and of its responses.
const flavor = "Metadata-Flavor"

// metadataRequest returns a request for a key of the metadata server.
func (i identity) metadataRequest(ctx context.Context, key string) (*http.Request, error) {
	host := i.env.Value(metadataVariable)
	if host == "" {
		host = metadataHost
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/computeMetadata/v1/"+key, nil)
	if err != nil {
		return nil, configError("%s is not HOST or HOST:PORT", metadataVariable)
	}
	req.Header.Set(flavor, "Google")
	req.Header.Set("User-Agent", "headgate")
	return req, nil
}

// The variables that select the identity of the program.
const (
	fileVariable     = "GOOGLE_APPLICATION_CREDENTIALS"
	providerVariable = "GOOGLE_WORKLOAD_IDENTITY_PROVIDER"
	accountVariable  = "GOOGLE_SERVICE_ACCOUNT"
	universeVariable = "GOOGLE_CLOUD_UNIVERSE_DOMAIN"
	metadataVariable = "GCE_METADATA_HOST"
)

// An identity is that of an account or of the program, with the means to request tokens of
// a cloud.
type identity struct {
	env     exchange.Environment
	account *source.Account // nil for the program
	client  *http.Client
	endpoint
}

// token gets a token by the first method whose variables and files exist.
func (i identity) token(ctx context.Context) (source.Credential, error) {
	name, issue := i.method()
	t, err := issue(ctx)
	if ctx.Err() != nil {
		return source.Credential{}, fmt.Errorf("%s: %w", name, context.Cause(ctx))
	}
	if err != nil {
		return source.Credential{}, i.explain(name, err)
	}
	return t, nil
}

func (i identity) method() (name string, issue func(context.Context) (source.Credential, error)) {
	if i.account != nil {
		return "service account " + i.account.Namespace + "/" + i.account.Name, i.byAccount
	}
	if file := i.env.Value(fileVariable); file != "" {
		return fileVariable, func(ctx context.Context) (source.Credential, error) { return i.byFile(ctx, file) }
	}
	if i.env.Has(providerVariable) && i.env.Has(exchange.JobVariables...) {
		return providerVariable, i.byJob
	}
	if file := i.gcloudFile(); file != "" {
		return file, func(ctx context.Context) (source.Credential, error) { return i.byFile(ctx, file) }
	}
	return "metadata server", i.byMetadataServer
}

// gcloudFile returns the file in which gcloud keeps a developer's login, "" if there is
// none.
func (i identity) gcloudFile() string {
	variable, dir := "HOME", ".config"
	if runtime.GOOS == "windows" {
		variable, dir = "APPDATA", "."
	}
	home := i.env.Value(variable)
	file := filepath.Join(home, dir, "gcloud", "application_default_credentials.json")
	if _, err := os.Stat(file); home == "" || err != nil {
		return ""
	}
	return file
}

// explain adds advice to an error, and marks errors that retrying cannot fix.
func (i identity) explain(name string, err error) error {
	status, ok := errors.AsType[*exchange.StatusError](err)
	if ok && status.Final() {
		return fmt.Errorf("%w: %s: %w: %s", source.ErrProvider, name, err, exchange.Advice(i.account, "GOOGLE"))
	}
	return fmt.Errorf("%s: %w", name, err)
}

// configError returns an error for an identity that cannot work until it is changed.
func configError(format string, args ...any) error {
	return fmt.Errorf("%w: %w", source.ErrProvider, fmt.Errorf(format, args...))
}

// tokenFrom gets a token from the source that open returns. The oauth2 library sends its requests
// through the client in the context.
func (i identity) tokenFrom(ctx context.Context, open func(context.Context) (oauth2.TokenSource, error)) (source.Credential, error) {
	client, failed := exchange.Strict(i.client)
	from, err := open(context.WithValue(ctx, oauth2.HTTPClient, client))
	if err != nil {
		return source.Credential{}, configError("%s", exchange.CleanText(err.Error()))
	}
	t, err := from.Token()
	if refused := failed(); err != nil && refused != nil {
		return source.Credential{}, refused // it explains more, and repeats no secrets
	}
	if err != nil {
		return source.Credential{}, errors.New(exchange.CleanText(err.Error()))
	}
	return source.Credential{Token: t.AccessToken, Expires: t.Expiry}, nil
}

// Patterns for values that become parts of URLs.
var (
	providerForm = regexp.MustCompile(`^projects/[0-9]+/locations/global/workloadIdentityPools/[a-z0-9-]+/providers/[a-z0-9-]+$`)
	accountForm  = regexp.MustCompile(`^[a-zA-Z0-9._-]+@[a-zA-Z0-9.-]+$`)
)

// byJob exchanges the identity token of a job.
func (i identity) byJob(ctx context.Context) (source.Credential, error) {
	provider, account := i.env.Value(providerVariable), i.env.Value(accountVariable)
	if !providerForm.MatchString(provider) {
		return source.Credential{}, configError("it should read projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/NAME")
	}
	if account != "" && !accountForm.MatchString(account) {
		return source.Credential{}, configError("%s is not the e-mail address of a service account", accountVariable)
	}
	if err := i.checkUniverse(i.env.Value(universeVariable)); err != nil {
		return source.Credential{}, err
	}
	subject, err := exchange.JobToken(ctx, i.client, i.env, "https://iam.googleapis.com/"+provider)
	if err != nil {
		return source.Credential{}, err
	}
	return i.federate(ctx, "//iam.googleapis.com/"+provider, subject, account)
}

// The annotations of a service account.
const (
	providerAnnotation = "gcp.auth.fluxcd.io/workload-identity-provider"
	accountAnnotation  = "iam.gke.io/gcp-service-account"
)

// byAccount exchanges a token of a service account of the cluster.
func (i identity) byAccount(ctx context.Context) (source.Credential, error) {
	provider, err := exchange.Annotation(i.account, providerAnnotation, false, providerForm, "projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/NAME")
	if err != nil {
		return source.Credential{}, err
	}
	email, err := exchange.Annotation(i.account, accountAnnotation, false, accountForm, "the e-mail address of a service account")
	if err != nil {
		return source.Credential{}, err
	}
	if err := i.checkUniverse(i.env.Value(universeVariable)); err != nil {
		return source.Credential{}, err
	}
	audience := "//iam.googleapis.com/" + provider
	pool := audience
	if provider == "" {
		if audience, pool, err = i.cluster(ctx); err != nil {
			return source.Credential{}, err
		}
	}
	subject, err := i.account.Token(ctx, audience)
	if err != nil {
		return source.Credential{}, err
	}
	return i.federate(ctx, pool, subject, email)
}

// cluster returns the audience of tokens of the GKE cluster that the program runs in, and
// the pool that exchanges them.
func (i identity) cluster(ctx context.Context) (audience, pool string, err error) {
	var values []any
	for _, key := range []string{"project/project-id", "instance/attributes/cluster-location", "instance/attributes/cluster-name"} {
		req, err := i.metadataRequest(ctx, key)
		if err != nil {
			return "", "", err
		}
		value, err := exchange.Text(i.client, req)
		if status, ok := errors.AsType[*exchange.StatusError](err); notOnGoogleCloud(err) || ok && status.Status == http.StatusNotFound || err == nil && strings.TrimSpace(value) == "" {
			return "", "", configError("annotation %s is missing, and this is no cluster of GKE: its metadata server does not know %s: set the annotation", providerAnnotation, key)
		}
		if err != nil {
			return "", "", err
		}
		values = append(values, strings.TrimSpace(value))
	}
	audience = fmt.Sprintf("%s.svc.id.goog", values[0])
	return audience, "identitynamespace:" + audience + ":" + fmt.Sprintf("https://container.googleapis.com/v1/projects/%s/locations/%s/clusters/%s", values...), nil
}

// federate exchanges an identity token for one of Google, or one of a service account of Google.
func (i identity) federate(ctx context.Context, pool, subject, account string) (source.Credential, error) {
	c := externalaccount.Config{
		Audience:             pool,
		SubjectTokenType:     "urn:ietf:params:oauth:token-type:jwt",
		SubjectTokenSupplier: identityToken(subject),
		Scopes:               []string{i.scope},
		UniverseDomain:       i.universe,
	}
	if account != "" {
		c.ServiceAccountImpersonationURL = "https://iamcredentials." + i.universe + "/v1/projects/-/serviceAccounts/" + account + ":generateAccessToken"
	}
	return i.tokenFrom(ctx, func(ctx context.Context) (oauth2.TokenSource, error) { return externalaccount.NewTokenSource(ctx, c) })
}

// An identityToken supplies a token that was issued already.
type identityToken string

// SubjectToken implements [externalaccount.SubjectTokenSupplier].
func (t identityToken) SubjectToken(context.Context, externalaccount.SupplierOptions) (string, error) {
	return string(t), nil
}

// checkUniverse returns an error if an identity of a cloud, "" for Google's, must not be sent to
// the endpoint.
func (i identity) checkUniverse(universe string) error {
	if universe == "" {
		universe = googleCloud
	}
	if universe != i.universe {
		return configError("the identity is one of %s, and %s is of %s", exchange.CleanText(universe), i.endpoint, i.universe)
	}
	return nil
}

// types are the supported types of credentials files.
var types = []google.CredentialsType{
	google.ServiceAccount,
	google.AuthorizedUser,
	google.ExternalAccount,
	google.ExternalAccountAuthorizedUser,
	google.ImpersonatedServiceAccount,
}

// credentials are the fields of a credentials file that are checked here.
type credentials struct {
	Type          google.CredentialsType `json:"type"`
	Web           any                    `json:"web"`
	Installed     any                    `json:"installed"`
	Universe      string                 `json:"universe_domain"`
	TokenURI      string                 `json:"token_uri"`
	TokenURL      string                 `json:"token_url"`
	Impersonation string                 `json:"service_account_impersonation_url"`
	From          struct {
		Executable any `json:"executable"`
	} `json:"credential_source"`
	Source *credentials `json:"source_credentials"`
}

// byFile gets a token with the credentials in a file.
func (i identity) byFile(ctx context.Context, name string) (source.Credential, error) {
	data, err := exchange.File(name)
	if err != nil {
		return source.Credential{}, configError("%w", err)
	}
	var c credentials
	if err := json.Unmarshal(data, &c); err != nil {
		return source.Credential{}, configError("%s: %s", name, exchange.CleanText(err.Error()))
	}
	for part := &c; part != nil; part = part.Source {
		if err := part.check(); err != nil {
			return source.Credential{}, configError("%s: %w", name, err)
		}
	}
	for _, universe := range c.universes() {
		if err := i.checkUniverse(universe); err != nil {
			return source.Credential{}, err
		}
	}
	if c.Type == google.ExternalAccount && c.TokenURL == "" && i.universe != googleCloud { // the library would use Google's
		return source.Credential{}, configError("%s: token_url is missing: it says where %s exchanges tokens", name, i.universe)
	}
	return i.tokenFrom(ctx, func(ctx context.Context) (oauth2.TokenSource, error) {
		found, err := google.CredentialsFromJSONWithType(ctx, data, c.Type, i.scope)
		if err != nil {
			return nil, err
		}
		return found.TokenSource, nil
	})
}

// universes returns the clouds that c and the credentials in it name, or Google's if they
// name none.
func (c *credentials) universes() (all []string) {
	for ; c != nil; c = c.Source {
		if c.Universe != "" {
			all = append(all, c.Universe)
		}
	}
	if len(all) == 0 {
		return []string{googleCloud}
	}
	return all
}

// check returns an error if c, apart from the credentials in it, must not be used.
func (c *credentials) check() error {
	if !slices.Contains(types, c.Type) {
		return fmt.Errorf("type %q is none of %q", exchange.CleanText(string(c.Type)), types)
	}
	if c.From.Executable != nil {
		return fmt.Errorf("credential_source.executable: headgate runs no programs: use a file or a url")
	}
	if c.Web != nil || c.Installed != nil { // the library would require a user and a web page
		return fmt.Errorf("web and installed are of an OAuth client, not of an identity: use a file of type %q", types)
	}
	for _, field := range []struct{ name, url string }{
		{"token_uri", c.TokenURI}, {"token_url", c.TokenURL}, {"service_account_impersonation_url", c.Impersonation},
	} {
		if u, err := url.Parse(field.url); field.url != "" && (err != nil || !exchange.IsConfidential(u)) {
			return fmt.Errorf("%s is not an https URL", field.name)
		}
	}
	return nil
}

// The clouds that run the software of Google Cloud, by the domain of their services.
const (
	googleCloud = "googleapis.com"
	s3nsCloud   = "s3nsapis.fr"
)

const label = `[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?`

// hosts are the patterns of hosts, anchored at both ends, with the scheme of the URL and
// the cloud of each.
var hosts = []struct {
	scheme, universe string
	form             *regexp.Regexp
}{
	{"oci", googleCloud, regexp.MustCompile(`^(?:` + label + `\.)?gcr\.io$`)},
	{"oci", googleCloud, regexp.MustCompile(`^` + label + `-docker\.pkg\.dev$`)},
	{"oci", s3nsCloud, regexp.MustCompile(`^(?:` + label + `-)?docker\.s3nsregistry\.fr$`)},
	{"gs", googleCloud, regexp.MustCompile(`^storage\.googleapis\.com$`)},
	{"gs", googleCloud, regexp.MustCompile(`^storage\.` + label + `\.rep\.googleapis\.com$`)}, // of one region
	{"gs", googleCloud, regexp.MustCompile(`^storage-` + label + `\.p\.googleapis\.com$`)},    // of a private network
	{"gs", s3nsCloud, regexp.MustCompile(`^storage\.s3nsapis\.fr$`)},
}

// The scopes of tokens, for registries and for buckets.
const (
	scope       = "https://www.googleapis.com/auth/cloud-platform"
	bucketScope = "https://www.googleapis.com/auth/devstorage.read_only"
)

var (
	errNoRegistry = errors.New("provider gcp is for oci://LOCATION-docker.pkg.dev/PROJECT/REPOSITORY/NAME and oci://gcr.io/PROJECT/NAME")
	errNoStore    = errors.New("the identity of this program is shown to storage.googleapis.com, storage.REGION.rep.googleapis.com and storage-NAME.p.googleapis.com only: " +
		"for other endpoints set spec.secretRef")
)

// An endpoint is a registry or a store that receives a token.
type endpoint struct {
	universe string
	scope    string // of the token
	bucket   bool
}

func (e endpoint) String() string {
	if e.bucket {
		return "the bucket"
	}
	return "the registry"
}

// endpointOf returns the endpoint at u.
func endpointOf(u *url.URL) (endpoint, error) {
	at, none := endpoint{scope: scope}, errNoRegistry
	if u.Scheme == "gs" {
		at, none = endpoint{scope: bucketScope, bucket: true}, errNoStore
	}
	host := exchange.Host(u)
	for _, h := range hosts {
		if u.Scheme == h.scheme && h.form.MatchString(host) {
			at.universe = h.universe
			return at, nil
		}
	}
	return endpoint{}, none
}
