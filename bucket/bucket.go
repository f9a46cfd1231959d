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
	ETag    string // without quotes and W/, spelled the same however it was learned
	Size    int64  // bytes, not negative
	Version string // what the driver needs beyond ETag to read just this content, "" when nothing
}

// A Driver reads one bucket. It is safe for concurrent use, and trusts nothing
// that the store says further than the context lasts.
//
// Errors satisfy fs.ErrNotExist when there is no such bucket or object and
// fs.ErrPermission when credentials are missing or were refused; [*StatusError]
// is the answer of a store. No error, of any kind, shows credentials,
// signatures or the query of a URL.
type Driver interface {
	// List yields the objects whose keys begin with prefix, in any order, the
	// one error last. Keys that end in / are
	// directory markers, and so are directories of stores that have any.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// Open reads o, as it was listed, from offset on. The error wraps
	// [ErrChanged] when that is not what there is any more. Reading may end early
	// with an error, or without one when less was sent than announced.
	Open(ctx context.Context, o Object, offset int64) (io.ReadCloser, error)
}

// ErrChanged marks an object that is not what was listed any more.
var ErrChanged = errors.New("the object changed since it was listed")

// A Provider connects to the bucket that a names. It logs in where it has to,
// and sends the bucket nothing. Errors are *[source.StepError] with the reason
// URLInvalid, AuthenticationFailed, InvalidProviderConfiguration or
// InvalidSTSConfiguration, or wrap [source.ErrInvalid].
type Provider func(ctx context.Context, a *Access) (Driver, error)

// ETag returns the spelling of an entity tag that [Object] has: without quotes
// and W/. Stores spell the same tag differently in listings and in headers.
func ETag(s string) string {
	s = strings.TrimPrefix(strings.TrimSpace(s), "W/")
	if n := len(s); n >= 2 && s[0] == '"' && s[n-1] == '"' {
		s = s[1 : n-1]
	}
	return s
}

// An Access is what a [Provider] needs to know. A Secret is a [source.Secret]
// and its Name, NAMESPACE/NAME, "" where the spec names none.
type Access struct {
	Spec         *source.BucketSpec
	Secret       transport.Secret        // of spec.secretRef
	Way          transport.Config        // how the endpoint is reached: the TLS of spec.certSecretRef, the proxy of spec.proxySecretRef
	STS          transport.Secret        // of spec.sts.secretRef
	STSWay       transport.Config        // how the token service is reached: the TLS of spec.sts.certSecretRef, the same proxy
	SecretReader *transport.SecretReader // values that must not show in texts

	login   source.LoginFunc
	mu      sync.Mutex
	clients []*http.Client // that were handed out
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
		a.Way, err = way(cert, proxy, env)
	}
	if err == nil {
		a.STSWay, err = way(stsCert, proxy, env)
	}
	return a, err
}

