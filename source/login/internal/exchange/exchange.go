// Package exchange sends requests to token services, and caches the credentials that they
// issue: see [Credentials].
//
//   - Requests over https use the client that the caller was given, and with it the proxy
//     of the object. Requests without TLS are for services of the machine, its link or its
//     cluster: they are sent directly.
//   - A response has at most [MaxAnswer] bytes; reading more is an error.
//   - Redirects are followed to the same origin only.
package exchange

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// MaxAnswer is the maximum size of a response, in bytes.
const MaxAnswer = 1 << 20

const (
	maxRedirects = 5
	localTimeout = 2 * time.Second // to connect to a service of the machine, which answers at once or not at all
)

// Client returns a client that keeps the rules of this package. given is the client for
// https; nil means one without proxy. The caller closes the idle connections of the result.
func Client(given *http.Client) *http.Client {
	local := transport.Client(transport.Config{DialTimeout: localTimeout}).Transport
	remote := local
	if given != nil && given.Transport != nil {
		remote = given.Transport
	}
	return &http.Client{Transport: &router{local, remote}, CheckRedirect: checkRedirect}
}

// A router sends requests without TLS through near, and all others through far.
type router struct{ local, remote http.RoundTripper }

func (c *router) RoundTrip(req *http.Request) (*http.Response, error) {
	roundTripper := c.local
	if req.URL.Scheme == "https" {
		roundTripper = c.remote
	}
	resp, err := roundTripper.RoundTrip(req)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, MaxAnswer)
	}
	return resp, err
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections]. The connections of
// the given client are closed by its owner.
func (c *router) CloseIdleConnections() {
	if closer, ok := c.local.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	if !transport.SameOrigin(req.URL, via[0].URL) {
		return errors.New("redirect to another host refused")
	}
	return nil
}

// IsConfidential reports whether requests to u are private: over TLS, or within the machine.
func IsConfidential(u *url.URL) bool {
	if u.Scheme == "https" {
		return u.Host != ""
	}
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}

// Strict returns client for libraries that print whole responses, and that follow redirects
// with their credentials: a response with a status other than 2xx, redirects included, is
// an error. failed returns the last such error, or nil.
func Strict(client *http.Client) (strict *http.Client, failed func() *StatusError) {
	c := *client
	s := &strictTransport{RoundTripper: client.Transport}
	c.Transport = s
	return &c, s.failure.Load
}

type strictTransport struct {
	http.RoundTripper
	failure atomic.Pointer[StatusError]
}

func (s *strictTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.RoundTripper.RoundTrip(req)
	if err != nil || resp.StatusCode/100 == 2 {
		return resp, err
	}
	defer resp.Body.Close()
	failure := newStatusError(req, resp)
	s.failure.Store(failure)
	return nil, failure
}

// WithContext returns client for requests that end with ctx at the latest. It is for libraries
// that continue when their caller has gone.
func WithContext(ctx context.Context, client *http.Client) *http.Client {
	c := *client
	c.Transport = &contextTransport{client.Transport, ctx}
	return &c
}

type contextTransport struct {
	http.RoundTripper
	ctx context.Context
}

func (u *contextTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if u.ctx.Err() != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, context.Cause(u.ctx)
	}
	ctx, cancel := context.WithCancel(req.Context())
	context.AfterFunc(u.ctx, cancel) // ctx ends with the login, which releases this
	return u.RoundTripper.RoundTrip(req.WithContext(ctx))
}

// Begin begins a login with the identity of a service account, or of the program itself if
// account is nil. at is the result of find, which recognises the hosts of a provider, for
// the URL of r. client is for the requests to token services; the caller closes its idle
// connections. Begin does not read the Secret of r: OwnTrust says whether it has TLS
// settings, and an object whose Secret holds credentials for a registry does not log in.
func Begin[Endpoint any](ctx context.Context, r source.LoginRequest, find func(*url.URL) (Endpoint, error)) (at Endpoint, account *source.Account, client *http.Client, err error) {
	if at, err = find(r.URL); err != nil {
		return at, nil, nil, fmt.Errorf("%w: %w: %s: %w", source.ErrInvalid, source.ErrProvider, cmp.Or(fields[r.URL.Scheme], "spec.url"), err)
	}
	switch where := "secret " + r.SecretName; {
	case r.ServiceAccount != "" && r.Account == nil:
		return at, nil, nil, fmt.Errorf("%w: %w: spec.serviceAccountName: only a cluster issues tokens of its service accounts; remove it to use the identity of this program",
			source.ErrInvalid, source.ErrProvider)
	case r.OwnTrust:
		if r.SecretName == "" {
			where = "spec.certSecretRef"
		}
		return at, nil, nil, fmt.Errorf("%w: %s: ca.crt, tls.crt and tls.key do not go with the identity of this program, which is shown only to servers that the system trusts: "+
			"remove them, and add the CA to those of the system", source.ErrProvider, where)
	}
	if r.Account != nil {
		if account, err = r.Account(ctx); err != nil {
			return at, nil, nil, err
		}
	}
	return at, account, Client(r.Client), nil
}

