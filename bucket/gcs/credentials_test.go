package gcs_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/gcs"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// changed returns the key of the account of s with other values; nil removes one.
func changed(t *testing.T, s *testenv.GCS, nameValue ...any) []byte {
	t.Helper()
	file := map[string]any{}
	if err := json.Unmarshal(s.Key(), &file); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(nameValue); i += 2 {
		file[nameValue[i].(string)] = nameValue[i+1]
		if nameValue[i+1] == nil {
			delete(file, nameValue[i].(string))
		}
	}
	text, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestBadKeys(t *testing.T) {
	t.Parallel()
	s := testenv.StartGCS(t, testenv.GCSConfig{Account: account})
	s.Bucket("app")
	elliptic, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(elliptic)
	if err != nil {
		t.Fatal(err)
	}
	curve := string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	with := func(nameValue ...any) []byte { return changed(t, s, nameValue...) }
	for name, c := range map[string]struct {
		key []byte
		say string
	}{
		"none":                    {[]byte{}, "is missing"},
		"no JSON":                 {[]byte("canary"), "is not JSON"},
		"a list":                  {[]byte("[]"), "is not JSON"},
		"null":                    {[]byte("null"), `has the type ""`},
		"long":                    {bytes.Repeat([]byte(" "), 1<<16+1), "has 65537 bytes, at most 16384 are allowed"},
		"external account":        {with("type", "external_account", "credential_source", map[string]any{"executable": map[string]string{"command": "canary"}}), `has the type "external_account": only service_account`},
		"developer's login":       {with("type", "authorized_user"), "only service_account"},
		"impersonation":           {with("type", "impersonated_service_account"), "only service_account"},
		"endless type":            {with("type", strings.Repeat("x", 10_000)), "only service_account"},
		"type spelled twice":      {[]byte(`{"type":"service_account","TYPE":"external_account"}`), "only service_account"},
		"nobody's":                {with("client_email", nil), "has no client_email"},
		"without a private key":   {with("private_key", nil), "has no private_key"},
		"private key of text":     {with("private_key", "canary"), "has no private_key in PEM form"},
		"private key of nothing":  {with("private_key", "-----BEGIN PRIVATE KEY-----\nY2FuYXJ5\n-----END PRIVATE KEY-----\n"), "is not an RSA key"},
		"private key of a curve":  {with("private_key", curve), "is not an RSA key"},
		"private key too short":   {with("private_key", shortKey), "exchange the key of the service account for a token"},
		"tokens without TLS":      {with("token_uri", "http://oauth2.googleapis.com/token"), "is not an https URL: http is for loopback"},
		"tokens of a file":        {with("token_uri", "file:///canary"), "is not an https URL"},
		"tokens of a user":        {with("token_uri", "https://canary:canary@oauth2.googleapis.com"), "is not an https URL"},
		"tokens of nowhere":       {with("token_uri", "https:///token"), "is not an https URL"},
		"tokens at no URL":        {with("token_uri", "https://%zz/canary"), "is not an https URL"},
		"another account":         {with("client_email", "other@example.com"), "account not found"},
		"another key id":          {with("private_key_id", "other"), "Invalid JWT"},
		"another token audience":  {with("token_uri", strings.Replace(s.TokenURL(), "127.0.0.1", "localhost", 1)), "Failed audience check"},
		"tokens at another place": {with("token_uri", s.Base+"/storage/v1/b/app/o"), "401 Unauthorized"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := gcs.Connect(t.Context(), access(s, c.key))
			step, ok := errors.AsType[*source.StepError](err)
			if !ok || step.Reason != "AuthenticationFailed" {
				t.Fatalf("%v", err)
			}
			if judge(t, err, c.say); strings.Contains(err.Error(), "PRIVATE") || strings.Contains(err.Error(), "eyJ") {
				t.Errorf("%v: shows the key", err)
			}
		})
	}
	a := access(s, s.Key())
	a.Spec.Endpoint, a.Spec.Insecure = "127.0.0.1:1", false
	if _, err := gcs.Connect(t.Context(), a); err == nil || !strings.Contains(err.Error(), "http is for loopback, with spec.insecure") {
		t.Errorf("http on loopback without spec.insecure: %v", err)
	}
	for name, key := range map[string][]byte{"as it is": s.Key(), "without an id": with("private_key_id", nil)} {
		_, err := gcs.Connect(t.Context(), access(s, key))
		if good := name == "as it is"; (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// shortKey is one that no package signs with.
const shortKey = `-----BEGIN RSA PRIVATE KEY-----
MIIBOQIBAAJBAOSWFRs1LsGss80h+lNEiO6tnEQKH2piRxwRYaDSlkj19C8POpcC
mpJjo1oncXbZt+vT9HOb8/uVsjzIPG5bpskCAwEAAQJAYVG8fq7vzyk2C7nRl63w
Fp33j8g3g9V/rOWBiTTfIwQ12hBZ9PrHkxU7kUfjTZTdS0U4ECXsL8ZqPFwD1Tko
YQIhAPy05SJqj05FnE/KQPUSSax4ZiuDMsr4ZkSb1Vvl6jWFAiEA55C28shYPsJI
wstzbSrQWm2D9S/F8+kWDNgR1Of2vXUCIBCFz1mBuB75BDBfXAHqETEaqit8J40H
0r/3pGqezMJ1AiBlW5SYpFTr84KBsSfu6sSUMEeINMcCwk2ihZkYhggcWQIgeaRK
JxXJ2NJ/ifNSItYkHqX3CkexecbIS+D6dSygH50=
-----END RSA PRIVATE KEY-----
`

func TestHostileTokenService(t *testing.T) {
	t.Parallel()
	json := func(body string) *testenv.Defect { return answer(200, "application/json", body) }
	for name, c := range map[string]struct {
		defect *testenv.Defect
		say    string
	}{
		"no JSON":                  {json(`<html>canary</html>`), "the answer is not what it should be"},
		"no token":                 {json(`{"expires_in":3600}`), "no token that can be sent"},
		"a token of two lines":     {json(`{"access_token":"can\r\nary"}`), "no token that can be sent"},
		"a token that is none":     {json(`{"access_token":{"canary":1}}`), "the answer is not what it should be"},
		"endless":                  {json(`{"access_token":"` + strings.Repeat("canary", 1<<20)), "the answer is not what it should be"},
		"cut":                      {&testenv.Defect{Do: testenv.Cut, After: 10}, "exchange the key"},
		"redirect":                 {&testenv.Defect{Do: testenv.Answer, Status: 307, Header: http.Header{"Location": {"http://127.0.0.1:1/canary"}}}, "307 Temporary Redirect"},
		"refusal of HTML":          {answer(400, "text/html", "<html>canary</html>"), "400 Bad Request: check that the key"},
		"refusal of no form":       {json(`{"error":{"canary":1}}`), "no token that can be sent"},
		"refusal with the proof":   {&testenv.Defect{Do: testenv.Leak}, "invalid_grant"},
		"status line of the proof": {&testenv.Defect{Do: testenv.Serve, Handler: sendBack("%s\r\n\r\n")}, "exchange the key"},
		"header of the proof":      {&testenv.Defect{Do: testenv.Serve, Handler: sendBack("HTTP/1.1 200 OK\r\n%s\r\n\r\n")}, "exchange the key"},
		"trailer of the proof":     {&testenv.Defect{Do: testenv.Serve, Handler: sendBack("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n%s\r\n\r\n")}, "exchange the key"},
		"code of the proof":        {&testenv.Defect{Do: testenv.Serve, Handler: sendBack("HTTP/1.1 403 Forbidden\r\n\r\n{\"error\":\"%[1]s\",\"error_description\":\"%[1]s\"}")}, "403 Forbidden"},
		"endless refusal":          {answer(403, "application/json", `{"error":"`+strings.Repeat("canary", 100)+`","error_description":"`+strings.Repeat("canary", 2000)+`"}`), "403 Forbidden: "},
		"busy":                     {&testenv.Defect{Do: testenv.Answer, Status: 503, Header: http.Header{"Retry-After": {"120"}}}, "503 Service Unavailable: try again in 2m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.defect.Phase = testenv.GetToken
			s := testenv.StartGCS(t, testenv.GCSConfig{Account: account, Defect: c.defect})
			a := access(s, s.Key())
			_, err := gcs.Connect(t.Context(), a)
			judge(t, err, c.say)
			for _, secret := range a.Vault.Values() {
				if err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("%v: shows %s", err, secret)
				}
			}
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) != strings.Contains(c.say, "40") && name != "refusal with the proof" {
				t.Errorf("%v: satisfies what it should not", err)
			}
		})
	}
}