// way returns how a server is reached: with the TLS settings of a Secret, and a
// proxy, which is trusted as the server is. Both may be none.
func way(cert, proxy transport.Secret, env source.Env) (c transport.Config, err error) {
	c = transport.Outside(env)
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

// identity tells the bucket, and the credentials that it is read with, from
// others: by all of the spec that decides about that, the namespace, and the
// content of the Secrets.
func (a *Access) identity(namespace string) string {
	spec := *a.Spec
	spec.Prefix, spec.Ignore, spec.Suspend, spec.Interval, spec.Timeout = "", nil, false, 0, 0
	text, _ := json.Marshal([]any{namespace, spec, a.Way.Settings, a.STSWay.Settings, a.Secret, a.STS})
	sum := sha256.Sum256(text)
	return string(sum[:])
}

// LogIn returns what spec.provider issues to the identity of the program, or of
// spec.serviceAccountName, for the bucket at, which is s3://HOST/BUCKET,
// gs://HOST/BUCKET or azblob://HOST/CONTAINER. AWS issues keys: Username is the
// access key, Password the secret key and Token the session token, "" for none.
// The others issue bearer tokens.
func (a *Access) LogIn(ctx context.Context, at *url.URL) (source.Credential, error) {
	if a.login == nil {
		return source.Credential{}, errors.ErrUnsupported
	}
	return a.SecretReader.LogIn(ctx, a.login, a.Way, source.LoginRequest{Provider: a.Spec.Provider, URL: at, ServiceAccount: a.Spec.ServiceAccountName})
}

// Identity returns the tokens that [Access.LogIn] issues. Without
// spec.serviceAccountName, a program that has no identity for the bucket has no tokens: nil.
func (a *Access) Identity(ctx context.Context, at *url.URL) (*Issued, error) {
	tokens, err := NewIssued(ctx, func(ctx context.Context) (source.Credential, error) { return a.LogIn(ctx, at) })
	switch {
	case err == nil:
		return tokens, nil
	case a.Spec.ServiceAccountName == "" && (errors.Is(err, source.ErrNoIdentity) || errors.Is(err, errors.ErrUnsupported)):
		return nil, nil
	}
	return nil, Failed("AuthenticationFailed", err)
}

// Client returns a client for the server at origin, nil for any, reached by way. Credentials
// and the client certificate go to that origin only, redirects are not followed,
// and requests that a busy server refuses are sent again.
func (a *Access) Client(origin *url.URL, way transport.Config) *http.Client {
	way.Origin = origin
	c := transport.Client(way)
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

// Endpoint returns the server that spec.endpoint names, by http or https and
// without a slash at the end, as [source.BucketSpec.EndpointURL] has it. The
// query, which only provider azure allows, is returned by itself, without the
// question mark, as it was written. It never shows.
//
// The error is a *[source.StepError] with the reason URLInvalid that wraps
// [source.ErrInvalid], and says nothing of user information and query.
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

// ConcealQuery keeps a query out of texts: as a whole, and the signature sig in
// it in every spelling.
func (a *Access) ConcealQuery(query string) {
	a.SecretReader.Conceal(query)
	for _, match := range signature.FindAllStringSubmatch(query, -1) {
		plain, _ := url.QueryUnescape(match[1])
		a.SecretReader.Conceal(match[1], plain)
	}
}

// signature is the parameter of a query that holds a signature.
var signature = regexp.MustCompile(`(?i)(?:^|&)sig=([^&]*)`)

// Issued holds a credential that a service issues. It is replaced when four
// fifths of its life are over, and when the server refuses it. One that ends in
// less than ten seconds is that of a clock that is wrong, and used until it is
// refused. It is safe for concurrent use.
type Issued struct {
	issue func(context.Context) (source.Credential, error)
	mu    sync.Mutex // callers wait for the one that has a credential issued: the contexts of all end with the step
	held  *source.Credential
	until time.Time // when held is to be replaced; zero: when it is refused
}

const minLife = 10 * time.Second

// NewIssued returns the credentials that issue returns, and has the first one issued.
func NewIssued(ctx context.Context, issue func(context.Context) (source.Credential, error)) (*Issued, error) {
	i := &Issued{issue: issue}
	_, err := i.Get(ctx, nil)
	return i, err
}

// Get returns the credential to use: another one than refused, which may be nil.
// Errors are those of issuing and of ctx, and a *[source.StepError] when what was
// issued cannot be sent.
func (i *Issued) Get(ctx context.Context, refused *source.Credential) (*source.Credential, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if i.held != nil && i.held != refused && (i.until.IsZero() || time.Now().Before(i.until)) {
		return i.held, nil
	}
	if i.held != nil && i.held == refused && i.held.Refused != nil {
		i.held.Refused()
	}
	i.held = nil
	c, err := i.issue(ctx)
	if err != nil {
		return nil, err
	}
	unsendable := func(r rune) bool { return r <= ' ' || r > '~' }
	if c.Username+c.Token == "" || c.Username != "" && c.Password == "" || strings.ContainsFunc(c.Username+c.Token, unsendable) {
		return nil, Failed("AuthenticationFailed", errors.New("log in: the answer holds no token that can be sent"))
	}
	i.held, i.until = &c, time.Time{}
	if left := time.Until(c.Expires); left >= minLife {
		i.until = time.Now().Add(left / 5 * 4)
	}
	return i.held, nil
}

// A Bearer is a round tripper that sends a token with each request, and with
// another one, once a request, when the server answers 401.
type Bearer struct {
	Next   http.RoundTripper // must be set before the first request
	Tokens *Issued
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

// maxToken bounds the bytes of a token service's answer.
const maxToken = 1 << 20

// A TokenService is a round tripper for one use of a token service. It bounds answers,
// and makes errors of those that refuse. Libraries make texts of errors, and some send
// requests without a context: Failed has the error, and all requests end with the context.
type TokenService struct {
	ctx    context.Context
	access *Access
	client *http.Client
	hint   string
	sent   bool
	err    error
}

// TokenService returns the token service that client reaches. hint says what to do when it refuses.
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
	if req.Body != nil { // what it asserts must not show either
		text, err := io.ReadAll(req.Body) // of memory
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
		e := s.access.Refused(resp, nil)
		if e.Refused = e.Status/100 == 4 && e.Status != http.StatusTooManyRequests && e.Status != http.StatusRequestTimeout; e.Refused {
			e.Hint = cmp.Or(e.Hint, s.hint) // the status says nothing of the bucket
		}
		err = e
	}
	s.err = err
	return nil, err
}

// Failed returns the error of doing, given that of a library, whose text may show values and is not used.
func (s *TokenService) Failed(doing string, err error) error {
	if s.err == nil && !s.sent {
		s.err = errors.New("nothing was sent: the credentials are not what they should be")
	}
	if is[*http.MaxBytesError](err) || errors.Is(err, http.ErrSchemeMismatch) {
		s.err = err
	}
	return Failed("AuthenticationFailed", s.access.Explain(s.ctx, doing, cmp.Or(s.err, errors.New(""))))
}
