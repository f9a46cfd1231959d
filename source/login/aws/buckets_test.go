package aws_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/headgate-io/headgate/source/login/aws"
	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

const (
	elsewhere = "vpce-0a-1b.sts.eu-central-1.vpce.amazonaws.com"
	arn       = "arn:aws:iam::123456789012:role/reader"
)

// Keys for buckets are the credential themselves, from the token service that was asked for.
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
		"token service": {web, bucket + "?sts=https://" + elsewhere, "ASIAEXAMPLE1", "session-canary-1",
			[]string{"at " + elsewhere, "sts " + arn + " me"}},
		"token service and a region": {append(slices.Clip(web), "AWS_REGION", "us-east-1"), bucket + "?sts=https://" + elsewhere, "ASIAEXAMPLE1", "session-canary-1",
			[]string{"at " + elsewhere, "sts " + arn + " me"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			clean(t, c.vars...)
			w.Serve(func(rw http.ResponseWriter, r *http.Request) {
				w.Note("at %s", r.Host)
				w.sts(rw, r)
			}, "sts.eu-west-1.amazonaws.com", elsewhere)
			got, err := aws.New(nil, nil).Login(t.Context(), w.Request("aws", c.url))
			if err != nil || got.Username != c.user || got.Password != secretKey || got.Token != c.session {
				t.Errorf("%+v, %v", got, err)
			}
			if !slices.Equal(w.Asked, c.asked) {
				t.Errorf("asked %q, want %q", w.Asked, c.asked)
			}
			if got.Expires.IsZero() != (c.asked == nil) {
				t.Errorf("expires %s", got.Expires)
			}
		})
	}
}