// AccountKey distinguishes the identities of service accounts in the keys of [Credentials]; it is
// "" for nil.
func AccountKey(a *source.Account) string {
	if a == nil {
		return ""
	}
	return fmt.Sprint(" ", a.Namespace, "/", a.Name, " ", a.UID, " ", a.Annotations)
}

// Annotation returns the value of an annotation of a service account. A value that is
// missing but required, or that does not match form, which words describe, is an error. The
// error does not name the account.
func Annotation(a *source.Account, key string, required bool, form *regexp.Regexp, words string) (string, error) {
	value := a.Annotations[key]
	if value == "" && !required || form.MatchString(value) {
		return value, nil
	}
	return "", fmt.Errorf("%w: annotation %s: want %s", source.ErrProvider, key, words)
}

// Advice returns what to check when a provider refuses the identity of a service account,
// or that of the program, whose variables have the given prefix.
func Advice(a *source.Account, prefix string) string {
	if a == nil {
		return "check the identity and the " + prefix + "_ variables that this program runs with"
	}
	return fmt.Sprintf("check the annotations of service account %s/%s, and that what they name trusts it and the issuer of this cluster", a.Namespace, a.Name)
}

// fields are the fields of the spec that URLs come from, by scheme.
var fields = map[string]string{"https": "spec.url", "oci": "spec.url", "s3": "spec.endpoint", "gs": "spec.endpoint", "azblob": "spec.endpoint"}

// Host returns the host of u in lower case. It returns "" unless u is reached over TLS at
// the default port, has only an ASCII host name as its host, and has no user information.
// Patterns of hosts are matched against the result only.
func Host(u *url.URL) string {
	host := strings.TrimSuffix(u.Host, ":443")
	if fields[u.Scheme] == "" || u.User != nil || strings.ContainsFunc(host, notInHostName) {
		return ""
	}
	return strings.ToLower(host)
}

// notInHostName reports whether a host name cannot contain r.
func notInHostName(r rune) bool {
	return r != '-' && r != '.' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

// NoIdentity returns err as an error that satisfies [source.ErrNoIdentity].
func NoIdentity(err error) error { return noIdentityError{err} }

type noIdentityError struct{ error }

func (n noIdentityError) Is(target error) bool { return target == source.ErrNoIdentity }
func (n noIdentityError) Unwrap() error        { return n.error }

// A StatusError is a response with a status other than 2xx.
type StatusError struct {
	Request string // method and URL, without its query
	Status  int
	Message string // explanation of the service, fit to be shown; may be empty
	header  http.Header
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s: status %d", e.Request, e.Status)
	if e.Message != "" {
		text += " (" + e.Message + ")"
	}
	return text
}

// RateLimited reports whether the service refused because it received too many requests.
func (e *StatusError) RateLimited() bool {
	return e.Status == http.StatusTooManyRequests || e.header.Get("Retry-After") != "" || e.header.Get("X-Ratelimit-Remaining") == "0"
}

// Header returns a header of the response, "" if it is missing.
func (e *StatusError) Header(name string) string { return e.header.Get(name) }

// Final reports whether a later attempt is useless, because the service refused the request
// or the identity behind it.
func (e *StatusError) Final() bool { return Final(e.Status) && !e.RateLimited() }

// Final reports whether a status, taken alone, makes a later attempt useless.
func Final(status int) bool {
	return status/100 == 4 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests
}

func newStatusError(req *http.Request, resp *http.Response) *StatusError {
	return &StatusError{nameOf(req), resp.StatusCode, failureMessage(resp, requestSecrets(req)), resp.Header}
}

// nameOf names a request in messages.
func nameOf(req *http.Request) string { return req.Method + " " + redact.URL(req.URL) }

// secretFields are the form fields that hold credentials (RFC 6749, RFC 7523, RFC 8693).
var secretFields = []string{"assertion", "client_assertion", "client_secret", "refresh_token", "subject_token", "access_token"}

// requestSecrets returns the credentials in req, from its header or its form.
func requestSecrets(req *http.Request) []string {
	_, secret, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	_, password, _ := req.BasicAuth()
	secrets := []string{secret, password}
	if req.GetBody == nil || !strings.HasPrefix(req.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		return secrets
	}
	body, err := req.GetBody()
	if err != nil {
		return secrets
	}
	defer body.Close()
	text, _ := io.ReadAll(body) // from memory: this program wrote it
	form, _ := url.ParseQuery(string(text))
	for _, field := range secretFields {
		secrets = append(secrets, form[field]...)
	}
	return secrets
}

// JSON sends req and decodes the response into out. The error is a *[StatusError] if the
// status is not 2xx. No error contains the credentials in req.
func JSON(client *http.Client, req *http.Request, out any) error {
	body, err := Text(client, req)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(body), out); err != nil { // the error may quote a value of any length
		return fmt.Errorf("%s: the answer is invalid: %s", nameOf(req), CleanText(err.Error(), requestSecrets(req)...))
	}
	return nil
}

