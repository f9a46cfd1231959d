package aws_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
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

// registryServices are a private registry, the public one, and the token services of both.
type registryServices struct {
	*logintest.Services
	key string // the access key that the token services accept
}

func newRegistryServices(t *testing.T) *registryServices {
	w := &registryServices{logintest.NewServices(t), "AKIDEXAMPLE"}
	for _, name := range []string{registry, "public.ecr.aws"} {
		w.Name(logintest.Registry(t, testenv.RegistryConfig{CA: w.CA, Names: []string{name}, Allow: w.allow}, "acme/app").Host, name)
	}
	w.Serve(w.issue, ecr, ecrPublic)
	return w
}

func password(n int) string { return fmt.Sprintf("ecr-canary-%d", n) }

func (w *registryServices) allow(r *http.Request) bool {
	user, given, _ := r.BasicAuth()
	n := w.Valid()
	return n > 0 && user == "AWS" && given == password(n)
}

// issue answers GetAuthorizationToken, in the protocol AWS JSON 1.1.
func (w *registryServices) issue(rw http.ResponseWriter, r *http.Request) {
	if w.TryAnswer(rw, r) {
		return
	}
	text, _ := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=")
	text, _, _ = strings.Cut(text, ",")
	key, scope, _ := strings.Cut(text, "/")
	w.Note("%s %s %s %s", r.Host, key, scope, r.Header.Get("X-Amz-Target"))
	rw.Header().Set("Content-Type", "application/x-amz-json-1.1")
	if key != w.key || r.Header.Get("Content-Type") != "application/x-amz-json-1.1" {
		rw.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(rw, `{"__type":"UnrecognizedClientException","message":"The security token is invalid, not %s %s"}`, r.Header.Get("X-Amz-Security-Token"), r.Header.Get("Authorization"))
		return
	}
	data := map[string]any{
		"authorizationToken": base64.StdEncoding.EncodeToString([]byte("AWS:" + password(w.Next()))),
		"expiresAt":          w.Clock.Now().Add(12 * time.Hour).Unix(),
		"proxyEndpoint":      "https://evil.example", // must have no effect
	}
	if r.Host == ecrPublic {
		json.NewEncoder(rw).Encode(map[string]any{"authorizationData": data})
		return
	}
	json.NewEncoder(rw).Encode(map[string]any{"authorizationData": []any{data}})
}

var keysOfEnvironment = []string{"AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY", secretKey}

func TestPull(t *testing.T) {
	w := newRegistryServices(t)
	setEnvironment(t, keysOfEnvironment...)
	date := time.Now().UTC().Format("20060102")
	for url, want := range map[string]string{
		"oci://" + registry + "/acme/app": ecr + " AKIDEXAMPLE " + date + "/eu-west-1/ecr/aws4_request AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken",
		"oci://public.ecr.aws/acme/app":   ecrPublic + " AKIDEXAMPLE " + date + "/us-east-1/ecr-public/aws4_request SpencerFrontendService.GetAuthorizationToken",
	} {
		w.Requests = nil
		run := w.Pull((&aws.Provider{Now: w.Clock.Now}).Login, logintest.Artifact("aws", url))
		if run.Err != nil {
			t.Errorf("%s: %v", url, run.Err)
		}
		if !slices.Equal(w.Requests, []string{want}) || !slices.Contains(run.Secrets, password(w.Issued)) {
			t.Errorf("%s: asked %q, want %q once; or the token is not kept secret", url, w.Requests, want)
		}
	}
	w.RequireTunnels("")
}

// TestTokensAreOfEndpoints does not send the token of one endpoint to another.
func TestTokensAreOfEndpoints(t *testing.T) {
	w := newRegistryServices(t)
	setEnvironment(t, keysOfEnvironment...)
	login := (&aws.Provider{Now: w.Clock.Now}).Login
	for i, host := range []string{registry, "210987654321.dkr.ecr.eu-west-1.amazonaws.com", "public.ecr.aws"} {
		c, err := login(t.Context(), w.Request("aws", "oci://"+host+"/acme/app"))
		if want := []string{password(1), password(1), password(2)}[i]; err != nil || c.Username != "AWS" || c.Password != want || c.Token != "" {
			t.Errorf("%s: %+v, %v, want %s", host, c, err, want)
		}
		if life := c.Expires.Sub(w.Clock.Now()); life < 11*time.Hour || life > 12*time.Hour {
			t.Errorf("%s: expires after %s", host, life)
		}
	}
}

