package bucket

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// An Object is one object of a bucket as it was listed.
type Object struct {
	Key     string
	ETag    string // normalized by [ETag]
	Size    int64  // bytes, not negative
	Version string // what the driver needs besides ETag to read exactly this content; may be ""
}

// A Driver reads one bucket. It is safe for concurrent use. Its methods return
// when the context ends, whatever the store sends.
//
// Errors satisfy fs.ErrNotExist when there is no such bucket or object and
// fs.ErrPermission when credentials are missing or were refused; a [*StatusError]
// is the response of a store. No error contains credentials, signatures or
// the query of a URL.
type Driver interface {
	// List yields the objects whose keys begin with prefix, in any order. An error
	// ends the sequence. Keys that end in / are directory markers; a store that
	// has directories lists them as such keys.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Open reads o, as it was listed, from offset on. The error wraps
	// [ErrChanged] when the object is no longer as it was listed. Reading may end
	// early, with an error, or with io.EOF if the store sent less than it announced.
	// The caller closes the reader.
	Open(ctx context.Context, o Object, offset int64) (io.ReadCloser, error)
}

// ErrChanged marks an object that changed since it was listed.
var ErrChanged = errors.New("the object changed since it was listed")

// A Provider returns the driver for the bucket that a.Spec names. It logs in if
// necessary, but sends no request to the bucket. Errors are *[source.StepError] with the reason
// URLInvalid, AuthenticationFailed, InvalidProviderConfiguration or
// InvalidSTSConfiguration, or wrap [source.ErrInvalid].
type Provider func(ctx context.Context, a *Access) (Driver, error)

// ETag normalizes an entity tag for [Object]: it removes quotes and W/. Stores
// spell the same tag differently in listings and in headers.
func ETag(s string) string {
	s = strings.TrimPrefix(strings.TrimSpace(s), "W/")
	if n := len(s); n >= 2 && s[0] == '"' && s[n-1] == '"' {
		s = s[1 : n-1]
	}
	return s
}

// An Access holds the spec, the Secrets and the network settings that a [Provider]
// needs. The Name of a Secret is NAMESPACE/NAME, or "" if the spec names none.
type Access struct {
	Spec         *source.BucketSpec
	Secret       transport.Secret        // of spec.secretRef
	Transport    transport.Config        // for the endpoint: TLS of spec.certSecretRef, proxy of spec.proxySecretRef
	STS          transport.Secret        // of spec.sts.secretRef
	STSTransport transport.Config        // for the token service: TLS of spec.sts.certSecretRef, the same proxy
	SecretReader *transport.SecretReader // knows the values to redact in texts

	login   source.LoginFunc
	mu      sync.Mutex
	clients []*http.Client // returned by Client
}

// newAccess reads the Secrets that spec names. Errors are *[source.StepError].
func newAccess(ctx context.Context, spec *source.BucketSpec, env source.Env, v *transport.SecretReader) (*Access, error) {
	a := &Access{Spec: spec, SecretReader: v, login: env.Login}
	var sts source.BucketSTSSpec
	if spec.STS != nil {
		sts = *spec.STS
	}
	var err error
	read := func(ref *source.LocalReference, field string) (s transport.Secret) {
		if err == nil {
			s, err = v.Read(ctx, ref, field)
		}
		return s
	}
	a.Secret, a.STS = read(spec.SecretRef, "spec.secretRef"), read(sts.SecretRef, "spec.sts.secretRef")
	proxy := read(spec.ProxySecretRef, "spec.proxySecretRef")
	cert, stsCert := read(spec.CertSecretRef, "spec.certSecretRef"), read(sts.CertSecretRef, "spec.sts.certSecretRef")
	if err == nil {
		a.Transport, err = transportConfig(cert, proxy, env)
	}
	if err == nil {
		a.STSTransport, err = transportConfig(stsCert, proxy, env)
	}
	return a, err
}

// transportConfig returns the transport settings for a server: the TLS settings of cert and
// the proxy of proxy, which uses the same TLS settings. Both Secrets may be empty.
func transportConfig(cert, proxy transport.Secret, env source.Env) (c transport.Config, err error) {
	c = transport.ConfigFromEnv(env)
	c.Settings = transport.Settings("cert", cert, proxy)
	if cert.Name != "" {
		c.TLS, err = transport.CertTLS(cert.Name, cert.Secret)
	}
	if err != nil || proxy.Name == "" {
		return c, err
	}
	p, err := transport.ProxyFromSecret(proxy.Name, proxy.Secret, c.TLS)
	if err == nil {
		c.Proxy = p.For
	}
	return c, err
}

