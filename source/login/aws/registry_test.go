package aws_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/aws"
	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

const (
	registry  = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
	ecr       = "api.ecr.eu-west-1.amazonaws.com"
	ecrPublic = "api.ecr-public.us-east-1.amazonaws.com"
)

// A registryWorld has a private registry, the public one, and the token
// services of both, all behind a proxy and vouched for by the system.
type registryWorld struct {
	t       *testing.T
	proxy   *testenv.ProxyServer
	secrets logintest.Secrets
	clock   *logintest.Clock

	mu      sync.Mutex
	asked   []string // of the token services
	key     string   // the access key that they accept
	issued  int
	revoked bool
	answer  http.HandlerFunc // in place of the token services
}

func newRegistryWorld(t *testing.T) *registryWorld {
	ca := testenv.SystemCA(t)
	w := &registryWorld{t: t, key: "AKIDEXAMPLE", clock: logintest.NewClock(time.Now())}
	private := logintest.Registry(t, testenv.RegistryConfig{CA: ca, Names: []string{registry}, Allow: w.allow}, "acme/app")
	public := logintest.Registry(t, testenv.RegistryConfig{CA: ca, Names: []string{"public.ecr.aws"}, Allow: w.allow}, "acme/app")
	tokens := logintest.ServeTLS(t, ca, w.issue, ecr, ecrPublic)
	w.proxy = testenv.ServeProxy(t, testenv.Proxy{Hosts: map[string]string{
		registry + ":443": private.Host, "public.ecr.aws:443": public.Host, ecr + ":443": tokens, ecrPublic + ":443": tokens}})
	w.secrets = logintest.Secrets{"proxy": {"address": w.proxy.URL}, "ca": {"ca.crt": string(ca.PEM())}}
	return w
}

func password(n int) string { return fmt.Sprintf("ecr-canary-%d", n) }

func (w *registryWorld) allow(r *http.Request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	user, given, _ := r.BasicAuth()
	return w.issued > 0 && !w.revoked && user == "AWS" && given == password(w.issued)
}

// issue answers GetAuthorizationToken, in the protocol AWS JSON 1.1, of
// requests with a signature of version 4.
func (w *registryWorld) issue(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.answer != nil {
		w.answer(rw, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	key, scope, err := signed(r, body, secretKey)
	w.asked = append(w.asked, strings.Join([]string{r.Host, key, scope, r.Header.Get("X-Amz-Target")}, " "))
	rw.Header().Set("Content-Type", "application/x-amz-json-1.1")
	if err != nil || key != w.key || r.Header.Get("Content-Type") != "application/x-amz-json-1.1" {
		rw.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(rw, `{"__type":"UnrecognizedClientException","message":"The security token is invalid, not %s %s (%v)"}`, r.Header.Get("X-Amz-Security-Token"), r.Header.Get("Authorization"), err)
		return
	}
	w.issued++
	data := map[string]any{
		"authorizationToken": base64.StdEncoding.EncodeToString([]byte("AWS:" + password(w.issued))),
		"expiresAt":          w.clock.Now().Add(12 * time.Hour).Unix(),
		"proxyEndpoint":      "https://evil.example", // which decides nothing
	}
	if r.Host == ecrPublic {
		json.NewEncoder(rw).Encode(map[string]any{"authorizationData": data})
		return
	}
	json.NewEncoder(rw).Encode(map[string]any{"authorizationData": []any{data}})
}

// signed checks the signature of a request by its documented steps one after
// the other, and returns the access key and the scope that it is for.
func signed(r *http.Request, body []byte, secret string) (key, scope string, err error) {
	parts := map[string]string{}
	rest, _ := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ")
	for part := range strings.SplitSeq(rest, ", ") {
		name, value, _ := strings.Cut(part, "=")
		parts[name] = value
	}
	key, scope, _ = strings.Cut(parts["Credential"], "/")
	var canonical strings.Builder
	fmt.Fprintf(&canonical, "%s\n%s\n%s\n", r.Method, r.URL.EscapedPath(), r.URL.RawQuery)
	for name := range strings.SplitSeq(parts["SignedHeaders"], ";") {
		value := r.Header.Get(name)
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = fmt.Sprint(r.ContentLength)
		}
		fmt.Fprintf(&canonical, "%s:%s\n", name, value)
	}
	fmt.Fprintf(&canonical, "\n%s\n%x", parts["SignedHeaders"], sha256.Sum256(body))
	text := fmt.Sprintf("AWS4-HMAC-SHA256\n%s\n%s\n%x", r.Header.Get("X-Amz-Date"), scope, sha256.Sum256([]byte(canonical.String())))
	sum := "AWS4" + secret
	for _, part := range append(strings.Split(scope, "/"), text) {
		h := hmac.New(sha256.New, []byte(sum))
		fmt.Fprint(h, part)
		sum = string(h.Sum(nil))
	}
	if want := fmt.Sprintf("%x", sum); parts["Signature"] != want {
		return key, scope, fmt.Errorf("signature of %s", parts["SignedHeaders"])
	}
	return key, scope, nil
}

func (w *registryWorld) pull(login source.LoginFunc, o *source.OCIRepository) logintest.Run {
	w.t.Helper()
	run := logintest.Pull(w.t, o, w.secrets, login)
	if strings.Contains(run.Texts, "canary") {
		w.t.Errorf("a secret shows: %s", run.Texts)
	}
	return run
}

func (w *registryWorld) asks() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
}

