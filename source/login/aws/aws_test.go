//go:debug x509usefallbackroots=1
package aws_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/aws"
	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

const host = "git-codecommit.eu-west-1.amazonaws.com"

// setEnvironment removes the machine's AWS variables from the environment, and sets vars.
func setEnvironment(t *testing.T, vars ...string) {
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "AWS_") || strings.HasPrefix(name, "ACTIONS_") {
			t.Setenv(name, "") // so that it is restored
			os.Unsetenv(name)
		}
	}
	none := filepath.Join(t.TempDir(), "none")
	for i := 0; i < len(vars); i += 2 {
		t.Setenv(vars[i], vars[i+1])
	}
	for name, value := range map[string]string{"AWS_SHARED_CREDENTIALS_FILE": none, "AWS_CONFIG_FILE": none} {
		if os.Getenv(name) == "" {
			t.Setenv(name, value)
		}
	}
}

func request(u string) source.LoginRequest {
	parsed, err := url.Parse(u)
	if err != nil {
		panic(err)
	}
	return source.LoginRequest{Provider: "aws", URL: parsed, Namespace: "default", Client: transport.Client(transport.Config{})}
}

// accepts reports whether CodeCommit would accept a password, by its documented steps one
// after the other.
func accepts(password, secret, region, host, path string) bool {
	stamp, signature, ok := strings.Cut(password, "Z")
	if !ok || len(stamp) != 15 {
		return false
	}
	sum := func(key, text string) string {
		h := hmac.New(sha256.New, []byte(key))
		fmt.Fprint(h, text)
		return string(h.Sum(nil))
	}
	date := stamp[0:8]
	canonical := fmt.Sprintf("GIT\n%s\n\nhost:%s\n\nhost\n", path, host)
	toSign := fmt.Sprintf("AWS4-HMAC-SHA256\n%s\n%s/%s/codecommit/aws4_request\n%x", stamp, date, region, sha256.Sum256([]byte(canonical)))
	kDate := sum("AWS4"+secret, date)
	kRegion := sum(kDate, region)
	kService := sum(kRegion, "codecommit")
	kSigning := sum(kService, "aws4_request")
	return signature == fmt.Sprintf("%x", sum(kSigning, toSign))
}

func TestSignature(t *testing.T) {
	setEnvironment(t, "AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
	at := logintest.NewClock(time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC))
	got, err := (&aws.Provider{Now: at.Now}).Login(t.Context(), request("https://git-codecommit.us-east-1.amazonaws.com/v1/repos/app"))
	must(t, err)
	// Made with the hmac and hashlib modules of Python by the steps in accepts.
	const want = "20150830T123600Zc4a0249b9558f827049ef5b9439ef3fe64993f1109409b64186666098a251680"
	if got.Password != want || got.Username != "AKIDEXAMPLE" || got.Token != "" {
		t.Errorf("got %s, %s, want %s", got.Username, got.Password, want)
	}
	if !accepts(got.Password, "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "us-east-1", "git-codecommit.us-east-1.amazonaws.com", "/v1/repos/app") {
		t.Error("the second implementation disagrees")
	}
	if !got.Expires.Equal(at.Now().Add(15 * time.Minute)) {
		t.Errorf("expires %s", got.Expires)
	}
	at.Advance(time.Minute)
	if again, err := (&aws.Provider{Now: at.Now}).Login(t.Context(), request("https://git-codecommit.us-east-1.amazonaws.com/v1/repos/app")); err != nil || again.Password == got.Password {
		t.Errorf("the same signature a minute later, or %v", err)
	}
}

// keys returns temporary keys in the form of the endpoints of containers and instances.
func keys(n int, expires time.Time) map[string]string {
	return map[string]string{
		"Code": "Success", "AccessKeyId": fmt.Sprintf("ASIAEXAMPLE%d", n), "SecretAccessKey": "s3cret-canary", "Token": fmt.Sprintf("session-canary-%d", n),
		"Expiration": expires.UTC().Format(time.RFC3339),
	}
}

