package oci

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/publicsuffix"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
)

// authTransport adds credentials to requests to the registry's own origin only:
// user name and password, or a token that the registry's token service issues.
type authTransport struct {
	registry *url.URL
	client   *http.Client // for the registry and hosts that it redirects to
	tokens   *http.Client // for the token service
	keys     credentials
	conceal  func(...string)

	mu             sync.Mutex
	authorizations map[string]string // values of Authorization by scopes; basic authentication under ""
	issued         int               // bytes of all tokens; they are kept in memory to redact them
}

// newAuthTransport returns the transport for the registry at u. from is the guard of the
// server that named u, nil if the user did. c has the network settings; its fields Origin,
// Auth and Guard are set here.
func newAuthTransport(u *url.URL, c transport.Config, keys credentials, from *transport.NetworkGuard, conceal func(...string)) *authTransport {
	t := &authTransport{registry: u, keys: keys, conceal: conceal, authorizations: map[string]string{}}
	c.Origin, c.Auth, c.Guard = u, transport.Auth{}, transport.NewNetworkGuard(u, from)
	c.Guard.Opens, c.Guard.Hint = keys.chain.hasHost, ", or add an entry for %s to the dockerconfigjson of the Secret"
	t.client = transport.Client(c)
	t.client.Transport = &transport.RetryTransport{Next: t.client.Transport}
	t.tokens = &http.Client{Transport: t.client.Transport, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if !transport.SameOrigin(req.URL, via[0].URL) {
			return fmt.Errorf("the token service redirects to %s, which may not see the request", req.URL.Host)
		}
		return t.client.CheckRedirect(req, via)
	}}
	return t
}

// Do sends a request, and retries it with credentials after a challenge of the registry.
// It sends no credentials to other hosts, to which a list may lead.
func (t *authTransport) Do(req *http.Request) (*http.Response, error) {
	if s, ok := req.Body.(uploadBody); ok {
		req.GetBody = s.reopen
	}
	if !transport.SameOrigin(req.URL, t.registry) {
		return t.client.Do(withAuthorization(req, ""))
	}
	scopes := auth.GetAllScopesForHost(req.Context(), t.registry.Host)
	t.mu.Lock()
	sent := cmp.Or(req.Header.Get("Authorization"), t.authorizations[""], t.authorizations[strings.Join(scopes, " ")]) // an upload keeps the header that it began with
	t.mu.Unlock()
	resp, err := t.client.Do(withAuthorization(req, sent))
	if err != nil || resp.StatusCode != http.StatusUnauthorized || !transport.SameOrigin(resp.Request.URL, t.registry) {
		return resp, err
	}
	header, err := t.authorization(req.Context(), resp.Header, scopes)
	if err != nil {
		resp.Body.Close()
		return nil, err
	}
	if header == "" || header == sent || transport.HasBody(req) && req.GetBody == nil {
		return resp, nil
	}
	transport.DrainAndClose(resp)
	again, err := transport.RewindBody(withAuthorization(req, header))
	if err != nil {
		return nil, err
	}
	return t.client.Do(again)
}

// withAuthorization returns a copy of req with the header Authorization, or without it if header is "".
func withAuthorization(req *http.Request, header string) *http.Request {
	out := req.Clone(req.Context())
	out.Header.Del("Authorization")
	if header != "" {
		out.Header.Set("Authorization", header)
	}
	return out
}

