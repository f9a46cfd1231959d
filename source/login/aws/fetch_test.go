package aws_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
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
	repository = "https://" + host + "/v1/repos/app"
	secretKey  = "s3cret-canary"
)

// A world has CodeCommit, the token service of AWS and that of Actions, all
// behind a proxy and vouched for by the system.
type world struct {
	git     *testenv.Server
	proxy   *testenv.ProxyServer
	secrets logintest.Secrets
	asked   []string // of the token services
	status  int      // that the token service of AWS answers with, 0 for success
}

func newWorld(t *testing.T) *world {
	ca, w := testenv.SystemCA(t), &world{}
	w.git = logintest.Serve(t, ca, "v1/repos/app", logintest.Repo(t), func(r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		key, _, _ := strings.Cut(user, "%")
		return slices.Contains([]string{"AKIDEXAMPLE", "ASIAEXAMPLE1%session-canary-1"}, user) && key != "" &&
			accepts(password, secretKey, "eu-west-1", host, "/v1/repos/app")
	}, host)
	sts := logintest.ServeTLS(t, ca, w.sts, "sts.eu-west-1.amazonaws.com")
	runner := logintest.ServeTLS(t, ca, w.runner, "runner.example")
	w.proxy = testenv.ServeProxy(t, testenv.Proxy{Hosts: map[string]string{
		host + ":443": logintest.Host(w.git.URL), "sts.eu-west-1.amazonaws.com:443": sts, "runner.example:443": runner}})
	w.secrets = logintest.Secrets{"proxy": {"address": w.proxy.URL}, "ca": {"ca.crt": string(ca.PEM())}}
	return w
}

// sts answers AssumeRoleWithWebIdentity.
func (w *world) sts(rw http.ResponseWriter, r *http.Request) {
	w.asked = append(w.asked, "sts "+r.PostFormValue("RoleArn")+" "+r.PostFormValue("RoleSessionName"))
	rw.Header().Set("Content-Type", "text/xml")
	if w.status != 0 || r.PostFormValue("Action") != "AssumeRoleWithWebIdentity" || r.PostFormValue("WebIdentityToken") != identity {
		rw.WriteHeader(max(w.status, http.StatusBadRequest))
		fmt.Fprintf(rw, `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type><Code>InvalidIdentityToken</Code>`+
			`<Message>not %s</Message></Error><RequestId>1</RequestId></ErrorResponse>`, r.PostFormValue("WebIdentityToken"))
		return
	}
	fmt.Fprintf(rw, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials>`+
		`<AccessKeyId>ASIAEXAMPLE1</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>session-canary-1</SessionToken><Expiration>%s</Expiration>`+
		`</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, secretKey, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
}

// runner issues identity tokens to jobs.
func (w *world) runner(rw http.ResponseWriter, r *http.Request) {
	w.asked = append(w.asked, "runner "+r.URL.String())
	if r.Header.Get("Authorization") != "Bearer runner-canary" {
		rw.WriteHeader(http.StatusUnauthorized)
		return
	}
	fmt.Fprintf(rw, `{"count":1,"value":%q}`, identity)
}

func (w *world) fetch(t *testing.T, g *source.GitRepository) logintest.Run {
	t.Helper()
	run := logintest.Reconcile(t, g, w.secrets, aws.New(nil, nil).Login)
	if strings.Contains(run.Texts, "canary") || strings.Contains(run.Texts, "eyJ") {
		t.Errorf("a secret shows: %s", run.Texts)
	}
	return run
}

// job returns the variables of a job of Actions.
func job() []string {
	return []string{"ACTIONS_ID_TOKEN_REQUEST_URL", "https://runner.example/token?api-version=2.0", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "runner-canary"}
}

func TestFetch(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(identity), 0o600); err != nil {
		t.Fatal(err)
	}
	static := []string{"AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY", secretKey}
	const role, asked = "arn:aws:iam::123456789012:role/reader", "runner /token?api-version=2.0&audience=sts.amazonaws.com"
	for name, c := range map[string]struct {
		vars  []string
		asked []string
	}{
		"keys":               {static, nil},
		"web identity":       {[]string{"AWS_WEB_IDENTITY_TOKEN_FILE", file, "AWS_ROLE_ARN", role, "AWS_ROLE_SESSION_NAME", "me"}, []string{"sts " + role + " me"}},
		"job":                {append(job(), "AWS_ROLE_ARN", role), []string{asked, "sts " + role + " headgate"}},
		"job with a name":    {append(job(), "AWS_ROLE_ARN", role, "AWS_ROLE_SESSION_NAME", "me"), []string{asked, "sts " + role + " me"}},
		"job that has keys":  {append(job(), append(static, "AWS_ROLE_ARN", role)...), nil},
		"job with its file":  {append(job(), "AWS_WEB_IDENTITY_TOKEN_FILE", file, "AWS_ROLE_ARN", role, "AWS_ROLE_SESSION_NAME", "me"), []string{"sts " + role + " me"}},
		"regions of its own": {append(job(), "AWS_ROLE_ARN", role, "AWS_REGION", "eu-west-1"), []string{asked, "sts " + role + " headgate"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			clean(t, c.vars...)
			run := w.fetch(t, logintest.Repository("aws", repository))
			if run.Err != nil {
				t.Fatal(run.Err)
			}
			if !slices.Equal(w.asked, c.asked) {
				t.Errorf("asked %q, want %q", w.asked, c.asked)
			}
			for _, seen := range w.proxy.Seen() {
				if !strings.HasPrefix(seen, "CONNECT ") {
					t.Errorf("the proxy could read along: %s", seen)
				}
			}
		})
	}
}

func TestFetchFailures(t *testing.T) {
	const provider, auth = "InvalidProviderConfiguration", "AuthenticationFailed"
	role := slices.Clip(append(job(), "AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reader"))
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(identity), 0o600); err != nil {
		t.Fatal(err)
	}
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
		"CA of the object":      {role, 0, func(g *source.GitRepository) { g.Spec.SecretRef = &source.LocalReference{Name: "ca"} }, provider, "default/ca: ca.crt"},
		"service account":       {role, 0, func(g *source.GitRepository) { g.Spec.ServiceAccountName = "robot" }, provider, "spec.serviceAccountName"},
		"not CodeCommit":        {role, 0, func(g *source.GitRepository) { g.Spec.URL = "https://evil.example/v1/repos/app" }, provider, "git-codecommit.REGION"},
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
			w := newWorld(t)
			clean(t, c.vars...)
			w.status = c.status
			g := logintest.Repository("aws", repository)
			if c.change != nil {
				c.change(g)
			}
			run := w.fetch(t, g)
			if run.Err == nil || run.Reason != c.reason {
				t.Fatalf("%s, %v", run.Reason, run.Err)
			}
			for s := range strings.SplitSeq(c.say, "|") {
				if !strings.Contains(run.Err.Error(), s) {
					t.Errorf("%v: does not say %s", run.Err, s)
				}
			}
			if c.change != nil && len(w.asked) > 0 {
				t.Errorf("asked %q", w.asked)
			}
		})
	}
}