func TestContainer(t *testing.T) {
	at, requests := logintest.NewClock(time.Now()), 0
	u := logintest.ServeLoopback(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/credentials" || r.Header.Get("Authorization") != "container-canary" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		requests++
		json.NewEncoder(w).Encode(keys(requests, at.Now().Add(time.Hour)))
	})
	setEnvironment(t, "AWS_CONTAINER_CREDENTIALS_FULL_URI", u+"/v1/credentials", "AWS_CONTAINER_AUTHORIZATION_TOKEN", "container-canary")
	p := &aws.Provider{Now: at.Now}
	login := func() source.Credential {
		t.Helper()
		c, err := p.Login(t.Context(), request("https://"+host+"/v1/repos/app"))
		must(t, err)
		return c
	}
	first := login()
	if first.Username != "ASIAEXAMPLE1%session-canary-1" || !accepts(first.Password, "s3cret-canary", "eu-west-1", host, "/v1/repos/app") {
		t.Errorf("got %+v", first)
	}
	at.Advance(43 * time.Minute) // the SDK takes five minutes off; 80 % of the rest are 44
	if c := login(); c.Username != first.Username || c.Password == first.Password || c.Expires.Sub(at.Now()).Round(time.Minute) != 12*time.Minute {
		t.Errorf("after 43 minutes: %s until %s", c.Username, c.Expires)
	}
	at.Advance(time.Minute)
	if c := login(); c.Username == first.Username {
		t.Error("the same keys after 44 of 55 minutes")
	}
	login().Refused()
	if login(); requests != 3 {
		t.Errorf("%d requests, want 3: first, refreshed, after a refusal", requests)
	}
}

func TestInstance(t *testing.T) {
	u := logintest.ServeLoopback(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token":
			w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "21600")
			fmt.Fprint(w, "metadata-canary")
		case r.Header.Get("X-Aws-Ec2-Metadata-Token") != "metadata-canary":
			w.WriteHeader(http.StatusUnauthorized)
		case strings.HasSuffix(r.URL.Path, "/iam/security-credentials/"):
			fmt.Fprint(w, "role")
		case strings.HasSuffix(r.URL.Path, "/iam/security-credentials/role"):
			json.NewEncoder(w).Encode(keys(1, time.Now().Add(time.Hour)))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	setEnvironment(t, "AWS_EC2_METADATA_SERVICE_ENDPOINT", u)
	got, err := new(aws.Provider).Login(t.Context(), request("https://"+host+"/v1/repos/app"))
	if err != nil || !strings.HasPrefix(got.Username, "ASIAEXAMPLE1%") {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		answer        http.HandlerFunc
		configuration bool
		say           string
	}{
		"refused":            {logintest.Answers(403, `{"code":"AccessDenied","message":"not container-canary"}`), true, "AccessDenied|AWS_ variables"},
		"not JSON":           {logintest.Answers(200, `<html>`), false, "AWS_ variables"},
		"no keys":            {logintest.Answers(200, `{"Code":"Success"}`), false, "no token that can be sent"},
		"control characters": {logintest.Answers(200, `{"AccessKeyId":"a\nb","SecretAccessKey":"canary","Token":"canary"}`), false, "no token that can be sent"},
	} {
		t.Run(name, func(t *testing.T) {
			setEnvironment(t, "AWS_CONTAINER_CREDENTIALS_FULL_URI", logintest.ServeLoopback(t, c.answer), "AWS_CONTAINER_AUTHORIZATION_TOKEN", "container-canary")
			_, err := new(aws.Provider).Login(t.Context(), request("https://"+host+"/v1/repos/app"))
			wantError(t, err, c.configuration, c.say)
		})
	}
	t.Run("huge", func(t *testing.T) {
		failed := make(chan bool, 8)
		setEnvironment(t, "AWS_CONTAINER_CREDENTIALS_FULL_URI", logintest.ServeLoopback(t, func(w http.ResponseWriter, r *http.Request) {
			_, err := fmt.Fprint(w, `{"Token":"`+strings.Repeat("x", 32<<20))
			failed <- err != nil
		}))
		_, err := new(aws.Provider).Login(t.Context(), request("https://"+host+"/v1/repos/app"))
		wantError(t, err, false, "larger than 1048576 bytes")
		if !<-failed {
			t.Error("all of it was read")
		}
	})
	t.Run("stall", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		u := logintest.ServeLoopback(t, logintest.Stall(func() { cancel(errors.New("given up")) }))
		setEnvironment(t, "AWS_CONTAINER_CREDENTIALS_FULL_URI", u)
		_, err := new(aws.Provider).Login(ctx, request("https://"+host+"/v1/repos/app"))
		wantError(t, err, false, "given up")
	})
}

func wantError(t *testing.T, err error, configuration bool, say string) {
	t.Helper()
	if err == nil || errors.Is(err, source.ErrProvider) != configuration || strings.Contains(err.Error(), "canary") {
		t.Fatalf("%v: want an error that wraps ErrProvider: %v, and shows no canary", err, configuration)
	}
	for s := range strings.SplitSeq(say, "|") {
		testenv.ErrorSays(t, err, s)
	}
}

