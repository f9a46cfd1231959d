package gcp_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

func TestPullFailures(t *testing.T) {
	const invalid, auth = "InvalidProviderConfiguration", "AuthenticationFailed"
	byKey := func() []string { return file(serviceAccount().write(t)) }
	program := filepath.Join(t.TempDir(), "program")
	executable := config{"executable": config{"command": program, "output_file": program}}
	impersonated := config{"type": "impersonated_service_account", "service_account_impersonation_url": impersonation(robot)}
	nested := impersonated.with("source_credentials", federated(t).with("credential_source", executable))
	client := config{"client_id": "a", "client_secret": "canary", "redirect_uris": []string{"https://evil.example"}}
	for name, c := range map[string]struct {
		vars   []string
		answer http.HandlerFunc
		change func(*source.OCIRepositorySpec)
		reason string
		say    string
	}{
		"no such file":                {file(filepath.Join(t.TempDir(), "absent")), nil, nil, invalid, "GOOGLE_APPLICATION_CREDENTIALS: |absent"},
		"file is no JSON":             {file(logintest.File(t, "canary")), nil, nil, invalid, "invalid character"},
		"file is huge":                {file(logintest.File(t, strings.Repeat(" ", 2<<20))), nil, nil, invalid, "more than 1048576 bytes"},
		"file of no type":             {file(logintest.File(t, `{"installed":{"client_id":"a","client_secret":"canary","redirect_uris":["https://evil.example"]}}`)), nil, nil, invalid, `type "" is none of`},
		"file of another type":        {file(logintest.File(t, `{"type":"gdch_service_account\u001b[0m"}`)), nil, nil, invalid, "is none of"},
		"file with a page to show":    {file(serviceAccount().with("installed", client).write(t)), nil, nil, invalid, "web and installed are of an OAuth client"},
		"part with a page to show":    {file(impersonated.with("source_credentials", user().with("web", client)).write(t)), nil, nil, invalid, "web and installed are of an OAuth client"},
		"file runs a program":         {file(federated(t).with("credential_source", executable).write(t)), nil, nil, invalid, "credential_source.executable: headgate runs no programs"},
		"file hides a program":        {file(nested.write(t)), nil, nil, invalid, "credential_source.executable: headgate runs no programs"},
		"file hides it from a switch": {file(logintest.File(t, `{"type":"external_account","Credential_Source":{"EXECUTABLE":{"command":"/canary"}}}`)), nil, nil, invalid, "executable"},
		"token place without TLS":     {file(serviceAccount().with("token_uri", "http://oauth2.googleapis.com/token").write(t)), nil, nil, invalid, "token_uri is not an https URL"},
		"exchange without TLS":        {file(federated(t).with("token_url", "http://sts.googleapis.com/v1/token").write(t)), nil, nil, invalid, "token_url is not an https URL"},
		"account without TLS":         {file(federated(t).with("service_account_impersonation_url", "ftp://canary").write(t)), nil, nil, invalid, "service_account_impersonation_url is not an https URL"},
		"key that is none":            {file(serviceAccount().with("private_key", "canary").write(t)), nil, nil, auth, "private key"},
		"identity for nobody":         {file(federated(t).with("audience", "").write(t)), nil, nil, invalid, "Audience must be set"},
		"identity from nowhere":       {file(federated(t).with("credential_source", config{}).write(t)), nil, nil, auth, "unable to parse credential source"},
		"identity file is absent":     {file(federated(t).with("credential_source", config{"file": filepath.Join(t.TempDir(), "absent")}).write(t)), nil, nil, auth, "absent"},
		"refused user":                {file(user().with("refresh_token", "other-canary").write(t)), nil, nil, invalid, "POST https://oauth2.googleapis.com/token: status 400 (Invalid grant: ***|GOOGLE_ variables"},
		"refused key":                 {file(serviceAccount().with("client_email", "other@example.com").write(t)), nil, nil, invalid, "status 400 (Invalid grant: ***"},
		"refused identity":            {file(federated(t).with("credential_source", config{"file": logintest.File(t, "other-canary")}).write(t)), nil, nil, invalid, "POST https://sts.googleapis.com/v1/token: status 400 (not ***"},
		"refused job":                 {append(job(), "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "other-canary"), nil, nil, invalid, "identity token of the job: GET https://runner.example/token: status 401"},
		"job without TLS":             {append(job(), "ACTIONS_ID_TOKEN_REQUEST_URL", "http://runner.example/token"), nil, nil, auth, "ACTIONS_ID_TOKEN_REQUEST_URL is not an https URL"},
		"job of another form":         {append(job(), "GOOGLE_WORKLOAD_IDENTITY_PROVIDER", "projects/1/../canary"), nil, nil, invalid, "GOOGLE_WORKLOAD_IDENTITY_PROVIDER: |projects/NUMBER/locations"},
		"account of another form":     {job("GOOGLE_SERVICE_ACCOUNT", "robot@project/../x?canary"), nil, nil, invalid, "GOOGLE_SERVICE_ACCOUNT is not the e-mail address"},
		"throttled":                   {byKey(), logintest.Answers(429, `{"error":"slow_down"}`), nil, auth, "status 429 (slow_down)"},
		"fails":                       {byKey(), logintest.Answers(503, `sorry`), nil, auth, "status 503"},
		"redirected":                  {byKey(), logintest.Redirects("/elsewhere"), nil, auth, "status 307"},
		"sent away":                   {byKey(), logintest.Redirects("https://runner.example/"), nil, auth, "status 307"},
		"not JSON":                    {byKey(), logintest.Answers(200, `<html>`), nil, auth, "invalid character"},
		"no token":                    {byKey(), logintest.Answers(200, `{"expires_in":3600}`), nil, auth, "no token that can be sent"},
		"token that cannot pass":      {byKey(), logintest.Answers(200, `{"access_token":"can\r\nary","expires_in":3600}`), nil, auth, "no token that can be sent"},
		"huge answer":                 {byKey(), logintest.Answers(200, `{"access_token":"`+strings.Repeat("x", 4<<20)), nil, auth, "unexpected end of JSON input"},
		"machine has no account":      {nil, logintest.Answers(404, ``), nil, invalid, "metadata server: |status 404"},
		"machine is not Google's":     {nil, logintest.Answers(200, `<html>`), nil, invalid, "the identity is one of <html>"},
		"machine fails":               {nil, logintest.Answers(500, ``), nil, auth, "metadata server: |status 500"},
		"machine sends away":          {nil, logintest.Redirects("http://127.0.0.1:1/"), nil, auth, "redirect to another host refused"},
		"machine of no form":          {[]string{"GCE_METADATA_HOST", "a b"}, nil, nil, invalid, "GCE_METADATA_HOST is not HOST or HOST:PORT"},
		"nobody":                      {[]string{"GCE_METADATA_HOST", "127.0.0.1:1"}, nil, nil, auth, "metadata server: GET http://127.0.0.1:1/computeMetadata/v1/universe/universe-domain: "},
		"without TLS":                 {byKey(), nil, func(s *source.OCIRepositorySpec) { s.Insecure = true }, invalid, "spec.insecure"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.vars...)
			w.Answer = c.answer
			o := logintest.Artifact("gcp", artifact)
			if c.change != nil {
				c.change(&o.Spec)
			}
			run := w.Pull(w.provider().Login, o)
			run.Fails(t, c.reason, c.say)
			if w.Issued > 0 || c.change != nil && len(w.Asked) > 0 {
				t.Errorf("asked %q", w.Asked)
			}
		})
	}
}