var keysOfEnvironment = []string{"AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY", secretKey}

func TestPull(t *testing.T) {
	w := newRegistryWorld(t)
	clean(t, keysOfEnvironment...)
	date := time.Now().UTC().Format("20060102")
	for url, want := range map[string]string{
		"oci://" + registry + "/acme/app": ecr + " AKIDEXAMPLE " + date + "/eu-west-1/ecr/aws4_request AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken",
		"oci://public.ecr.aws/acme/app":   ecrPublic + " AKIDEXAMPLE " + date + "/us-east-1/ecr-public/aws4_request SpencerFrontendService.GetAuthorizationToken",
	} {
		w.asked = nil
		run := w.pull(aws.New(w.clock.Now, nil).Login, logintest.Artifact("aws", url))
		if run.Err != nil {
			t.Errorf("%s: %v", url, run.Err)
		}
		if !slices.Equal(w.asked, []string{want}) || !slices.Contains(run.Secrets, password(w.issued)) {
			t.Errorf("%s: asked %q, want %q once; or the token is not kept secret", url, w.asked, want)
		}
	}
	for _, seen := range w.proxy.Seen() {
		if !strings.HasPrefix(seen, "CONNECT ") {
			t.Errorf("the proxy could read along: %s", seen)
		}
	}
}

func TestTokensAreKept(t *testing.T) {
	w := newRegistryWorld(t)
	clean(t, keysOfEnvironment...)
	login := aws.New(w.clock.Now, nil).Login
	pull := func(url string) logintest.Run {
		t.Helper()
		return w.pull(login, logintest.Artifact("aws", url))
	}
	const url = "oci://" + registry + "/acme/app"
	for range 3 {
		if run := pull(url); run.Err != nil || w.issued != 1 {
			t.Fatalf("%v, %d tokens", run.Err, w.issued)
		}
	}
	w.clock.Advance(time.Hour)
	if run := pull(url); run.Err != nil || w.issued != 2 {
		t.Errorf("after an hour of twelve: %v, %d tokens", run.Err, w.issued)
	}
	w.revoked = true
	if run := pull(url); !errors.Is(run.Err, fs.ErrPermission) || w.issued != 2 {
		t.Errorf("with a revoked token: %s, %v", run.Reason, run.Err)
	}
	w.revoked = false
	if run := pull(url); run.Err != nil || w.issued != 3 {
		t.Errorf("after a refusal: %v, %d tokens", run.Err, w.issued)
	}
}

// One place's token is not shown to another.
func TestTokensArePlaces(t *testing.T) {
	w := newRegistryWorld(t)
	clean(t, keysOfEnvironment...)
	login := aws.New(w.clock.Now, nil).Login
	for i, host := range []string{registry, "210987654321.dkr.ecr.eu-west-1.amazonaws.com", "public.ecr.aws"} {
		r := request("oci://" + host + "/acme/app")
		r.Client = w.client()
		c, err := login(t.Context(), r)
		if want := []string{password(1), password(1), password(2)}[i]; err != nil || c.Username != "AWS" || c.Password != want || c.Token != "" {
			t.Errorf("%s: %+v, %v, want %s", host, c, err, want)
		}
		if life := c.Expires.Sub(w.clock.Now()); life < 11*time.Hour || life > 12*time.Hour {
			t.Errorf("%s: expires after %s", host, life)
		}
	}
}