const (
	otherIssuer = "vpce-0a-1b.sts.eu-central-1.vpce.amazonaws.com"
	arn         = "arn:aws:iam::123456789012:role/reader"
)

// TestBuckets gets keys as the credential for buckets, from the requested token service.
func TestBuckets(t *testing.T) {
	file := logintest.File(t, logintest.Identity)
	web := []string{"AWS_WEB_IDENTITY_TOKEN_FILE", file, "AWS_ROLE_ARN", arn, "AWS_ROLE_SESSION_NAME", "me"}
	const bucket = "s3://s3.eu-west-1.amazonaws.com/bucket"
	for name, c := range map[string]struct {
		vars    []string
		url     string
		user    string
		session string
		asked   []string
	}{
		"keys": {[]string{"AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY", secretKey}, bucket, "AKIDEXAMPLE", "", nil},
		"session": {[]string{"AWS_ACCESS_KEY_ID", "ASIAEXAMPLE", "AWS_SECRET_ACCESS_KEY", secretKey, "AWS_SESSION_TOKEN", "session-canary"}, bucket,
			"ASIAEXAMPLE", "session-canary", nil},
		"web identity": {web, bucket, "ASIAEXAMPLE1", "session-canary-1", []string{"at sts.eu-west-1.amazonaws.com", "sts " + arn + " me"}},
		"token service": {web, bucket + "?sts=https://" + otherIssuer, "ASIAEXAMPLE1", "session-canary-1",
			[]string{"at " + otherIssuer, "sts " + arn + " me"}},
		"token service and a region": {append(slices.Clip(web), "AWS_REGION", "us-east-1"), bucket + "?sts=https://" + otherIssuer, "ASIAEXAMPLE1", "session-canary-1",
			[]string{"at " + otherIssuer, "sts " + arn + " me"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newServices(t)
			setEnvironment(t, c.vars...)
			w.Serve(func(rw http.ResponseWriter, r *http.Request) {
				w.Note("at %s", r.Host)
				w.sts(rw, r)
			}, "sts.eu-west-1.amazonaws.com", otherIssuer)
			got, err := new(aws.Provider).Login(t.Context(), w.Request("aws", c.url))
			if err != nil || got.Username != c.user || got.Password != secretKey || got.Token != c.session {
				t.Errorf("%+v, %v", got, err)
			}
			testenv.Equal(t, w.Requests, c.asked, "asked")
			testenv.Equal(t, got.Expires.IsZero(), c.asked == nil, "expires %s", got.Expires)
		})
	}
}

const (
	repository = "https://" + host + "/v1/repos/app"
	secretKey  = "s3cret-canary"
)

// services are CodeCommit and the token service of AWS.
type services struct {
	*logintest.Services
	git    *testenv.GitServer
	status int // that the token service answers with, 0 for success
}

func newServices(t *testing.T) *services {
	w := &services{Services: logintest.NewServices(t)}
	w.git = logintest.Serve(t, w.CA, "v1/repos/app", logintest.Repo(t), func(r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		return slices.Contains([]string{"AKIDEXAMPLE", "ASIAEXAMPLE1%session-canary-1"}, user) && accepts(password, secretKey, "eu-west-1", host, "/v1/repos/app")
	}, host)
	w.Name(logintest.Host(w.git.URL), host)
	w.Serve(w.sts, "sts.eu-west-1.amazonaws.com")
	return w
}