// Text sends req and returns the body of the response. Errors are those of [JSON].
func Text(client *http.Client, req *http.Request) (string, error) {
	name, secrets := nameOf(req), requestSecrets(req)
	resp, err := client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // name has the URL
		}
		if strings.HasPrefix(err.Error(), "failed to parse Location header") { // the error would quote it
			err = errors.New("redirect without a valid address")
		}
		return "", fmt.Errorf("%s: %w", name, redact.Error(err, secrets...))
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return "", newStatusError(req, resp)
	}
	body, err := io.ReadAll(resp.Body) // Client limits its size
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return "", fmt.Errorf("%s: %s", name, CleanText(err.Error()))
	}
	if err != nil {
		return "", fmt.Errorf("%s: the answer breaks off: %w", name, redact.Error(err, secrets...))
	}
	return string(body), nil
}

// failureMessage returns the explanation in the body of a failure, from the fields that GitHub, OAuth
// 2.0 (RFC 6749 section 5.2), Google, registries and others use.
func failureMessage(resp *http.Response, secrets []string) string {
	var body struct {
		Message     string `json:"message"`
		Description string `json:"error_description"`
		Error       any    `json:"error"`
		Errors      any    `json:"errors"`
	}
	if json.NewDecoder(resp.Body).Decode(&body) != nil {
		return ""
	}
	return CleanText(cmp.Or(body.Message, body.Description, messageOf(body.Error), messageOf(body.Errors)), secrets...)
}

// messageOf returns the message in v: v itself, that of an object, or that of the first
// element of a list.
func messageOf(v any) string {
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
	}
	if object, ok := v.(map[string]any); ok {
		v = object["message"]
	}
	text, _ := v.(string)
	return text
}

// maxCleanText is the maximum length of a repeated explanation, in bytes.
const maxCleanText = 300

// CleanText returns the explanation of a service in a form that can be shown: in one line,
// short, and without secrets.
func CleanText(text string, secrets ...string) string {
	text = strings.ReplaceAll(text, "http: request body too large", fmt.Sprintf("the answer is larger than %d bytes", MaxAnswer))
	return redact.Excerpt(text, maxCleanText, secrets...)
}

// The variables that a runner sets for its jobs.
const (
	requestURL   = "ACTIONS_ID_TOKEN_REQUEST_URL"
	requestToken = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
)

// JobVariables are the variables that are set in a job that may request tokens.
var JobVariables = []string{requestURL, requestToken}

// JobToken returns an identity token (OpenID Connect) for audience, of the job of GitHub
// Actions or Forgejo Actions that the program runs in. The job must be allowed to request
// one: permission id-token: write on GitHub, enable-openid-connect on Forgejo. The request
// is sent over https only, or to loopback.
func JobToken(ctx context.Context, client *http.Client, env Environment, audience string) (string, error) {
	u, err := url.Parse(env.Value(requestURL))
	if err != nil || !IsConfidential(u) || u.User != nil {
		return "", errors.New(requestURL + " is not an https URL")
	}
	q := u.Query()
	q.Set("audience", audience)
	u.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", errors.New(requestURL + " is not an https URL")
	}
	req.Header.Set("Authorization", "Bearer "+env.Value(requestToken))
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "headgate")
	var answer struct {
		Value string `json:"value"`
	}
	if err := JSON(client, req, &answer); err != nil {
		return "", fmt.Errorf("identity token of the job: %w", err)
	}
	if answer.Value == "" {
		return "", errors.New("identity token of the job: the answer holds none")
	}
	return answer.Value, nil
}