// TestRefusedKeysAreForgotten does not reuse keys that the token service refused.
func TestRefusedKeysAreForgotten(t *testing.T) {
	w, requests := newRegistryServices(t), 0
	u := logintest.ServeLoopback(t, func(rw http.ResponseWriter, _ *http.Request) {
		requests++
		json.NewEncoder(rw).Encode(keys(requests, w.Clock.Now().Add(time.Hour)))
	})
	setEnvironment(t, "AWS_CONTAINER_CREDENTIALS_FULL_URI", u)
	login := (&aws.Provider{Now: w.Clock.Now}).Login
	w.key = "ASIAEXAMPLE2"
	run := w.Pull(login, logintest.Artifact("aws", "oci://"+registry+"/acme/app"))
	if run.Reason != "InvalidProviderConfiguration" || !strings.Contains(run.Err.Error(), "UnrecognizedClientException: The security token is invalid") {
		t.Errorf("with old keys: %s, %v", run.Reason, run.Err)
	}
	if run := w.Pull(login, logintest.Artifact("aws", "oci://"+registry+"/acme/app")); run.Err != nil || requests != 2 {
		t.Errorf("with new keys: %v, %d requests", run.Err, requests)
	}
}

// TestEndpoints checks that the region decides which endpoint issues tokens.
func TestEndpoints(t *testing.T) {
	setEnvironment(t, append([]string{"AWS_ENDPOINT_URL", "https://evil.example", "AWS_ENDPOINT_URL_ECR", "https://evil.example"}, keysOfEnvironment...)...)
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
		var hosts []string
		r := request("oci://" + host + "/app")
		r.Client = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			hosts = append(hosts, r.URL.Host)
			return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: http.NoBody}, nil
		})}
		if _, err := new(aws.Provider).Login(t.Context(), r); err == nil {
			t.Errorf("%s: no error", host)
		}
		if !slices.Equal(hosts, []string{want}) {
			t.Errorf("%s: requests to %q, want %s", host, hosts, want)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestPullFailures(t *testing.T) {
	const provider, auth = "InvalidProviderConfiguration", "AuthenticationFailed"
	token := func(text string) http.HandlerFunc {
		return logintest.Answers(200, `{"authorizationData":[{"authorizationToken":"`+base64.StdEncoding.EncodeToString([]byte(text))+`","expiresAt":4102444800}]}`)
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		change func(*source.OCIRepositorySpec)
		reason string
		say    string
	}{
		"access denied":          {logintest.Answers(400, `{"__type":"AccessDeniedException","message":"not authorized to perform ecr:GetAuthorizationToken"}`), nil, provider, "AccessDeniedException: not authorized|AWS_ variables"},
		"not allowed at all":     {logintest.Answers(403, `<html>`), nil, auth, "get a token of ecr|403"},
		"throttled":              {logintest.Answers(400, `{"__type":"ThrottlingException","message":"Rate exceeded"}`), nil, auth, "get a token of ecr|Rate exceeded"},
		"service is slow":        {logintest.Answers(408, `{"__type":"RequestTimeoutException","message":"too slow"}`), nil, auth, "get a token of ecr|too slow"},
		"service fails":          {logintest.Answers(500, `{"__type":"ServerException","message":"sorry"}`), nil, auth, "get a token of ecr|sorry"},
		"redirected":             {logintest.Redirects("https://evil.example/"), nil, auth, "get a token of ecr|307"},
		"not JSON":               {logintest.Answers(200, `<html>`), nil, auth, "get a token of ecr"},
		"no token":               {logintest.Answers(200, `{"authorizationData":[]}`), nil, auth, "no token that can be sent"},
		"no data":                {logintest.Answers(200, `{}`), nil, auth, "no token that can be sent"},
		"token without password": {token("AWS"), nil, auth, "no token that can be sent"},
		"token that cannot pass": {token("AWS:can\r\nary"), nil, auth, "no token that can be sent"},
		"token not in base64":    {logintest.Answers(200, `{"authorizationData":[{"authorizationToken":"%canary"}]}`), nil, auth, "no token that can be sent"},
		"huge answer":            {logintest.Answers(200, `{"authorizationData":[{"authorizationToken":"`+strings.Repeat("A", 4<<20)), nil, auth, "larger than 1048576 bytes"},
		"without TLS":            {nil, func(s *source.OCIRepositorySpec) { s.Insecure = true }, provider, "spec.insecure"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRegistryServices(t)
			setEnvironment(t, keysOfEnvironment...)
			w.Answer = c.answer
			o := logintest.Artifact("aws", "oci://"+registry+"/acme/app")
			if c.change != nil {
				c.change(&o.Spec)
			}
			run := w.Pull(new(aws.Provider).Login, o)
			run.RequireFailure(t, c.reason, c.say)
			if c.answer == nil && len(w.Requests) > 0 {
				t.Errorf("asked %q", w.Requests)
			}
		})
	}
}

func TestPullStall(t *testing.T) {
	w := newRegistryServices(t)
	setEnvironment(t, keysOfEnvironment...)
	ctx, cancel := context.WithCancelCause(t.Context())
	w.Answer = logintest.Stall(func() { cancel(errors.New("given up")) })
	_, err := new(aws.Provider).Login(ctx, w.Request("aws", "oci://"+registry+"/acme/app"))
	testenv.ErrorSays(t, err, "given up")
}
