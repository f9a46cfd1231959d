package s3_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/s3"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

func TestKeys(t *testing.T) {
	for name, c := range map[string]struct {
		secret []string
		server testenv.S3Config
		reason string // of Connect
		say    string
	}{
		"both":             {[]string{"accesskey", accessKey, "secretkey", secretKey}, signed(), "", ""},
		"nobody, public":   {nil, testenv.S3Config{AccessKey: accessKey, SecretKey: secretKey, Anonymous: true}, "", ""},
		"nobody, private":  {nil, signed(), "", "list objects: 403 Forbidden: AccessDenied|set spec.secretRef to a Secret with accesskey and secretkey"},
		"no secretkey":     {[]string{"accesskey", accessKey}, signed(), "AuthenticationFailed", "spec.secretRef: secret default/keys: key secretkey is missing: S3 needs accesskey and secretkey"},
		"no accesskey":     {[]string{"secretkey", secretKey}, signed(), "AuthenticationFailed", "key accesskey is missing"},
		"other keys":       {[]string{"username", "u", "password", "canary"}, signed(), "AuthenticationFailed", "key accesskey is missing"},
		"line break":       {[]string{"accesskey", accessKey, "secretkey", secretKey + "\n"}, signed(), "AuthenticationFailed", "key secretkey ends in a line break: remove it"},
		"wrong secret":     {[]string{"accesskey", accessKey, "secretkey", "other-canary"}, signed(), "", "403 Forbidden: SignatureDoesNotMatch|check secretkey in the Secret of spec.secretRef"},
		"wrong key":        {[]string{"accesskey", "AKIDother", "secretkey", secretKey}, signed(), "", "403 Forbidden: InvalidAccessKeyId|check accesskey in the Secret of spec.secretRef"},
		"for another name": {[]string{"accesskey", accessKey, "secretkey", secretKey}, testenv.S3Config{LDAPUsername: "u", LDAPPassword: "p"}, "", "InvalidAccessKeyId"},
	} {
		t.Run(name, func(t *testing.T) {
			s := filled(t, c.server, "a", "1")
			d, err := s3.Connect(t.Context(), access(s, c.secret...))
			if c.reason != "" {
				wantError(t, s, err, c.say)
				wantReason(t, err, c.reason, false)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			all, err := list(t.Context(), d, "")
			if c.say == "" && (err != nil || len(all) != 1) {
				t.Fatal(all, err)
			}
			if c.say != "" {
				wantError(t, s, err, c.say)
				if !errors.Is(err, fs.ErrPermission) {
					t.Errorf("%v is no fs.ErrPermission", err)
				}
			}
		})
	}
}

func TestSpecs(t *testing.T) {
	s := filled(t, signed(), "a", "1")
	for name, c := range map[string]struct {
		change func(*source.BucketSpec)
		reason string
		say    string
	}{
		"short name":       {func(b *source.BucketSpec) { b.BucketName = "ab" }, "", "spec.bucketName is no name of a bucket"},
		"path in the name": {func(b *source.BucketSpec) { b.BucketName = "bucket/../other" }, "", "spec.bucketName"},
		"query":            {func(b *source.BucketSpec) { b.BucketName = "bucket?x=canary" }, "", "spec.bucketName"},
		"address":          {func(b *source.BucketSpec) { b.BucketName = "10.0.0.1" }, "", "spec.bucketName"},
		"region":           {func(b *source.BucketSpec) { b.Region = "eu/west" }, "", "spec.region is no name of a region"},
		"express":          {func(b *source.BucketSpec) { b.BucketName, b.Provider = "app--use1-az4--x-s3", "aws" }, "", "spec.bucketName is that of a directory bucket"},
		"endpoint":         {func(b *source.BucketSpec) { b.Endpoint = "https://u:canary@h" }, "URLInvalid", "spec.endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			a := keyed(s)
			c.change(a.Spec)
			_, err := s3.Connect(t.Context(), a)
			wantError(t, s, err, c.say)
			wantReason(t, err, c.reason, true)
		})
	}
	if s.Count() != 0 {
		t.Errorf("%d requests", s.Count())
	}
}

// A login is what a test has in place of package source/login/aws.
type login struct {
	asked  []string
	issued []source.Credential // one after the other, the last one again
	errs   []error
	forgot int
}

func (l *login) login(_ context.Context, r source.LoginRequest) (source.Credential, error) {
	l.asked = append(l.asked, r.Provider+" "+r.URL.String()+" "+r.ServiceAccount)
	n := len(l.asked) - 1
	if n < len(l.errs) && l.errs[n] != nil {
		return source.Credential{}, l.errs[n]
	}
	c := l.issued[min(n, len(l.issued)-1)]
	c.Refused = func() { l.forgot++ }
	return c, nil
}

