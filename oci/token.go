package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/headgate-io/headgate/internal/transport"
)

const (
	maxTokenAnswer = 256 << 10 // bytes of the answer of a token service, which may hold two tokens
	maxToken       = 64 << 10  // bytes of a token
	maxTokens      = 1 << 20   // bytes of all tokens for one repository: of 4 KiB and good for a minute, 4 hours
	maxScope       = 2 << 10   // bytes of what a challenge may ask for
)

// token gets a token from the service that c names.
func (g *gate) token(ctx context.Context, c challenge, scopes []string) (string, error) {
	if g.keys.Token != "" {
		return g.keys.Token, nil
	}
	realm, err := parseRealm(g.registry, c.params["realm"])
	if err == nil && !g.keys.none() {
		err = trusts(g.registry, realm, g.keys.chain)
	}
	if err != nil {
		return "", err
	}
	if scope := c.params["scope"]; len(scope) <= maxScope {
		scopes = auth.CleanScopes(append(slices.Clone(scopes), strings.Fields(scope)...))
	}
	req, err := g.tokenRequest(ctx, realm, c.params["service"], scopes)
	if err != nil {
		return "", err
	}
	client := *g.tokens
	if transport.SameOrigin(realm, g.registry) {
		client.Transport = g.client.Transport // the connection is there already
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("get a token: %w", bare(err))
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("get a token: %w", g.advise(refusal(resp, time.Now(), g.secrets(resp.Request)...), realm, true))
	}
	defer resp.Body.Close()
	token, err := readToken(resp)
	if err == nil {
		err = g.count(token)
	}
	if err != nil {
		return "", fmt.Errorf("get a token: %s: %w", realm.Host, err)
	}
	g.conceal(token)
	return token, nil
}

// count bounds the tokens that are issued: a registry may want one more for every request.
func (g *gate) count(token string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.issued += len(token); g.issued > maxTokens {
		return fmt.Errorf("it has issued more than %d bytes of tokens, and the registry wants one more", maxTokens)
	}
	return nil
}

// tokenRequest asks for a token by password, or by refresh token, which takes
// precedence (distribution: "Token Authentication Specification", "OAuth2").
func (g *gate) tokenRequest(ctx context.Context, realm *url.URL, service string, scopes []string) (*http.Request, error) {
	if g.keys.Refresh != "" {
		form := url.Values{
			"grant_type": {"refresh_token"}, "refresh_token": {g.keys.Refresh},
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
	for _, scope := range scopes {
		query.Add("scope", scope)
	}
	to := *realm
	to.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err == nil && !g.keys.none() {
		req.SetBasicAuth(g.keys.Username, g.keys.Password)
	}
	return req, err
}

func readToken(resp *http.Response) (string, error) {
	content, err := readAll(resp.Body, maxTokenAnswer)
	if err != nil {
		return "", err
	}
	var answer struct {
		Token  string `json:"token"`
		Access string `json:"access_token"`
	}
	if err := json.Unmarshal(content, &answer); err != nil {
		return "", errors.New("the answer is no JSON") // err could show a part of it
	}
	token := answer.Token
	if token == "" {
		token = answer.Access
	}
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