// A token is not sent on to where the service that it is for points.
func TestImpersonationIsNotLedAway(t *testing.T) {
	w := newWorld(t, file(federated(t).with("service_account_impersonation_url", "https://iamcredentials.googleapis.com/away").write(t))...)
	w.Answer = func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.Host == "runner.example":
			t.Error("the runner was asked")
		case r.URL.Path == "/away":
			logintest.Redirects("https://runner.example/")(rw, r)
		default:
			logintest.Reply(rw, 200, map[string]any{"access_token": "canary-federated", "token_type": "Bearer", "expires_in": 3600})
		}
	}
	run := w.Pull(w.provider().Login, logintest.Artifact("gcp", artifact))
	if run.Err == nil || !strings.Contains(run.Err.Error(), "POST https://iamcredentials.googleapis.com/away: status 307") {
		t.Error(run.Err)
	}
}

func TestStall(t *testing.T) {
	for name, vars := range map[string][]string{"key": file(serviceAccount().write(t)), "job": job(), "machine": nil} {
		w := newWorld(t, vars...)
		ctx, cancel := context.WithCancelCause(t.Context())
		w.Answer = logintest.Stall(func() { cancel(errors.New("given up")) })
		if _, err := w.provider().Login(ctx, w.Request("gcp", artifact)); err == nil || !strings.Contains(err.Error(), "given up") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