// sts answers AssumeRoleWithWebIdentity.
func (w *services) sts(rw http.ResponseWriter, r *http.Request) {
	w.Note("sts %s %s", r.PostFormValue("RoleArn"), r.PostFormValue("RoleSessionName"))
	rw.Header().Set("Content-Type", "text/xml")
	if w.status != 0 || r.PostFormValue("Action") != "AssumeRoleWithWebIdentity" || r.PostFormValue("WebIdentityToken") != logintest.Identity {
		rw.WriteHeader(max(w.status, http.StatusBadRequest))
		fmt.Fprintf(rw, `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type><Code>InvalidIdentityToken</Code>`+
			`<Message>not %s</Message></Error><RequestId>1</RequestId></ErrorResponse>`, r.PostFormValue("WebIdentityToken"))
		return
	}
	fmt.Fprintf(rw, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials>`+
		`<AccessKeyId>ASIAEXAMPLE1</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>session-canary-1</SessionToken><Expiration>%s</Expiration>`+
		`</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, secretKey, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
}

func TestFetch(t *testing.T) {
	file := logintest.File(t, logintest.Identity)
	static := []string{"AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY", secretKey}
	const role, asked = "arn:aws:iam::123456789012:role/reader", "runner /token?api-version=2.0&audience=sts.amazonaws.com"
	for name, c := range map[string]struct {
		vars  []string
		asked []string
	}{
		"keys":               {static, nil},
		"web identity":       {[]string{"AWS_WEB_IDENTITY_TOKEN_FILE", file, "AWS_ROLE_ARN", role, "AWS_ROLE_SESSION_NAME", "me"}, []string{"sts " + role + " me"}},
		"job":                {append(logintest.Job(), "AWS_ROLE_ARN", role), []string{asked, "sts " + role + " headgate"}},
		"job with a name":    {append(logintest.Job(), "AWS_ROLE_ARN", role, "AWS_ROLE_SESSION_NAME", "me"), []string{asked, "sts " + role + " me"}},
		"job that has keys":  {append(logintest.Job(), append(static, "AWS_ROLE_ARN", role)...), nil},
		"job with its file":  {append(logintest.Job(), "AWS_WEB_IDENTITY_TOKEN_FILE", file, "AWS_ROLE_ARN", role, "AWS_ROLE_SESSION_NAME", "me"), []string{"sts " + role + " me"}},
		"regions of its own": {append(logintest.Job(), "AWS_ROLE_ARN", role, "AWS_REGION", "eu-west-1"), []string{asked, "sts " + role + " headgate"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newServices(t)
			setEnvironment(t, c.vars...)
			run := w.Fetch(new(aws.Provider).Login, logintest.Repository("aws", repository))
			if run.Err != nil {
				t.Fatal(run.Err)
			}
			testenv.Equal(t, w.Requests, c.asked, "asked")
			w.RequireTunnels("")
		})
	}
}

func TestFetchFailures(t *testing.T) {
	const provider, auth = "InvalidProviderConfiguration", "AuthenticationFailed"
	role := slices.Clip(append(logintest.Job(), "AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reader"))
	file := logintest.File(t, logintest.Identity)
	for name, c := range map[string]struct {
		vars   []string
		status int
		change func(*source.GitRepository)
		reason string
		say    string
	}{
		"refused identity":      {role, http.StatusForbidden, nil, provider, "InvalidIdentityToken"},
		"refused job":           {append(role, "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "other-canary"), 0, nil, auth, "identity token of the job: GET https://runner.example/token|status 401"},
		"job without TLS":       {append(role, "ACTIONS_ID_TOKEN_REQUEST_URL", "http://runner.example/token"), 0, nil, auth, "ACTIONS_ID_TOKEN_REQUEST_URL is not an https URL"},
		"wrong keys":            {[]string{"AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY", "other-canary"}, 0, nil, auth, "authentication failed"},
		"user in the URL":       {role, 0, func(g *source.GitRepository) { g.Spec.URL = "https://u@" + host + "/v1/repos/app" }, provider, "user information"},
		"role of another cloud": {append(role, "AWS_ROLE_ARN", "arn:aws-cn:iam::123456789012:role/reader"), 0, nil, provider, "AWS_ROLE_ARN is not a role of aws, the partition that region eu-west-1 is in"},
		"China": {role, 0, func(g *source.GitRepository) {
			g.Spec.URL = "https://git-codecommit.cn-north-1.amazonaws.com.cn/v1/repos/app"
		}, provider, "not a role of aws-cn"},
		"government": {[]string{"AWS_WEB_IDENTITY_TOKEN_FILE", file, "AWS_ROLE_ARN", role[5]}, 0, func(g *source.GitRepository) {
			g.Spec.URL = "https://git-codecommit.us-gov-west-1.amazonaws.com/v1/repos/app"
		}, provider, "not a role of aws-us-gov"},
		"profile that is none": {[]string{"AWS_PROFILE", "absent"}, 0, nil, auth, "absent"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newServices(t)
			setEnvironment(t, c.vars...)
			w.status = c.status
			g := logintest.Repository("aws", repository)
			if c.change != nil {
				c.change(g)
			}
			run := w.Fetch(new(aws.Provider).Login, g)
			run.RequireFailure(t, c.reason, c.say)
			if c.change != nil && len(w.Requests) > 0 {
				t.Errorf("asked %q", w.Requests)
			}
		})
	}
}

// The program's identity gives access to a registry of AWS.
func Example() {
	app := &source.OCIRepository{Spec: source.OCIRepositorySpec{Provider: "aws", URL: "oci://123456789012.dkr.ecr.eu-central-1.amazonaws.com/app"}}
	revision, _, err := oci.New(app, source.Env{Login: new(aws.Provider).Login}, nil).Resolve(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(revision.ID)
}

var must = testenv.Must