// authorization returns the value of Authorization that answers a challenge, or "" if there are
// no credentials for it. It prefers a token to a password.
func (t *authTransport) authorization(ctx context.Context, header http.Header, scopes []string) (value string, err error) {
	key, challenges := "", parseChallenges(header)
	switch {
	case challenges["bearer"] != nil:
		token, err := t.token(ctx, challenges["bearer"], scopes)
		if err != nil {
			return "", err
		}
		key, value = strings.Join(scopes, " "), "Bearer "+token
	case challenges["basic"] != nil && t.keys.Username != "" && t.keys.Password != "":
		value = transport.Auth{Username: t.keys.Username, Password: t.keys.Password}.Header()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.authorizations[key] = value
	return value, nil
}

// refusalError closes resp, which refuses a request, and returns its error. It redacts secrets
// that resp may repeat: the credentials, the header of the request, and the query of a link
// to a storage host. If the registry or its token service refuses the credentials,
// refused tells their issuer.
func (t *authTransport) refusalError(resp *http.Response, service bool) error {
	defer resp.Body.Close()
	at := resp.Request.URL
	_, shown, _ := strings.Cut(resp.Request.Header.Get("Authorization"), " ")
	secrets := []string{t.keys.Password, t.keys.Token, t.keys.Refresh, shown}
	if resp.Request.Response != nil { // the URL of a redirect contains secrets
		secrets = slices.Concat(secrets, slices.Concat(slices.Collect(maps.Values(at.Query()))...))
	}
	e := &StatusError{Method: resp.Request.Method, URL: redact.URL(at), Status: resp.StatusCode}
	e.After, _ = transport.RetryAfter(resp.Header, time.Now())
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	var body struct {
		Errors []struct{ Code, Message string }
	}
	if json.Unmarshal(text, &body) == nil && len(body.Errors) > 0 {
		e.Code, e.Message = plain(body.Errors[0].Code, secrets...), plain(body.Errors[0].Message, secrets...)
	}
	refused := errors.Is(e, fs.ErrPermission) && (service || transport.SameOrigin(at, t.registry))
	switch {
	case e.Status == http.StatusBadRequest && at.Scheme == "http" && strings.Contains(string(text), "HTTPS"):
		e.Hint = hintTLS
	case refused && t.keys.empty():
		e.Hint = "no credentials were sent: " + t.keys.origin
	case refused:
		if t.keys.Refused != nil {
			t.keys.Refused()
		}
		e.Hint = "check the credentials of " + t.keys.origin
	}
	return e
}

const (
	maxTokenAnswer = 256 << 10 // bytes of a token service's response, which may contain two tokens
	maxToken       = 64 << 10  // bytes of a token
	maxTokens      = 1 << 20   // bytes of all tokens for one repository; 4 hours of tokens with 4 KiB and one minute each
	maxScope       = 2 << 10   // bytes of the scope in a challenge; a longer scope is ignored
)

// token gets a token for the parameters of a challenge.
func (t *authTransport) token(ctx context.Context, params map[string]string, scopes []string) (string, error) {
	if t.keys.Token != "" {
		return t.keys.Token, nil
	}
	realm, err := parseRealm(t.registry, params["realm"])
	if err == nil && !t.keys.empty() {
		err = checkRealmTrust(t.registry, realm, t.keys.chain)
	}
	if err != nil {
		return "", err
	}
	if scope := params["scope"]; len(scope) <= maxScope {
		scopes = auth.CleanScopes(append(slices.Clone(scopes), strings.Fields(scope)...))
	}
	req, err := t.tokenRequest(ctx, realm, params["service"], scopes)
	if err != nil {
		return "", err
	}
	resp, err := t.tokens.Do(req)
	if err != nil {
		return "", fmt.Errorf("get a token: %w", bare(err))
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("get a token: %w", t.refusalError(resp, true))
	}
	defer resp.Body.Close()
	token, err := readToken(resp.Body)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.issued += len(token); err == nil && t.issued > maxTokens { // a registry may require a new token for every request
		err = fmt.Errorf("it has issued more than %d bytes of tokens, and the registry wants one more", maxTokens)
	}
	if err != nil {
		return "", fmt.Errorf("get a token: %s: %w", realm.Host, err)
	}
	t.conceal(token)
	return token, nil
}

// tokenRequest returns the request for a token, with the refresh token or else the
// password (distribution: "Token Authentication Specification", "OAuth2").
func (t *authTransport) tokenRequest(ctx context.Context, realm *url.URL, service string, scopes []string) (*http.Request, error) {
	if t.keys.Refresh != "" {
		form := url.Values{
			"grant_type": {"refresh_token"}, "refresh_token": {t.keys.Refresh},
			"service": {service}, "client_id": {"headgate"}, "scope": {strings.Join(scopes, " ")},
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, realm.String(), strings.NewReader(form.Encode()))
		if err == nil {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		return req, err
	}
	query := realm.Query()
	if service != "" {
		query.Set("service", service)
	}
	query["scope"] = append(query["scope"], scopes...)
	realm.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, realm.String(), nil)
	if err == nil && !t.keys.empty() {
		req.SetBasicAuth(t.keys.Username, t.keys.Password)
	}
	return req, err
}

func readToken(body io.Reader) (string, error) {
	content, err := readAll(body, maxTokenAnswer)
	if err != nil {
		return "", err
	}
	var answer struct {
		Token  string `json:"token"`
		Access string `json:"access_token"`
	}
	if err := json.Unmarshal(content, &answer); err != nil {
		return "", errors.New("the answer is no JSON") // err could contain a part of the token
	}
	token := cmp.Or(answer.Token, answer.Access)
	switch {
	case token == "":
		return "", errors.New("the answer holds no token")
	case len(token) > maxToken:
		return "", fmt.Errorf("the token has %d bytes, at most %d are allowed", len(token), maxToken)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", errors.New("the token has characters that no header can have")
	}
	return token, nil
}

// parseChallenges returns the challenges of a registry (RFC 9110 section 11.6.1): for each
// scheme, in lower case, the parameters of its first challenge. In the header both
// challenges and their parameters are items of lists. Invalid items are left out.
func parseChallenges(header http.Header) map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, rest := range header.Values("Www-Authenticate") {
		var params map[string]string // of the last challenge
		for {
			name, after := parseToken(strings.TrimLeft(rest, " \t,"))
			if name = strings.ToLower(name); name == "" {
				break
			}
			value, tail, assigned := parseParameter(after)
			if assigned && params == nil {
				break // a parameter without a challenge
			}
			if rest = after; assigned {
				params[name], rest = value, tail
			} else if params = map[string]string{}; all[name] == nil {
				all[name] = params
			}
		}
	}
	return all
}

