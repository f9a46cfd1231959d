package aws_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source/login/aws"
	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

const roleKey = "eks.amazonaws.com/role-arn"

// TestAccount logs in as service accounts, whatever identity the environment gives the
// program.
func TestAccount(t *testing.T) {
	const role, bucket, token = "arn:aws:iam::123456789012:role/path/reader", "s3://s3.eu-west-1.amazonaws.com/bucket", "account sts.amazonaws.com"
	const session, user = " robot.default.eu-west-1.fluxcd.io", "ASIAEXAMPLE1"
	for name, c := range map[string]struct {
		role, url string
		requests  []string
		say       string // of the error
		user      string
	}{
		"bucket":           {role, bucket, []string{token, "at sts.eu-west-1.amazonaws.com", "sts " + role + session}, "", user},
		"token service":    {role, bucket + "?sts=https://" + otherIssuer, []string{token, "at " + otherIssuer, "sts " + role + strings.Replace(session, "west", "central", 1)}, "", user},
		"repository":       {role, repository, []string{token, "at sts.eu-west-1.amazonaws.com", "sts " + role + session}, "", user + "%session-canary-1"},
		"no annotation":    {"", bucket, nil, "service account default/robot: |annotation " + roleKey + ": want the ARN", ""},
		"no role":          {"arn:aws:iam::123456789012:user/reader", bucket, nil, "annotation " + roleKey + ": want the ARN", ""},
		"control":          {role + "\n", bucket, nil, "annotation " + roleKey + ": want the ARN", ""},
		"another cloud":    {"arn:aws-cn:iam::123456789012:role/reader", bucket, nil, "is not a role of aws, the partition that region eu-west-1 is in", ""},
		"refused":          {"arn:aws:iam::123456789012:role/other", bucket, []string{token, "at sts.eu-west-1.amazonaws.com", "sts arn:aws:iam::123456789012:role/other" + session}, "InvalidIdentityToken|check the annotations of service account default/robot", ""},
		"no token of it":   {role, bucket, []string{token}, "tokens of default/robot are forbidden", ""},
		"somebody's place": {role, "s3://s3.example.com/bucket", nil, "spec.endpoint", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newServices(t)
			setEnvironment(t, "AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY", secretKey, "AWS_PROFILE", "none", "AWS_REGION", "us-west-2")
			w.Revoked = name == "no token of it"
			if name == "refused" {
				w.status = http.StatusForbidden
			}
			w.Serve(func(rw http.ResponseWriter, r *http.Request) {
				w.Note("at %s", r.Host)
				w.sts(rw, r)
			}, "sts.eu-west-1.amazonaws.com", otherIssuer)
			p, account := &aws.Provider{Now: w.Clock.Now}, w.Account(roleKey, c.role)
			got, err := w.LogIn(p.Login, "aws", c.url, account)
			if c.say != "" {
				logintest.Run{Reason: "x", Err: err}.RequireFailure(t, "x", c.say)
			} else if err != nil || got.Username != c.user {
				t.Fatalf("%+v, %v", got, err)
			}
			requests := w.Requests
			if name == "refused" { // the SDK retries, since an identity token may be too new
				requests = requests[:min(3, len(requests))]
			}
			testenv.Equal(t, requests, c.requests, "requests")
			if c.say != "" {
				return
			}
			if _, err := w.LogIn(p.Login, "aws", c.url, account); err != nil || len(w.Requests) != len(c.requests) {
				t.Errorf("%v; requests %q", err, w.Requests)
			}
			_, err = w.LogIn(p.Login, "aws", c.url, w.Account(roleKey, role+"2"))
			if err != nil || w.RequestsContaining(role+"2") == nil {
				t.Errorf("%v; requests %q: the account has another role now", err, w.Requests)
			}
			w.RequireTunnels("")
		})
	}
}

// TestAccountAtRegistry gets a separate registry token for each account.
func TestAccountAtRegistry(t *testing.T) {
	w := newRegistryServices(t)
	setEnvironment(t, keysOfEnvironment...)
	w.Serve((&services{Services: w.Services}).sts, "sts.eu-west-1.amazonaws.com")
	p := &aws.Provider{Now: w.Clock.Now}
	w.key = "ASIAEXAMPLE1"
	for i, role := range []string{"a", "a", "b"} {
		c, err := w.LogIn(p.Login, "aws", "oci://"+registry+"/acme/app", w.Account(roleKey, "arn:aws:iam::123456789012:role/"+role))
		if want := password([]int{1, 1, 2}[i]); err != nil || c.Password != want {
			t.Errorf("%s: %+v, %v, want %s", role, c, err, want)
		}
	}
	w.key = "AKIDEXAMPLE"
	if got, err := p.Login(t.Context(), w.Request("aws", "oci://"+registry+"/acme/app")); err != nil || got.Password != password(3) {
		t.Errorf("the program itself got %+v, %v", got, err)
	}
}