// client goes through the proxy.
func (w *registryWorld) client() *http.Client {
	c := &http.Client{Transport: &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return url.Parse(w.proxy.URL) }}}
	w.t.Cleanup(c.CloseIdleConnections)
	return c
}

// Keys that the token service refuses are not used again.
func TestRefusedKeysAreForgotten(t *testing.T) {
	w, asked := newRegistryWorld(t), 0
	u := serve(t, func(rw http.ResponseWriter, _ *http.Request) {
		asked++
		json.NewEncoder(rw).Encode(keys(asked, w.clock.Now().Add(time.Hour)))
	})
	clean(t, "AWS_CONTAINER_CREDENTIALS_FULL_URI", u)
	login := aws.New(w.clock.Now, nil).Login
	w.key = "ASIAEXAMPLE2"
	run := w.pull(login, logintest.Artifact("aws", "oci://"+registry+"/acme/app"))
	if run.Reason != "InvalidProviderConfiguration" || !strings.Contains(run.Err.Error(), "UnrecognizedClientException: The security token is invalid") {
		t.Errorf("with old keys: %s, %v", run.Reason, run.Err)
	}
	if run := w.pull(login, logintest.Artifact("aws", "oci://"+registry+"/acme/app")); run.Err != nil || asked != 2 {
		t.Errorf("with new keys: %v, asked %d times", run.Err, asked)
	}
}

