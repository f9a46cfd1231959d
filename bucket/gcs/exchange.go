package gcs

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

const (
	scope     = "https://www.googleapis.com/auth/devstorage.read_only"
	grantType = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	skew      = 30 * time.Second // how far the clocks may be apart
	life      = time.Hour        // of a proof, the most that Google accepts
	maxToken  = 64 << 10         // bytes of a token service's answer

	exchanging = "exchange the key of the service account for a token"
)

// An exchange gets tokens for a key.
type exchange struct {
	key    *key
	client *http.Client
	vault  *bucket.Vault
}

func newExchange(a *bucket.Access, k *key, endpoint *url.URL) *exchange {
	way := a.Way
	if way.TLS != nil && !transport.SameOrigin(k.tokenURI, endpoint) { // the client certificate is for the endpoint
		way.TLS = way.TLS.Clone()
		way.TLS.Certificates, way.TLS.GetClientCertificate = nil, nil
	}
	return &exchange{key: k, client: a.Client(k.tokenURI, way), vault: a.Vault}
}

// issue asks for a token (RFC 7523 section 2.1). Errors are
// *[source.StepError] with the reason AuthenticationFailed.
func (e *exchange) issue(ctx context.Context) (source.Credential, error) {
	c, err := e.ask(ctx)
	if err != nil {
		return source.Credential{}, &source.StepError{Step: source.StepResolve, Reason: "AuthenticationFailed", Err: err}
	}
	e.vault.Conceal(c.Token)
	return c, nil
}

func (e *exchange) ask(ctx context.Context) (source.Credential, error) {
	proof, err := e.key.sign(time.Now())
	if err != nil {
		return source.Credential{}, err
	}
	e.vault.Conceal(proof)
	form := url.Values{"grant_type": {grantType}, "assertion": {proof}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.key.tokenURI.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return source.Credential{}, errors.New(exchanging + ": token_uri is no URL")
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("User-Agent", userAgent)
	resp, err := e.client.Do(req)
	if err != nil {
		return source.Credential{}, fmt.Errorf("%s: %w", exchanging, cause(err, e.vault))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxToken))
	if err != nil {
		return source.Credential{}, fmt.Errorf("%s: %w", exchanging, cause(err, e.vault))
	}
	if resp.StatusCode/100 != 2 {
		return source.Credential{}, e.refusal(resp, body)
	}
	return decodeToken(body)
}

// decodeToken reads the answer of a token service (RFC 6749 section 5.1).
func decodeToken(body []byte) (source.Credential, error) {
	var answer struct {
		Token   string `json:"access_token"`
		Seconds int64  `json:"expires_in"`
	}
	if json.Unmarshal(body, &answer) != nil { // the error would show values
		return source.Credential{}, errors.New(exchanging + ": the answer is not what it should be")
	}
	if answer.Token == "" || strings.ContainsFunc(answer.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return source.Credential{}, errors.New(exchanging + ": the answer holds no token that can be sent")
	}
	c := source.Credential{Token: answer.Token}
	if answer.Seconds > 0 {
		c.Expires = time.Now().Add(time.Duration(min(answer.Seconds, int64(life/time.Second))) * time.Second)
	}
	return c, nil
}

// A refusal is an answer of a token service. What its status means for an
// object of the bucket it does not mean here.
type refusal struct{ *bucket.StatusError }

func (r refusal) Is(target error) bool { return target == fs.ErrPermission && r.final() }

// final reports whether asking again is of no use.
func (r refusal) final() bool {
	return r.Status/100 == 4 && r.Status != http.StatusTooManyRequests && r.Status != http.StatusRequestTimeout
}

// refusal returns the answer of a token service that refuses (RFC 6749 section 5.2).
func (e *exchange) refusal(resp *http.Response, body []byte) error {
	var answer struct {
		Code        any    `json:"error"`
		Description string `json:"error_description"`
	}
	json.Unmarshal(body, &answer) // what cannot be decoded is not shown
	code, _ := answer.Code.(string)
	after, _ := transport.RetryAfter(resp.Header, time.Now())
	r := refusal{&bucket.StatusError{Doing: exchanging, Status: resp.StatusCode, Code: word(code, e.vault), Message: said(answer.Description, e.vault), After: after}}
	if r.final() {
		r.Hint = "check that the key was not deleted, and the clock of this machine"
	}
	return r
}

// sign returns the proof that its bearer is the service account: a JSON web
// token (RFC 7519) with an RS256 signature (RFC 7518 section 3.3).
func (k *key) sign(now time.Time) (string, error) {
	header, err := json.Marshal(struct {
		Algorithm string `json:"alg"`
		Type      string `json:"typ"`
		Key       string `json:"kid,omitempty"`
	}{"RS256", "JWT", k.id})
	if err != nil {
		return "", err
	}
	claims, err := json.Marshal(struct {
		Issuer   string `json:"iss"`
		Scope    string `json:"scope"`
		Audience string `json:"aud"`
		Issued   int64  `json:"iat"`
		Expires  int64  `json:"exp"`
	}{k.email, scope, k.audience, now.Add(-skew).Unix(), now.Add(life - skew).Unix()})
	if err != nil {
		return "", err
	}
	b64 := base64.RawURLEncoding
	text := b64.EncodeToString(header) + "." + b64.EncodeToString(claims)
	digest := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, k.private, crypto.SHA256, digest[:])
	if err != nil {
		return "", fmt.Errorf("sign as the service account: %w", err)
	}
	return text + "." + b64.EncodeToString(signature), nil
}