// identityHash returns a hash that identifies the bucket and the credentials used to
// read it. It covers the namespace, the content of the Secrets, and all fields of
// the spec that select the bucket or the credentials.
func (a *Access) identityHash(namespace string) string {
	spec := *a.Spec
	spec.Prefix, spec.Ignore, spec.Suspend, spec.Interval, spec.Timeout = "", nil, false, 0, 0
	text, _ := json.Marshal([]any{namespace, spec, a.Transport.Settings, a.STSTransport.Settings, a.Secret, a.STS})
	sum := sha256.Sum256(text)
	return string(sum[:])
}

// LogIn returns the credential that spec.provider issues to the identity of the
// program, or of spec.serviceAccountName, for the bucket at, which is s3://HOST/BUCKET,
// gs://HOST/BUCKET or azblob://HOST/CONTAINER. AWS issues keys: Username is the
// access key, Password the secret key and Token the session token, "" for none.
// The other providers issue bearer tokens. LogIn returns [errors.ErrUnsupported] if
// the program cannot log in to any provider.
func (a *Access) LogIn(ctx context.Context, at *url.URL) (source.Credential, error) {
	if a.login == nil {
		return source.Credential{}, errors.ErrUnsupported
	}
	return a.SecretReader.LogIn(ctx, a.login, a.Transport, source.LoginRequest{Provider: a.Spec.Provider, URL: at, ServiceAccount: a.Spec.ServiceAccountName})
}

// Identity returns the tokens that [Access.LogIn] issues. It returns nil, without an
// error, if spec.serviceAccountName is not set and the program has no identity for the bucket.
func (a *Access) Identity(ctx context.Context, at *url.URL) (*CredentialCache, error) {
	tokens, err := NewCredentialCache(ctx, func(ctx context.Context) (source.Credential, error) { return a.LogIn(ctx, at) })
	switch {
	case err == nil:
		return tokens, nil
	case a.Spec.ServiceAccountName == "" && (errors.Is(err, source.ErrNoIdentity) || errors.Is(err, errors.ErrUnsupported)):
		return nil, nil
	}
	return nil, Failed("AuthenticationFailed", err)
}

// Client returns a client with the settings of config for the server at origin, or for any
// server if origin is nil. It sends credentials and the client certificate to that origin
// only, follows no redirects, and retries requests that a busy server refuses.
func (a *Access) Client(origin *url.URL, config transport.Config) *http.Client {
	config.Origin = origin
	c := transport.Client(config)
	c.Transport = &transport.RetryTransport{Next: c.Transport, Busy: []int{http.StatusInternalServerError, http.StatusRequestTimeout}}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clients = append(a.clients, c)
	return c
}

// close ends idle connections.
func (a *Access) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.clients {
		c.CloseIdleConnections()
	}
}

// Endpoint returns the URL of the server in spec.endpoint, with scheme http or https
// and without a trailing slash, see [source.BucketSpec.EndpointURL]. The
// query, which only provider azure allows, is returned separately, unchanged and
// without the question mark. It is redacted in texts.
//
// The error is a *[source.StepError] with the reason URLInvalid that wraps
// [source.ErrInvalid]. Its text contains neither user information nor the query.
func (a *Access) Endpoint() (server *url.URL, query string, err error) {
	if _, found, ok := strings.Cut(a.Spec.Endpoint, "?"); ok {
		a.ConcealQuery(found)
	}
	u, err := a.Spec.EndpointURL()
	if err != nil {
		return nil, "", Failed("URLInvalid", err)
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}, u.RawQuery, nil
}

// ConcealQuery has a query redacted in texts: the whole query, and the parameter
// sig both escaped and unescaped.
func (a *Access) ConcealQuery(query string) {
	a.SecretReader.Conceal(query)
	for _, match := range signature.FindAllStringSubmatch(query, -1) {
		unescaped, _ := url.QueryUnescape(match[1])
		a.SecretReader.Conceal(match[1], unescaped)
	}
}

// signature matches the query parameter that holds a signature.
var signature = regexp.MustCompile(`(?i)(?:^|&)sig=([^&]*)`)

// A CredentialCache caches a credential that a service issues. It replaces the credential after
// four fifths of its lifetime, and when the server refuses it. A credential with less
// than ten seconds left indicates a wrong clock; it is used until it is refused.
// A CredentialCache is safe for concurrent use.
type CredentialCache struct {
	issue  func(context.Context) (source.Credential, error)
	mu     sync.Mutex // held while a credential is issued: the contexts of all waiting callers end with the same step
	cached *source.Credential
	until  time.Time // when to replace held; zero: only when it is refused
}

const minLife = 10 * time.Second

// NewCredentialCache returns a cache of the credentials that issue returns. It calls issue
// once, and returns its error.
func NewCredentialCache(ctx context.Context, issue func(context.Context) (source.Credential, error)) (*CredentialCache, error) {
	i := &CredentialCache{issue: issue}
	_, err := i.Get(ctx, nil)
	return i, err
}