// Which endpoint issues tokens follows from the region.
func TestEndpoints(t *testing.T) {
	clean(t, append([]string{"AWS_ENDPOINT_URL", "https://evil.example", "AWS_ENDPOINT_URL_ECR", "https://evil.example"}, keysOfEnvironment...)...)
	for host, want := range map[string]string{
		"123456789012.dkr.ecr.us-east-1.amazonaws.com":                "api.ecr.us-east-1.amazonaws.com",
		"123456789012.dkr.ecr-fips.us-east-1.amazonaws.com":           "api.ecr-fips.us-east-1.amazonaws.com",
		"123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com":       "api.ecr-fips.us-gov-west-1.amazonaws.com",
		"123456789012.dkr-ecr.eu-west-1.on.aws":                       "ecr.eu-west-1.api.aws",
		"123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn":            "api.ecr.cn-north-1.amazonaws.com.cn",
		"123456789012.dkr-ecr.cn-north-1.on.amazonwebservices.com.cn": "ecr.cn-north-1.api.amazonwebservices.com.cn",
		"123456789012.dkr.ecr.us-iso-east-1.c2s.ic.gov":               "api.ecr.us-iso-east-1.c2s.ic.gov",
		"123456789012.dkr.ecr.us-isob-east-1.sc2s.sgov.gov":           "api.ecr.us-isob-east-1.sc2s.sgov.gov",
		"123456789012.dkr.ecr.us-isof-south-1.csp.hci.ic.gov":         "api.ecr.us-isof-south-1.csp.hci.ic.gov",
		"123456789012.dkr.ecr.eu-isoe-west-1.cloud.adc-e.uk":          "api.ecr.eu-isoe-west-1.cloud.adc-e.uk",
		"123456789012.dkr.ecr.eusc-de-east-1.amazonaws.eu":            "api.ecr.eusc-de-east-1.amazonaws.eu",
		"public.ecr.aws":     "api.ecr-public.us-east-1.amazonaws.com",
		"ecr-public.aws.com": "ecr-public.us-east-1.api.aws",
	} {
		var asked []string
		r := request("oci://" + host + "/app")
		r.Client = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			asked = append(asked, r.URL.Host)
			return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody}, nil
		})}
		if _, err := aws.New(nil, nil).Login(t.Context(), r); err == nil {
			t.Errorf("%s: no error", host)
		}
		if !slices.Equal(asked, []string{want}) {
			t.Errorf("%s: asked %q, want %s", host, asked, want)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestPullFailures(t *testing.T) {
	const provider, auth = "InvalidProviderConfiguration", "AuthenticationFailed"
	answer := func(status int, body string) http.HandlerFunc {
		return func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/x-amz-json-1.1")
			rw.WriteHeader(status)
			fmt.Fprint(rw, body)
		}
	}
	token := func(plain string) http.HandlerFunc {
		return answer(200, `{"authorizationData":[{"authorizationToken":"`+base64.StdEncoding.EncodeToString([]byte(plain))+`","expiresAt":4102444800}]}`)
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		change func(*source.OCIRepositorySpec)
		reason string
		say    string
	}{
		"access denied":      {answer(400, `{"__type":"AccessDeniedException","message":"not authorized to perform ecr:GetAuthorizationToken"}`), nil, provider, "AccessDeniedException: not authorized|AWS_ variables"},
		"not allowed at all": {answer(403, `<html>`), nil, auth, "get a token of ecr|403"},
		"throttled":          {answer(400, `{"__type":"ThrottlingException","message":"Rate exceeded"}`), nil, auth, "get a token of ecr|Rate exceeded"},
		"service is slow":    {answer(408, `{"__type":"RequestTimeoutException","message":"too slow"}`), nil, auth, "get a token of ecr|too slow"},
		"service fails":      {answer(500, `{"__type":"ServerException","message":"sorry"}`), nil, auth, "get a token of ecr|sorry"},
		"redirected": {func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "https://evil.example/", http.StatusTemporaryRedirect)
		}, nil, auth, "get a token of ecr|307"},
		"not JSON":               {answer(200, `<html>`), nil, auth, "get a token of ecr"},
		"no token":               {answer(200, `{"authorizationData":[]}`), nil, auth, "no token that can be sent"},
		"no data":                {answer(200, `{}`), nil, auth, "no token that can be sent"},
		"token without password": {token("AWS"), nil, auth, "no token that can be sent"},
		"token that cannot pass": {token("AWS:can\r\nary"), nil, auth, "no token that can be sent"},
		"token not in base64":    {answer(200, `{"authorizationData":[{"authorizationToken":"%canary"}]}`), nil, auth, "no token that can be sent"},
		"huge answer":            {answer(200, `{"authorizationData":[{"authorizationToken":"`+strings.Repeat("A", 4<<20)), nil, auth, "larger than 1048576 bytes"},
		"CA of the object":       {nil, func(s *source.OCIRepositorySpec) { s.CertSecretRef = &source.LocalReference{Name: "ca"} }, provider, "spec.certSecretRef: ca.crt"},
		"service account":        {nil, func(s *source.OCIRepositorySpec) { s.ServiceAccountName = "robot" }, provider, "spec.serviceAccountName: only a cluster"},
		"without TLS":            {nil, func(s *source.OCIRepositorySpec) { s.Insecure = true }, provider, "spec.insecure"},
		"other port":             {nil, func(s *source.OCIRepositorySpec) { s.URL = "oci://" + registry + ":8443/acme/app" }, provider, "ACCOUNT.dkr.ecr.REGION.amazonaws.com"},
		"stranger":               {nil, func(s *source.OCIRepositorySpec) { s.URL = "oci://" + registry + ".evil.example/acme/app" }, provider, "oci://public.ecr.aws/NAME"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRegistryWorld(t)
			clean(t, keysOfEnvironment...)
			w.answer = c.answer
			o := logintest.Artifact("aws", "oci://"+registry+"/acme/app")
			if c.change != nil {
				c.change(&o.Spec)
			}
			run := w.pull(aws.New(nil, nil).Login, o)
			if run.Err == nil || run.Reason != c.reason {
				t.Fatalf("%s, %v", run.Reason, run.Err)
			}
			for s := range strings.SplitSeq(c.say, "|") {
				if !strings.Contains(run.Err.Error(), s) {
					t.Errorf("%v: does not say %s", run.Err, s)
				}
			}
			if c.answer == nil && len(w.asks()) > 0 {
				t.Errorf("asked %q", w.asks())
			}
		})
	}
}

func TestPullStall(t *testing.T) {
	w := newRegistryWorld(t)
	clean(t, keysOfEnvironment...)
	ctx, cancel := context.WithCancelCause(t.Context())
	w.answer = logintest.Stall(func() { cancel(errors.New("given up")) })
	r := request("oci://" + registry + "/acme/app")
	r.Client = w.client()
	if _, err := aws.New(nil, nil).Login(ctx, r); err == nil || !strings.Contains(err.Error(), "given up") {
		t.Error(err)
	}
}