// resolve lists a bucket with provider aws.
func resolve(t *testing.T, s *testenv.S3, l *login, change func(*source.BucketSpec)) (*bucket.Origin, error) {
	t.Helper()
	b := &source.Bucket{Header: source.Header{Kind: "Bucket", Metadata: source.Metadata{Name: "app", Namespace: "default"}},
		Spec: *access(s).Spec}
	b.Spec.Provider, b.Spec.Timeout = "aws", source.Duration(time.Minute)
	if change != nil {
		change(&b.Spec)
	}
	env := source.Env{}
	if l != nil {
		env.Login = l.login
	}
	o := bucket.New(b, env, map[string]bucket.Provider{"aws": s3.Connect, "generic": s3.Connect})
	rev, _, err := o.Resolve(t.Context(), nil)
	if err == nil {
		c, err := o.Open(t.Context(), rev)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	return o, err
}

func TestNoLogin(t *testing.T) {
	s := filled(t, signed(), "a", "1")
	_, err := resolve(t, s, nil, nil)
	wantError(t, s, err, "this program cannot log in with provider aws: set spec.secretRef")
	wantReason(t, err, "InvalidProviderConfiguration", true)
}

func TestOwnIdentity(t *testing.T) {
	config := testenv.S3Config{AccessKey: "ASIA1", SecretKey: secretKey, SessionToken: "session-canary", PageSize: 1}
	good := source.Credential{Username: "ASIA1", Password: secretKey, Token: "session-canary"}
	old := source.Credential{Username: "ASIA0", Password: "old-canary", Token: "old-session-canary"}
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		login  login
		change func(*source.BucketSpec)
		asked  int
		forgot int
		reason string
		say    string
	}{
		"good":          {login: login{issued: []source.Credential{good}}, asked: 1},
		"long":          {login: login{issued: []source.Credential{{Username: "ASIA1", Password: secretKey, Token: "session-canary", Expires: time.Now().Add(time.Hour)}}}, asked: 1},
		"over":          {login: login{issued: []source.Credential{{Username: "ASIA0", Password: "p", Expires: time.Now().Add(-time.Hour)}, good}}, asked: 2, forgot: 1},
		"refused once":  {login: login{issued: []source.Credential{old, good}}, asked: 2, forgot: 1},
		"refused twice": {login: login{issued: []source.Credential{old, old}}, asked: 2, forgot: 1, say: "InvalidAccessKeyId|does not know the keys that were issued"},
		"lost":          {login: login{issued: []source.Credential{old}, errs: []error{nil, refused}}, asked: 2, forgot: 1, reason: "AuthenticationFailed", say: "log in with provider aws: refused"},
		"none":          {login: login{issued: []source.Credential{{}}}, asked: 1, reason: "AuthenticationFailed", say: "no token that can be sent"},
		"forged":        {login: login{issued: []source.Credential{{Username: "A\nB", Password: "canary"}}}, asked: 1, reason: "AuthenticationFailed", say: "no token that can be sent"},
		"service account": {login: login{issued: []source.Credential{good}}, asked: 1,
			change: func(b *source.BucketSpec) { b.ServiceAccountName = "robot" }},
		"in the clear": {login: login{issued: []source.Credential{good}}, reason: "InvalidProviderConfiguration", say: "spec.insecure: the identity of this program is not shown in the clear",
			change: func(b *source.BucketSpec) { b.Endpoint = "minio.example:9000" }},
		"token service": {login: login{issued: []source.Credential{good}}, asked: 1,
			change: func(b *source.BucketSpec) {
				b.STS = &source.BucketSTSSpec{Provider: "aws", Endpoint: "https://sts.eu-west-1.amazonaws.com"}
			}},
		"no token service": {login: login{issued: []source.Credential{good}}, reason: "URLInvalid", say: "spec.sts.endpoint",
			change: func(b *source.BucketSpec) { b.STS = &source.BucketSTSSpec{Provider: "aws", Endpoint: "::canary"} }},
	} {
		t.Run(name, func(t *testing.T) {
			s := filled(t, config, "a", "1", "b", "2")
			_, err := resolve(t, s, &c.login, c.change)
			if c.say == "" && err != nil {
				t.Fatal(err)
			}
			if c.say != "" {
				wantError(t, s, err, c.say)
				wantReason(t, err, c.reason, strings.HasPrefix(c.say, "spec."))
			}
			if len(c.login.asked) != c.asked || c.login.forgot != c.forgot {
				t.Errorf("asked %q, forgot %d", c.login.asked, c.login.forgot)
			}
			if c.asked == 0 {
				return
			}
			want := "aws s3://" + s.Host + "/bucket"
			if name == "token service" {
				want += "?sts=https%3A%2F%2Fsts.eu-west-1.amazonaws.com"
			}
			if got := c.login.asked[0]; !strings.HasPrefix(got, want+" ") || strings.HasSuffix(got, " robot") != (name == "service account") {
				t.Errorf("asked for %s, want %s", got, want)
			}
		})
	}
}
