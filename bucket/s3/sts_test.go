package s3_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/s3"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

const webToken = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.canary-signature"

// exchanged returns an access with keys of the token service of s.
func exchanged(s *testenv.S3, provider string, pairs ...string) *bucket.Access {
	a := access(s)
	a.Spec.STS = &source.BucketSTSSpec{Provider: provider, Endpoint: s.Base, SecretRef: &source.LocalReference{Name: "sts"}}
	a.STS = secret("sts", pairs...)
	for i := 1; i < len(pairs); i += 2 {
		if pairs[i-1] != "username" {
			a.Vault.Conceal(pairs[i])
		}
	}
	return a
}

func ldap(s *testenv.S3) *bucket.Access {
	return exchanged(s, "ldap", "username", "reader", "password", "ldap-canary")
}

func people() testenv.S3Config {
	return testenv.S3Config{LDAPUsername: "reader", LDAPPassword: "ldap-canary", WebIdentityToken: webToken}
}

func TestTokenService(t *testing.T) {
	for name, c := range map[string]struct {
		provider string
		secret   []string
		change   func(*bucket.Access)
		reason   string
		invalid  bool
		say      string
	}{
		"ldap":         {provider: "ldap", secret: []string{"username", "reader", "password", "ldap-canary"}},
		"web identity": {provider: "webidentity", secret: []string{"token", webToken}},
		"role":         {provider: "webidentity", secret: []string{"token", webToken, "roleArn", "arn:minio:iam:::role/reader"}},
		"aws":          {provider: "webidentity", secret: []string{"token", webToken}, change: func(a *bucket.Access) { a.Spec.Provider = "aws" }},
		"wrong password": {provider: "ldap", secret: []string{"username", "reader", "password", "other-canary"}, reason: "AuthenticationFailed",
			say: "400 Bad Request: InvalidParameterValue: the credentials are not valid: check spec.sts.endpoint, and the Secret of spec.sts.secretRef"},
		"wrong token": {provider: "webidentity", secret: []string{"token", webToken + "x"}, reason: "AuthenticationFailed", say: "InvalidParameterValue"},
		"no password": {provider: "ldap", secret: []string{"username", "reader"}, reason: "AuthenticationFailed",
			say: "spec.sts.secretRef: secret default/sts: key password is missing: LDAP needs username and password"},
		"no user":   {provider: "ldap", secret: []string{"password", "canary"}, reason: "AuthenticationFailed", say: "key username is missing"},
		"no token":  {provider: "webidentity", secret: []string{"username", "x"}, reason: "AuthenticationFailed", say: "key token is missing: it holds the identity token"},
		"bad token": {provider: "webidentity", secret: []string{"token", "canary\n"}, reason: "AuthenticationFailed", say: "key token ends in a line break"},
		"bad role":  {provider: "webidentity", secret: []string{"token", webToken, "roleArn", "a\x00"}, reason: "AuthenticationFailed", say: "key roleArn has a control character"},
		"no Secret": {provider: "ldap", change: func(a *bucket.Access) { a.Spec.STS.SecretRef = nil }, reason: "InvalidSTSConfiguration", invalid: true,
			say: "spec.sts.secretRef is required with provider ldap"},
		"unknown": {provider: "kerberos", reason: "InvalidSTSConfiguration", invalid: true, say: `spec.sts.provider "kerberos" is not known`},
		"in the clear": {provider: "ldap", secret: []string{"username", "reader", "password", "ldap-canary"}, reason: "InvalidSTSConfiguration", invalid: true,
			say:    "spec.sts.endpoint would be shown credentials in the clear: use https",
			change: func(a *bucket.Access) { a.Spec.STS.Endpoint, a.Spec.Insecure = "http://sts.example", false }},
		"no endpoint": {provider: "ldap", secret: []string{"username", "reader", "password", "ldap-canary"}, reason: "URLInvalid", invalid: true, say: "spec.sts.endpoint",
			change: func(a *bucket.Access) { a.Spec.STS.Endpoint = "sts.example" }},
		"TLS that is none": {provider: "ldap", secret: []string{"username", "reader", "password", "ldap-canary"}, reason: "AuthenticationFailed",
			say: "log in to the token service https://127.0.0.1:|the server speaks no TLS: set spec.insecure, or write http://",
			change: func(a *bucket.Access) {
				a.Spec.STS.Endpoint = strings.Replace(a.Spec.STS.Endpoint, "http:", "https:", 1)
			}},
		"keys of a Secret": {provider: "ldap", secret: []string{"username", "reader", "password", "other-canary"}, change: func(a *bucket.Access) {
			a.Spec.SecretRef, a.Secret = &source.LocalReference{Name: "keys"}, secret("keys", "accesskey", accessKey, "secretkey", secretKey)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			config := people()
			config.AccessKey, config.SecretKey = accessKey, secretKey
			s := filled(t, config, "a", "1")
			a := exchanged(s, c.provider, c.secret...)
			if c.change != nil {
				c.change(a)
			}
			d, err := s3.Connect(t.Context(), a)
			if c.say != "" {
				wantError(t, s, err, c.say)
				wantReason(t, err, c.reason, c.invalid)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if all, err := list(t.Context(), d, ""); err != nil || len(all) != 1 {
				t.Error(all, err)
			}
			want := 1
			if a.Spec.SecretRef != nil {
				want = 0
			}
			if n := s.Count(testenv.AssumeRole); n != want {
				t.Errorf("logged in %d times", n)
			}
			for _, key := range s.Signatures()[max(len(s.Signatures())-2, 0):] {
				if want == 1 && len(key) < 64 && !contains(a.Vault.Values(), key) {
					t.Error("the vault does not know the keys that were issued")
				}
			}
		})
	}
}

func contains(all []string, s string) bool {
	for _, one := range all {
		if one == s {
			return true
		}
	}
	return false
}

// Both ways have their own trust, and the client certificate of each goes there alone.
func TestTokenServiceTLS(t *testing.T) {
	ca, other := testenv.NewCA(t), testenv.NewCA(t)
	config := people()
	config.CA, config.Mutual = ca, true
	service := testenv.StartS3(t, config)
	store := filled(t, testenv.S3Config{CA: other}, "a", "1")
	a := exchanged(service, "ldap", "username", "reader", "password", "ldap-canary")
	a.Spec.Endpoint, a.Way.TLS = store.Host, tlsOf(t, other, nil)
	_, err := s3.Connect(t.Context(), a)
	wantError(t, service, err, "log in to the token service https://|certificate")
	wantReason(t, err, "AuthenticationFailed", false)
	a.STSWay.TLS = tlsOf(t, ca, ca)
	if _, err := s3.Connect(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if q := service.Requests(); len(q) != 1 || q[0].Certificate != "reader" {
		t.Errorf("%+v", q)
	}
}

// Keys that run out in the midst of things are replaced, once.
func TestExpiry(t *testing.T) {
	config := people()
	config.PageSize = 1
	s := filled(t, config, "a", "1", "b", "2", "c", "3")
	d := connect(t, ldap(s))
	all, err := list(t.Context(), d, "")
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	s.Expire()
	if text, err := read(t.Context(), d, all[2], 0); text != "3" || err != nil || s.Count(testenv.AssumeRole) != 2 {
		t.Errorf("%q, %v, logged in %d times", text, err, s.Count(testenv.AssumeRole))
	}
	s.Expire()
	if all, err := list(t.Context(), d, ""); len(all) != 3 || err != nil || s.Count(testenv.AssumeRole) != 3 {
		t.Errorf("%v, %v, logged in %d times", all, err, s.Count(testenv.AssumeRole))
	}
	s.Break(testenv.S3Failure(http.StatusBadRequest, "ExpiredToken", "The provided token has expired."))
	_, err = read(t.Context(), d, all[0], 0)
	wantError(t, s, err, "400 Bad Request: ExpiredToken") // the whole server is broken
	d2 := s.Break
	d2(&testenv.Defect{Phase: testenv.GetObject, Do: testenv.Answer, Status: http.StatusBadRequest, Body: "<Error><Code>ExpiredToken</Code></Error>"})
	_, err = read(t.Context(), d, all[0], 0)
	wantError(t, s, err, "get object: 400 Bad Request: ExpiredToken|the keys that were issued just now have expired")
}

func TestHostileTokenService(t *testing.T) {
	stranger := testenv.StartS3(t, testenv.S3Config{})
	begin := `<AssumeRoleWithLDAPIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithLDAPIdentityResult><Credentials>`
	end := `</Credentials></AssumeRoleWithLDAPIdentityResult></AssumeRoleWithLDAPIdentityResponse>`
	for name, c := range map[string]struct {
		defect testenv.Defect
		say    string
	}{
		"leak":        {testenv.Defect{Do: testenv.Leak, Status: http.StatusForbidden}, "403 Forbidden: UnknownError: cannot serve"},
		"redirect":    {*testenv.Redirect(stranger.Base), "302 Found"},
		"307":         {testenv.Defect{Do: testenv.Answer, Status: 307, Header: http.Header{"Location": {stranger.Base}}}, "307 Temporary Redirect"},
		"no XML":      {testenv.Defect{Do: testenv.Answer, Status: 200, Body: "ldap-canary"}, "log in to the token service http://127.0.0.1:"},
		"no keys":     {testenv.Defect{Do: testenv.Answer, Status: 200, Body: begin + end}, "no token that can be sent"},
		"forged keys": {testenv.Defect{Do: testenv.Answer, Status: 200, Body: begin + "<AccessKeyId>A&#10;B</AccessKeyId><SecretAccessKey>c</SecretAccessKey>" + end}, "no token that can be sent"},
		"forged token": {testenv.Defect{Do: testenv.Answer, Status: 200, Body: begin + "<AccessKeyId>A</AccessKeyId><SecretAccessKey>c</SecretAccessKey><SessionToken>a b</SessionToken>" + end},
			"no token that can be sent"},
		"huge":      {testenv.Defect{Do: testenv.Answer, Status: 200, Body: begin + "<AccessKeyId>" + strings.Repeat("A", 2<<20)}, "larger than 1048576 bytes"},
		"cut":       {testenv.Defect{Do: testenv.Cut, After: 100}, "log in to the token service http://127.0.0.1:"},
		"long name": {testenv.Defect{Do: testenv.Answer, Status: 200, Body: "<A" + strings.Repeat("A", 1<<19) + "/>"}, "log in to the token service http://127.0.0.1:|expected element type"},
		"long date": {testenv.Defect{Do: testenv.Answer, Status: 200, Body: begin + "<Expiration>" + strings.Repeat("9 ", 1<<18) + "</Expiration>" + end}, "log in to the token service http://127.0.0.1:"},
		"html":      {testenv.Defect{Do: testenv.Answer, Status: 404, Body: "<html>"}, "404 Not Found"},
	} {
		t.Run(name, func(t *testing.T) {
			s := testenv.StartS3(t, people())
			c.defect.Phase = testenv.AssumeRole
			s.Break(&c.defect)
			_, err := s3.Connect(t.Context(), ldap(s))
			wantError(t, s, err, c.say)
			wantReason(t, err, "AuthenticationFailed", false)
			if len(err.Error()) > 1500 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
	if stranger.Count() != 0 {
		t.Errorf("a stranger was asked: %+v", stranger.Requests())
	}
	t.Run("stall", func(t *testing.T) {
		s := testenv.StartS3(t, people())
		stalled := s.Break(&testenv.Defect{Phase: testenv.AssumeRole, Do: testenv.Stall, After: -1})
		ctx, cancel := context.WithCancelCause(t.Context())
		given := errors.New("given up")
		go func() {
			<-stalled
			cancel(given)
		}()
		if _, err := s3.Connect(ctx, ldap(s)); !errors.Is(err, given) {
			t.Error(err)
		}
	})
}
