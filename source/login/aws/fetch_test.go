package aws_test

import (
	"fmt"
	"net/http"
	"slices"
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

// A world has CodeCommit and the token service of AWS.
type world struct {
	*logintest.World
	git    *testenv.Server
	status int // that the token service answers with, 0 for success
}

func newWorld(t *testing.T) *world {
	w := &world{World: logintest.NewWorld(t)}
	w.git = logintest.Serve(t, w.CA, "v1/repos/app", logintest.Repo(t), func(r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		return slices.Contains([]string{"AKIDEXAMPLE", "ASIAEXAMPLE1%session-canary-1"}, user) && accepts(password, secretKey, "eu-west-1", host, "/v1/repos/app")
	}, host)
	w.Name(logintest.Host(w.git.URL), host)
	w.Serve(w.sts, "sts.eu-west-1.amazonaws.com")
	return w
}

// sts answers AssumeRoleWithWebIdentity.
func (w *world) sts(rw http.ResponseWriter, r *http.Request) {
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
			w := newWorld(t)
			clean(t, c.vars...)
			run := w.Fetch(aws.New(nil, nil).Login, logintest.Repository("aws", repository))
			if run.Err != nil {
				t.Fatal(run.Err)
			}
			if !slices.Equal(w.Asked, c.asked) {
				t.Errorf("asked %q, want %q", w.Asked, c.asked)
			}
			w.Tunnels("")
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
			w := newWorld(t)
			clean(t, c.vars...)
			w.status = c.status
			g := logintest.Repository("aws", repository)
			if c.change != nil {
				c.change(g)
			}
			run := w.Fetch(aws.New(nil, nil).Login, g)
			run.Fails(t, c.reason, c.say)
			if c.change != nil && len(w.Asked) > 0 {
				t.Errorf("asked %q", w.Asked)
			}
		})
	}
}