// Get returns the credential to use, but never refused, which may be nil: if refused
// is the cached credential, Get replaces it. Errors are those of issuing and of ctx,
// and a *[source.StepError] when the issued credential cannot be sent.
func (i *CredentialCache) Get(ctx context.Context, refused *source.Credential) (*source.Credential, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if i.cached != nil && i.cached != refused && (i.until.IsZero() || time.Now().Before(i.until)) {
		return i.cached, nil
	}
	if i.cached != nil && i.cached == refused && i.cached.Refused != nil {
		i.cached.Refused()
	}
	i.cached = nil
	c, err := i.issue(ctx)
	if err != nil {
		return nil, err
	}
	unsendable := func(r rune) bool { return r <= ' ' || r > '~' }
	if c.Username+c.Token == "" || c.Username != "" && c.Password == "" || strings.ContainsFunc(c.Username+c.Token, unsendable) {
		return nil, Failed("AuthenticationFailed", errors.New("log in: the answer holds no token that can be sent"))
	}
	i.cached, i.until = &c, time.Time{}
	if left := time.Until(c.Expires); left >= minLife {
		i.until = time.Now().Add(left / 5 * 4)
	}
	return i.cached, nil
}

// A Bearer is a round tripper that adds a bearer token to each request. If the
// server answers 401, it retries the request once with a new token.
type Bearer struct {
	Next   http.RoundTripper // must be set before the first request
	Tokens *CredentialCache
}

// RoundTrip implements [http.RoundTripper].
func (b *Bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	var refused *source.Credential
	for {
		c, err := b.Tokens.Get(req.Context(), refused)
		if err != nil {
			return nil, err
		}
		out := req.Clone(req.Context())
		out.Header.Set("Authorization", "Bearer "+c.Token)
		resp, err := b.Next.RoundTrip(out)
		if err != nil || resp.StatusCode != http.StatusUnauthorized || refused != nil {
			return resp, err
		}
		resp.Body.Close()
		refused = c
	}
}

// maxToken is the maximum size of a token service's response, in bytes.
const maxToken = 1 << 20

// A TokenService is a round tripper for one call to a token service. It limits the size
// of responses and turns refusals into errors. Some libraries keep only the text of an
// error, and some send requests without a context: so Failed returns the original error,
// and every request uses the context given to [Access.TokenService].
type TokenService struct {
	ctx    context.Context
	access *Access
	client *http.Client
	hint   string
	sent   bool
	err    error
}

// TokenService returns the round tripper for one call to the token service that client
// reaches. hint tells the user what to do if the service refuses.
func (a *Access) TokenService(ctx context.Context, client *http.Client, hint string) *TokenService {
	return &TokenService{ctx: ctx, access: a, client: client, hint: hint}
}

// Client returns the client to give to a library.
func (s *TokenService) Client() *http.Client {
	c := *s.client
	c.Transport = s
	return &c
}

// RoundTrip implements [http.RoundTripper].
func (s *TokenService) RoundTrip(req *http.Request) (*http.Response, error) {
	s.sent = true
	req = req.Clone(s.ctx)
	if req.Body != nil { // assertions are redacted too
		text, err := io.ReadAll(req.Body) // the body is in memory
		if err != nil {
			return nil, err
		}
		form, _ := url.ParseQuery(string(text))
		s.access.SecretReader.Conceal(form.Get("assertion"), form.Get("client_assertion"))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
		req.Body, _ = req.GetBody()
	}
	req.Header.Set("User-Agent", "headgate")
	resp, err := s.client.Transport.RoundTrip(req)
	if err == nil && resp.StatusCode/100 == 2 {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxToken)
		return resp, nil
	}
	if err == nil {
		e := s.access.ReadRefusal(resp, nil)
		if e.Refused = e.Status/100 == 4 && e.Status != http.StatusTooManyRequests && e.Status != http.StatusRequestTimeout; e.Refused {
			e.Hint = cmp.Or(e.Hint, s.hint) // the status is not about the bucket
		}
		err = e
	}
	s.err = err
	return nil, err
}

// Failed returns the error of doing, given the error of a library. It does not use the
// library's text, which may contain secret values.
func (s *TokenService) Failed(doing string, err error) error {
	if s.err == nil && !s.sent {
		s.err = errors.New("nothing was sent: the credentials are not what they should be")
	}
	if is[*http.MaxBytesError](err) || errors.Is(err, http.ErrSchemeMismatch) {
		s.err = err
	}
	return Failed("AuthenticationFailed", s.access.Explain(s.ctx, doing, cmp.Or(s.err, errors.New(""))))
}