// sendBack answers with a text that has the proof in it, as it is.
func sendBack(text string) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		proof := r.PostFormValue("assertion")
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		fmt.Fprintf(conn, text, proof)
		conn.Close()
	}
}

// A token that the store does not take any more is exchanged for another, once.
func TestRefusedToken(t *testing.T) {
	t.Parallel()
	s := testenv.StartGCS(t, testenv.GCSConfig{Account: account})
	b := s.Bucket("app")
	b.Put("a", "one")
	a := access(s, s.Key())
	d, err := gcs.Connect(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	o := listed(t, d)["a"]
	if n := s.Count(testenv.GetToken); n != 1 {
		t.Errorf("%d tokens were asked for", n)
	}
	s.Expire()
	if text, err := read(t.Context(), d, o, 0); text != "one" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if n := s.Count(testenv.GetToken); n != 2 {
		t.Errorf("%d tokens were asked for", n)
	}
	before := s.Count(testenv.GetObject)
	s.Break(of(testenv.GetObject, testenv.GCSFailure(401, "authError", "Invalid Credentials")))
	_, err = read(t.Context(), d, o, 0)
	if judge(t, err, "read a: 401 Unauthorized: "); !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
	if n := s.Count(testenv.GetObject) - before; n != 2 {
		t.Errorf("%d requests", n)
	}
	s.Expire()
	s.Break(&testenv.Defect{Phase: testenv.GetToken, Do: testenv.Answer, Status: 404})
	_, err = read(t.Context(), d, o, 0)
	if judge(t, err, "exchange the key"); errors.Is(err, fs.ErrNotExist) || errors.Is(err, bucket.ErrChanged) {
		t.Errorf("%v: is not about the object", err)
	}
	for _, token := range s.Tokens() {
		if !strings.Contains(strings.Join(a.Vault.Values(), " "), token) {
			t.Errorf("%s is not kept out of texts", token)
		}
	}
}

// resolve resolves a Bucket that follows s at an endpoint, with a login.
func resolve(t *testing.T, s *testenv.GCS, endpoint string, login source.LoginFunc, change func(*source.BucketSpec)) error {
	t.Helper()
	b := following(s)
	b.Spec.Timeout = source.Duration(time.Minute)
	b.Spec.Endpoint, b.Spec.Insecure = endpoint, false
	secrets := sourcetest.Secrets{}
	if endpoint == googleHost {
		p := testenv.ServeProxy(t, testenv.Proxy{Hosts: map[string]string{googleHost + ":443": s.Host, googleHost + ":80": s.Host}})
		b.Spec.ProxySecretRef, secrets["default/proxy"] = ref("proxy"), sourcetest.Secret("address", p.URL)
	}
	if change != nil {
		change(&b.Spec)
	}
	_, _, err := bucket.New(b, source.Env{Secrets: secrets, Login: login}, providers).Resolve(t.Context(), nil)
	return err
}

// Who reads a bucket without a key.
func TestIdentities(t *testing.T) {
	ca := testenv.SystemCA(t)
	public := testenv.GCSConfig{CA: ca, Names: []string{googleHost}}
	private := public
	private.Token = canary
	refused := 0
	issues := func(token string) source.LoginFunc {
		return func(_ context.Context, r source.LoginRequest) (source.Credential, error) {
			if r.URL.String() != "gs://"+googleHost+"/app" || r.Provider != "gcp" {
				return source.Credential{}, fmt.Errorf("asked for %s, %s", r.Provider, r.URL)
			}
			return source.Credential{Token: token, Refused: func() { refused++ }}, nil
		}
	}
	fails := func(err error) source.LoginFunc {
		return func(context.Context, source.LoginRequest) (source.Credential, error) {
			return source.Credential{}, err
		}
	}
	nobody := fails(fmt.Errorf("metadata server: %w", source.ErrNoIdentity))
	robot := func(s *source.BucketSpec) { s.ServiceAccountName = "robot" }
	for name, c := range map[string]struct {
		config testenv.GCSConfig
		host   string
		login  source.LoginFunc
		change func(*source.BucketSpec)
		reason string // "" for no error
		say    string
	}{
		"identity":                         {private, googleHost, issues(canary), nil, "", ""},
		"nobody, public":                   {public, googleHost, nobody, nil, "", ""},
		"no login, public":                 {public, googleHost, nil, nil, "", ""},
		"another store, public":            {public, "", fails(errors.New("not to be asked")), nil, "", ""},
		"nobody, private":                  {private, googleHost, nobody, nil, "AuthenticationFailed", "401 Unauthorized: required: |the request was anonymous: set spec.secretRef"},
		"another store, private":           {private, "", issues(canary), nil, "AuthenticationFailed", "the request was anonymous"},
		"identity that is refused":         {private, googleHost, issues("other"), nil, "AuthenticationFailed", "Invalid Credentials: check that"},
		"login fails":                      {public, googleHost, fails(errors.New("out of order")), nil, "AuthenticationFailed", "log in with provider gcp: out of order"},
		"login is not for that":            {public, googleHost, fails(source.ErrProvider), nil, "InvalidProviderConfiguration", "log in with provider gcp"},
		"nobody, but it should be another": {public, googleHost, nobody, robot, "AuthenticationFailed", "metadata server"},
		"another's, for another store":     {public, "", nobody, robot, "AuthenticationFailed", "metadata server"},
		"in the clear":                     {public, googleHost, issues(canary), func(s *source.BucketSpec) { s.Insecure = true }, "InvalidProviderConfiguration", "spec.insecure: the identity of this program is not sent in the clear"},
	} {
		t.Run(name, func(t *testing.T) {
			s := testenv.StartGCS(t, c.config)
			s.Bucket("app").Put("a", "one")
			host := c.host
			if host == "" {
				host = s.Host
			}
			refused = 0
			err := resolve(t, s, host, c.login, c.change)
			if c.reason == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if step, ok := errors.AsType[*source.StepError](err); !ok || step.Reason != c.reason {
				t.Fatalf("%+v", err)
			}
			for say := range strings.SplitSeq(c.say, "|") {
				judge(t, err, say)
			}
			if want := name == "identity that is refused"; want != (refused > 0) || refused > 1 {
				t.Errorf("%d credentials were refused", refused)
			}
			if c.reason == "InvalidProviderConfiguration" && len(s.Requests()) > 0 {
				t.Errorf("asked %v", s.Requests())
			}
		})
	}
}