// parseParameter parses = and a value, which may be quoted. ok is false if s does not begin with =.
func parseParameter(s string) (value, rest string, ok bool) {
	s, ok = strings.CutPrefix(strings.TrimLeft(s, " \t"), "=")
	if !ok {
		return "", s, false
	}
	s = strings.TrimLeft(s, " \t")
	quoted, ok := strings.CutPrefix(s, `"`)
	if !ok {
		value, rest = parseToken(s)
		return value, rest, true
	}
	var b strings.Builder
	for i := 0; i < len(quoted); i++ {
		switch c := quoted[i]; {
		case c == '"':
			return b.String(), quoted[i+1:], true
		case c == '\\' && i+1 < len(quoted):
			i++
			b.WriteByte(quoted[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", true // the closing quote is missing
}

// parseToken parses a token (RFC 9110 section 5.6.2), and returns it and the rest of s.
func parseToken(s string) (name, rest string) {
	end := strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
	if end < 0 {
		return s, ""
	}
	return s[:end], s[end:]
}

// The realm of a challenge is the URL of the server that issues tokens. It decides where a
// password is sent, so it is checked before anything is sent to it.

// A RealmError says that a registry names a token service that must not be used.
type RealmError struct {
	Registry string // HOST[:PORT]
	Realm    string // HOST[:PORT] of the token service, or the beginning of an invalid URL
	Problem  string // what is wrong, and what the user can do
}

func (e *RealmError) Error() string {
	return fmt.Sprintf("registry %s names %s as its token service: %s", e.Registry, e.Realm, e.Problem)
}

// Is makes e match [fs.ErrPermission].
func (e *RealmError) Is(target error) bool { return target == fs.ErrPermission }

// parseRealm parses the realm in a challenge of the registry at from. Errors are *[RealmError].
func parseRealm(from *url.URL, realm string) (*url.URL, error) {
	refuse := func(name, why string) (*url.URL, error) {
		return nil, &RealmError{Registry: from.Host, Realm: name, Problem: why}
	}
	u, err := url.Parse(realm)
	switch {
	case realm == "":
		return refuse("nothing", "the registry does not work")
	case len(realm) > maxAddress || err != nil || u.Hostname() == "" || u.Opaque != "":
		return refuse(fmt.Sprintf("%.100q", plain(realm)), "that is no URL")
	case u.User != nil:
		return refuse(u.Host, "its URL holds user information")
	case u.Scheme == "https":
	case u.Scheme != "http":
		return refuse(u.Host, fmt.Sprintf("its scheme is %.20q instead of https", u.Scheme))
	case from.Scheme == "https":
		return refuse(u.Host, "its URL leads from https to http")
	case !sameHost(from, u):
		return refuse(u.Host, "without TLS that must be on the host of the registry")
	}
	u.Fragment = ""
	return u, nil
}

// checkRealmTrust returns an error if credentials for the registry at from must not be sent to
// realm. They may be sent to the same host, to the same registrable domain, and to
// a host with an entry in chain.
func checkRealmTrust(from, realm *url.URL, chain keychain) error {
	if sameHost(from, realm) || domain(from) != "" && domain(from) == domain(realm) || chain.hasHostPort(realm.Host) {
		return nil
	}
	return &RealmError{Registry: from.Host, Realm: realm.Host, Problem: fmt.Sprintf(
		"credentials for one are not shown to the other; if that is right, add an entry for %s to the dockerconfigjson of the Secret", realm.Host)}
}

func sameHost(a, b *url.URL) bool { return strings.EqualFold(a.Hostname(), b.Hostname()) }

// domain returns the registrable domain of a host, or "" for an IP address.
func domain(u *url.URL) string {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}
	name, _ := publicsuffix.EffectiveTLDPlusOne(host)
	return name
}
