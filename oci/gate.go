package oci

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// A gate sends requests to a registry and shows it, and nobody else, who asks:
// by name and password, or by a token that the registry's token service issues.
type gate struct {
	registry *url.URL
	client   *http.Client // for the registry and whom it redirects to
	tokens   *http.Client // for the token service
	keys     credentials
	conceal  func(...string)

	mu     sync.Mutex
	known  map[string]string // values of Authorization by scopes; basic authentication under ""
	issued int               // bytes of tokens, all of which are remembered so that none shows
}

// credentials are what is known for a registry.
type credentials struct {
	source.Credential
	chain  keychain // those for other hosts, too
	origin string   // where they come from or were looked for, for messages
}

// none reports whether there are no credentials.
func (c *credentials) none() bool {
	return c.Username == "" && c.Password == "" && c.Token == "" && c.Refresh == ""
}

// newGate returns the gate to the registry at u, which the server of from names, or
// the user when that is nil. c says how servers are reached; its fields Origin,
// Auth and Fence are the gate's.
func newGate(u *url.URL, c transport.Config, keys credentials, from *transport.Fence, conceal func(...string)) *gate {
	g := &gate{registry: u, keys: keys, conceal: conceal, known: map[string]string{}}
	c.Origin, c.Auth, c.Fence = u, transport.Auth{}, transport.NewFence(u, from)
	c.Fence.Opens, c.Fence.Hint = keys.chain.names, ", or add an entry for %s to the dockerconfigjson of the Secret"
	g.client = retrying(transport.Client(c))
	g.tokens = retrying(transport.Client(c))
	follow := g.tokens.CheckRedirect
	g.tokens.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if !transport.SameOrigin(req.URL, via[0].URL) {
			return fmt.Errorf("the token service redirects to %s, which may not see the request", req.URL.Host)
		}
		return follow(req, via)
	}
	return g
}

func retrying(c *http.Client) *http.Client {
	c.Transport = &transport.Patient{Next: c.Transport}
	return c
}

// Do sends a request to the registry, a second time when that asks who we are.
// Others, to which a list may lead, are not told.
func (g *gate) Do(req *http.Request) (*http.Response, error) {
	if s, ok := req.Body.(section); ok {
		req = with(req, "")
		req.GetBody = s.again
	}
	if !transport.SameOrigin(req.URL, g.registry) {
		req = with(req, "")
		req.Header.Del("Authorization")
		return g.client.Do(req)
	}
	ctx := req.Context()
	scopes := auth.GetAllScopesForHost(ctx, g.registry.Host)
	sent := cmp.Or(req.Header.Get("Authorization"), g.recall(scopes)) // an upload goes on with what it began with
	resp, err := g.client.Do(with(req, sent))
	if err != nil || resp.StatusCode != http.StatusUnauthorized || !transport.SameOrigin(resp.Request.URL, g.registry) {
		return resp, err
	}
	header, err := g.answer(ctx, resp.Header, scopes)
	if err != nil {
		resp.Body.Close()
		return nil, err
	}
	if header == "" || header == sent || transport.HasBody(req) && req.GetBody == nil {
		return resp, nil
	}
	transport.Finish(resp)
	again, err := transport.Afresh(with(req, header))
	if err != nil {
		return nil, err
	}
	return g.client.Do(again)
}

func with(req *http.Request, header string) *http.Request {
	out := req.Clone(req.Context())
	if header != "" {
		out.Header.Set("Authorization", header)
	}
	return out
}

// answer returns what a challenge asks for as a value of Authorization, "" when
// there is nothing to show.
func (g *gate) answer(ctx context.Context, header http.Header, scopes []string) (string, error) {
	all := challenges(header)
	for _, c := range all {
		if c.scheme == "bearer" {
			token, err := g.token(ctx, c, scopes)
			if err != nil {
				return "", err
			}
			return g.remember(strings.Join(scopes, " "), "Bearer "+token), nil
		}
	}
	for _, c := range all {
		if c.scheme == "basic" && g.keys.Username != "" && g.keys.Password != "" {
			pair := base64.StdEncoding.EncodeToString([]byte(g.keys.Username + ":" + g.keys.Password))
			g.conceal(pair)
			return g.remember("", "Basic "+pair), nil
		}
	}
	return "", nil
}

// recall returns the header that was right for the scopes before.
func (g *gate) recall(scopes []string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if basic, ok := g.known[""]; ok {
		return basic
	}
	return g.known[strings.Join(scopes, " ")]
}

func (g *gate) remember(scopes, header string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known[scopes] = header
	return header
}

// advise completes what the server at u refused. When that is the registry or
// its token service, it tells who issued the credentials that they were not taken.
func (g *gate) advise(e *StatusError, u *url.URL, service bool) error {
	if !errors.Is(e, fs.ErrPermission) || e.Hint != "" || !service && !transport.SameOrigin(u, g.registry) {
		return e
	}
	if g.keys.none() {
		e.Hint = "no credentials were sent: " + g.keys.origin
		return e
	}
	if g.keys.Refused != nil {
		g.keys.Refused()
	}
	e.Hint = "check the credentials of " + g.keys.origin
	return e
}

// secrets are what the answer to req may repeat: the credentials, what was
// shown, and what the link to a storage host holds.
func (g *gate) secrets(req *http.Request) []string {
	_, shown, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	all := []string{g.keys.Password, g.keys.Token, g.keys.Refresh, shown}
	if req.Response != nil { // a redirect led there
		for _, values := range req.URL.Query() {
			all = append(all, values...)
		}
	}
	return all
}

func (g *gate) close() {
	g.client.CloseIdleConnections()
	g.tokens.CloseIdleConnections()
}