// An Environment looks up environment variables; nil uses those of the process.
type Environment func(name string) (value string, ok bool)

// Value returns the value of a variable, "" when it is not set.
func (e Environment) Value(name string) string {
	if e == nil {
		return os.Getenv(name)
	}
	v, _ := e(name)
	return v
}

// Has reports whether all variables have a value.
func (e Environment) Has(names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return e.Value(name) == "" })
}

// File returns the content of a file that a variable names. More than [MaxAnswer] bytes are
// an error.
func File(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxAnswer+1))
	if err == nil && len(data) > MaxAnswer {
		err = fmt.Errorf("%s has more than %d bytes", name, MaxAnswer)
	}
	return data, err
}

const (
	// MaxCredentials is the maximum number of keys in [Credentials].
	MaxCredentials = 1000
	// MaxWait is how long a caller waits for the request of another caller.
	MaxWait = 10 * time.Second

	maxLife = time.Hour // of a cached credential
)

// Credentials caches the credentials that token services issue, by key, until shortly
// before they expire. The zero value is empty and safe for concurrent use.
//
//   - A credential is used for 80 % of its lifetime at issue, at most an hour, so that it
//     does not expire during the work it is for. One without a known expiry is not cached.
//   - For each key, one request runs at a time. A caller that waits for the request of
//     another gives up when its own context ends. It sends its own request if the other
//     failed, or got no response for [MaxWait]: the other may go through a proxy that
//     never answers.
//   - At most [MaxCredentials] keys are cached; a further key drops all of them.
//   - A credential that cannot be sent in a header is an error.
type Credentials struct {
	mu    sync.Mutex
	slots map[string]*slot
}

// A slot is the cache entry of one key.
type slot struct {
	sem   chan struct{}      // full while a caller requests a new credential
	held  *source.Credential // nil when there is none
	until time.Time
}

// Get returns the credential that is cached for key, if it is still valid at now, or else a
// new one from issue. Its Refused drops it from the cache, if it is still there, and calls
// Refused of the credential that issue returned. Errors are those of issue, and of ctx.
func (k *Credentials) Get(ctx context.Context, now func() time.Time, key string, issue func(context.Context) (source.Credential, error)) (source.Credential, error) {
	s, held := k.find(key, Time(now))
	if held == nil {
		impatient := time.NewTimer(MaxWait)
		defer impatient.Stop()
		select {
		case s.sem <- struct{}{}:
			defer func() { <-s.sem }()
		case <-impatient.C:
		case <-ctx.Done():
			return source.Credential{}, context.Cause(ctx)
		}
		_, held = k.find(key, Time(now))
	}
	if held == nil {
		c, err := issue(ctx)
		if err != nil {
			return source.Credential{}, err
		}
		if c.Password+c.Token == "" || strings.ContainsFunc(c.Username+c.Password+c.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return source.Credential{}, errors.New("the answer holds no token that can be sent")
		}
		held = &c
		k.mu.Lock()
		s.held, s.until = held, time.Time{}
		if now := Time(now); !c.Expires.IsZero() {
			s.until = now.Add(min(c.Expires.Sub(now)/5*4, maxLife))
		}
		k.mu.Unlock()
	}
	c := *held
	c.Refused = func() {
		k.mu.Lock()
		if s.held == held {
			s.held = nil
		}
		k.mu.Unlock()
		if held.Refused != nil {
			held.Refused()
		}
	}
	return c, nil
}

// Time returns the result of now, or the current time if now is nil.
func Time(now func() time.Time) time.Time {
	if now == nil {
		return time.Now()
	}
	return now()
}

// find returns the slot of a key, and its credential if that is valid at a time.
func (k *Credentials) find(key string, now time.Time) (*slot, *source.Credential) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.slots == nil || k.slots[key] == nil && len(k.slots) == MaxCredentials {
		k.slots = map[string]*slot{} // callers keep the slot that they have
	}
	s := k.slots[key]
	if s == nil {
		s = &slot{sem: make(chan struct{}, 1)}
		k.slots[key] = s
	}
	if !now.Before(s.until) {
		return s, nil
	}
	return s, s.held
}
