//go:debug x509usefallbackroots=1
package gcp_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/gcs"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/gcp"
	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

const (
	registry            = "europe-west1-docker.pkg.dev"
	artifact            = "oci://" + registry + "/project/repo/app"
	provider            = "projects/123/locations/global/workloadIdentityPools/ci/providers/forge"
	serviceAccountEmail = "robot@project.iam.gserviceaccount.com"
	cloudScope          = "https://www.googleapis.com/auth/cloud-platform"
)

func TestPull(t *testing.T) {
	const (
		byKey   = "token urn:ietf:params:oauth:grant-type:jwt-bearer "
		byUser  = "token refresh_token gcloud"
		runner  = "runner /token?api-version=2.0&audience=https%3A%2F%2Fiam.googleapis.com%2F" + "projects%2F123%2Flocations%2Fglobal%2FworkloadIdentityPools%2Fci%2Fproviders%2Fforge"
		trade   = "sts.googleapis.com //iam.googleapis.com/" + provider + " urn:ietf:params:oauth:token-type:jwt " + cloudScope
		account = "iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" + serviceAccountEmail + ":generateAccessToken"
		domain  = "machine /computeMetadata/v1/universe/universe-domain"
		machine = "machine /computeMetadata/v1/instance/service-accounts/default/token"
	)
	remote := config{"url": "https://runner.example/token?audience=me", "headers": config{"Authorization": "Bearer runner-canary"},
		"format": config{"type": "json", "subject_token_field_name": "value"}}
	for name, c := range map[string]struct {
		vars  []string
		asked []string
	}{
		"key of a service account":       {fileEnv(serviceAccount().write(t)), []string{byKey}},
		"user":                           {fileEnv(user().write(t)), []string{byUser}},
		"identity in a file":             {fileEnv(federated(t).write(t)), []string{trade}},
		"identity at a URL":              {fileEnv(federated(t).with("credential_source", remote).write(t)), []string{"runner /token?audience=me", trade}},
		"identity as a service account":  {fileEnv(federated(t).with("service_account_impersonation_url", impersonation(serviceAccountEmail)).write(t)), []string{trade, account}},
		"user as a service account":      {fileEnv(config{"type": "impersonated_service_account", "service_account_impersonation_url": impersonation(serviceAccountEmail), "source_credentials": user()}.write(t)), []string{byUser, account}},
		"job":                            {jobEnv(), []string{runner, trade}},
		"job as a service account":       {jobEnv("GOOGLE_SERVICE_ACCOUNT", serviceAccountEmail), []string{runner, trade, account}},
		"developer":                      {homeEnv(t), []string{byUser}},
		"machine":                        {nil, []string{domain, machine}},
		"machine that knows its cloud":   {[]string{"universe", "googleapis.com"}, []string{domain, machine}},
		"file before job":                {append(fileEnv(serviceAccount().write(t)), jobEnv()...), []string{byKey}},
		"job before developer":           {append(homeEnv(t), jobEnv()...), []string{runner, trade}},
		"job that names no provider":     {append(jobEnv(), "GOOGLE_WORKLOAD_IDENTITY_PROVIDER", ""), []string{domain, machine}},
		"provider without a job":         {[]string{"GOOGLE_WORKLOAD_IDENTITY_PROVIDER", provider}, []string{domain, machine}},
		"no home":                        {[]string{"HOME", "", "APPDATA", ""}, []string{domain, machine}},
		"job that says which cloud":      {jobEnv("GOOGLE_CLOUD_UNIVERSE_DOMAIN", "googleapis.com"), []string{runner, trade}},
		"key that says which cloud":      {fileEnv(serviceAccount().with("universe_domain", "googleapis.com").write(t)), []string{byKey}},
		"key with a null as executable":  {fileEnv(serviceAccount().with("credential_source", config{"executable": nil}).write(t)), []string{byKey}},
		"key without a place for tokens": {fileEnv(serviceAccount().with("token_uri", "").write(t)), []string{byKey}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newServices(t, c.vars...)
			w.universe = w.Env["universe"]
			run := w.Pull(w.provider().Login, logintest.Artifact("gcp", artifact))
			if run.Err != nil {
				t.Fatal(run.Err)
			}
			if !slices.Equal(w.Requests, c.asked) || !slices.Contains(run.Secrets, token(w.Issued)) {
				t.Errorf("asked %q, want %q; or the token is not kept secret", w.Requests, c.asked)
			}
			w.RequireTunnels(w.Env["GCE_METADATA_HOST"])
		})
	}
}

// TestUniverses sends an identity to registries of its own cloud only.
func TestUniverses(t *testing.T) {
	const other = "oci://docker.s3nsregistry.fr/project/repo/app"
	part := func(universe string) config { return serviceAccount().with("universe_domain", universe) }
	impersonated := func(part config) config {
		return config{"type": "impersonated_service_account", "service_account_impersonation_url": impersonation(serviceAccountEmail), "source_credentials": part}
	}
	for name, c := range map[string]struct {
		vars      []string
		universe  string
		url, fail string
	}{
		"machine there":           {nil, "s3nsapis.fr", other, ""},
		"machine there, registry": {nil, "s3nsapis.fr", artifact, "the identity is one of s3nsapis.fr, and the registry is of googleapis.com"},
		"machine":                 {nil, "", other, "the identity is one of googleapis.com, and the registry is of s3nsapis.fr"},
		"key there":               {fileEnv(serviceAccount().with("universe_domain", "s3nsapis.fr").write(t)), "", other, ""},
		"key there, registry":     {fileEnv(serviceAccount().with("universe_domain", "s3nsapis.fr").write(t)), "", artifact, "one of s3nsapis.fr"},
		"key":                     {fileEnv(serviceAccount().write(t)), "", other, "one of googleapis.com"},
		"part there":              {fileEnv(impersonated(part("s3nsapis.fr")).write(t)), "", other, ""},
		"part there, registry":    {fileEnv(impersonated(part("s3nsapis.fr")).write(t)), "", artifact, "one of s3nsapis.fr"},
		"parts of two clouds":     {fileEnv(impersonated(part("googleapis.com")).with("universe_domain", "s3nsapis.fr").write(t)), "", other, "one of googleapis.com"},
		"exchange of no cloud":    {fileEnv(federated(t).with("universe_domain", "s3nsapis.fr").with("token_url", "").write(t)), "", other, "token_url is missing: it says where s3nsapis.fr exchanges tokens"},
		"exchange there":          {fileEnv(federated(t).with("universe_domain", "s3nsapis.fr").with("token_url", "https://sts.s3nsapis.fr/v1/token").write(t)), "", other, ""},
		"job there":               {jobEnv("GOOGLE_CLOUD_UNIVERSE_DOMAIN", "s3nsapis.fr", "GOOGLE_SERVICE_ACCOUNT", serviceAccountEmail), "", other, ""},
		"job there, registry":     {jobEnv("GOOGLE_CLOUD_UNIVERSE_DOMAIN", "s3nsapis.fr"), "", artifact, "one of s3nsapis.fr"},
		"job":                     {jobEnv(), "", other, "one of googleapis.com"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newServices(t, c.vars...)
			w.universe = c.universe
			run := w.Pull(w.provider().Login, logintest.Artifact("gcp", c.url))
			if c.fail == "" && run.Err != nil {
				t.Fatal(run.Err)
			}
			if c.fail != "" && (run.Reason != "InvalidProviderConfiguration" || !strings.Contains(run.Err.Error(), c.fail) || w.Issued > 0) {
				t.Errorf("%s, %v, %d tokens", run.Reason, run.Err, w.Issued)
			}
		})
	}
}

const (
	store       = "storage.googleapis.com"
	bucketScope = "https://www.googleapis.com/auth/devstorage.read_only"
)

// logIn logs in to a bucket.
func (w *services) logIn(p *gcp.Provider, host string, ownTrust bool) (source.Credential, error) {
	w.T.Helper()
	r := w.Request("gcp", "gs://"+host+"/app")
	r.OwnTrust = ownTrust
	c, err := p.Login(w.T.Context(), r)
	if err != nil && strings.Contains(err.Error(), "canary") {
		w.T.Errorf("a secret shows: %v", err)
	}
	return c, err
}

// TestBucket requests tokens with the narrowest scope that each method supports.
func TestBucket(t *testing.T) {
	const (
		byKey   = "token urn:ietf:params:oauth:grant-type:jwt-bearer "
		byUser  = "token refresh_token gcloud"
		trade   = "sts.googleapis.com //iam.googleapis.com/" + provider + " urn:ietf:params:oauth:token-type:jwt " + bucketScope
		domain  = "machine /computeMetadata/v1/universe/universe-domain"
		machine = "machine /computeMetadata/v1/instance/service-accounts/default/token?scopes=https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fdevstorage.read_only"
	)
	for name, c := range map[string]struct {
		vars  []string
		asked []string // the last requests
	}{
		"key of a service account": {fileEnv(serviceAccount().write(t)), []string{byKey}},
		"user":                     {fileEnv(user().write(t)), []string{byUser}},
		"identity in a file":       {fileEnv(federated(t).write(t)), []string{trade}},
		"job":                      {jobEnv(), []string{trade}},
		"developer":                {homeEnv(t), []string{byUser}},
		"machine":                  {nil, []string{domain, machine}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newServices(t, c.vars...)
			w.scope = bucketScope
			issued, err := w.logIn(w.provider(), store, false)
			if err != nil || issued.Token != token(1) || issued.Username != "" || issued.Password != "" || issued.Refused == nil || time.Until(issued.Expires) < 59*time.Minute {
				t.Fatalf("%+v, %v", issued, err)
			}
			testenv.Equal(t, w.Requests[len(w.Requests)-len(c.asked):], c.asked, "the last that were asked")
		})
	}
}

// refuseAsMetadataServer refuses requests as the metadata server does.
func refuseAsMetadataServer(status int) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Metadata-Flavor", "Google")
		rw.WriteHeader(status)
	}
}

func TestBucketHostile(t *testing.T) {
	noAccount := func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/computeMetadata/v1/universe/universe-domain" {
			rw.Write([]byte("googleapis.com"))
			return
		}
		rw.WriteHeader(http.StatusNotFound)
	}
	for name, c := range map[string]struct {
		vars   []string
		answer http.HandlerFunc
		host   string
		own    bool
		nobody bool
		say    string
	}{
		"nobody":                   {[]string{"GCE_METADATA_HOST", "127.0.0.1:1"}, nil, store, false, true, "metadata server: GET http://127.0.0.1:1/"},
		"machine has no account":   {nil, noAccount, store, false, true, "status 404"},
		"machine fails":            {nil, refuseAsMetadataServer(500), store, false, false, "status 500"},
		"machine refuses":          {nil, refuseAsMetadataServer(403), store, false, false, "status 403"},
		"machine of another maker": {nil, logintest.Answers(403, ``), store, false, true, "status 403"},
		"machine of another cloud": {nil, logintest.Answers(200, `s3nsapis.fr`), store, false, false, "the identity is one of s3nsapis.fr, and the bucket is of googleapis.com"},
		"key is refused":           {fileEnv(serviceAccount().with("client_email", "other@example.com").write(t)), nil, store, false, false, "status 400"},
		"CA of the object":         {nil, nil, store, true, false, "spec.certSecretRef: ca.crt"},
		"another store":            {nil, nil, "store.example", false, false, "spec.endpoint: the identity of this program is shown to storage.googleapis.com"},
		"another port":             {nil, nil, store + ":8443", false, false, "spec.endpoint: "},
		"a store that looks alike": {nil, nil, store + ".example", false, false, "spec.endpoint: "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newServices(t, c.vars...)
			w.scope, w.Answer = bucketScope, c.answer
			_, err := w.logIn(w.provider(), c.host, c.own)
			if err == nil || !strings.Contains(err.Error(), c.say) || errors.Is(err, source.ErrNoIdentity) != c.nobody {
				t.Errorf("%v", err)
			}
			if w.Issued > 0 {
				t.Errorf("asked %q", w.Requests)
			}
		})
	}
}

// TestReadBucket reads a Bucket of Google Cloud with the identity of the program.
func TestReadBucket(t *testing.T) {
	w := newServices(t, fileEnv(serviceAccount().write(t))...)
	w.scope = bucketScope
	w.store.Bucket("app").Put("a", "one")
	b := &source.Bucket{
		Header: source.Header{Kind: "Bucket", Metadata: source.Metadata{Name: "app", Namespace: "default"}},
		Spec: source.BucketSpec{Provider: "gcp", BucketName: "app", Endpoint: store, ProxySecretRef: &source.LocalReference{Name: "proxy"},
			Interval: source.Duration(time.Hour), Timeout: source.Duration(time.Minute)},
	}
	origin := bucket.New(b, source.Env{Secrets: w.Secrets, Login: w.provider().Login}, map[string]bucket.Provider{"gcp": gcs.Connect})
	if rev, _, err := origin.Resolve(t.Context(), nil); err != nil || !strings.HasPrefix(rev.ID, "sha256:") || !slices.Contains(origin.Secrets(), token(1)) {
		t.Errorf("%+v, %v", rev, err)
	}
}

func TestPullFailures(t *testing.T) {
	const invalid, auth = "InvalidProviderConfiguration", "AuthenticationFailed"
	byKey := func() []string { return fileEnv(serviceAccount().write(t)) }
	program := filepath.Join(t.TempDir(), "program")
	executable := config{"executable": config{"command": program, "output_file": program}}
	impersonated := config{"type": "impersonated_service_account", "service_account_impersonation_url": impersonation(serviceAccountEmail)}
	nested := impersonated.with("source_credentials", federated(t).with("credential_source", executable))
	client := config{"client_id": "a", "client_secret": "canary", "redirect_uris": []string{"https://evil.example"}}
	for name, c := range map[string]struct {
		vars   []string
		answer http.HandlerFunc
		change func(*source.OCIRepositorySpec)
		reason string
		say    string
	}{
		"no such file":                {fileEnv(filepath.Join(t.TempDir(), "absent")), nil, nil, invalid, "GOOGLE_APPLICATION_CREDENTIALS: |absent"},
		"file is no JSON":             {fileEnv(logintest.File(t, "canary")), nil, nil, invalid, "invalid character"},
		"file is huge":                {fileEnv(logintest.File(t, strings.Repeat(" ", 2<<20))), nil, nil, invalid, "more than 1048576 bytes"},
		"file of no type":             {fileEnv(logintest.File(t, `{"installed":{"client_id":"a","client_secret":"canary","redirect_uris":["https://evil.example"]}}`)), nil, nil, invalid, `type "" is none of`},
		"file of another type":        {fileEnv(logintest.File(t, `{"type":"gdch_service_account\u001b[0m"}`)), nil, nil, invalid, "is none of"},
		"file with a page to show":    {fileEnv(serviceAccount().with("installed", client).write(t)), nil, nil, invalid, "web and installed are of an OAuth client"},
		"part with a page to show":    {fileEnv(impersonated.with("source_credentials", user().with("web", client)).write(t)), nil, nil, invalid, "web and installed are of an OAuth client"},
		"file runs a program":         {fileEnv(federated(t).with("credential_source", executable).write(t)), nil, nil, invalid, "credential_source.executable: headgate runs no programs"},
		"file hides a program":        {fileEnv(nested.write(t)), nil, nil, invalid, "credential_source.executable: headgate runs no programs"},
		"file hides it from a switch": {fileEnv(logintest.File(t, `{"type":"external_account","Credential_Source":{"EXECUTABLE":{"command":"/canary"}}}`)), nil, nil, invalid, "executable"},
		"token place without TLS":     {fileEnv(serviceAccount().with("token_uri", "http://oauth2.googleapis.com/token").write(t)), nil, nil, invalid, "token_uri is not an https URL"},
		"exchange without TLS":        {fileEnv(federated(t).with("token_url", "http://sts.googleapis.com/v1/token").write(t)), nil, nil, invalid, "token_url is not an https URL"},
		"account without TLS":         {fileEnv(federated(t).with("service_account_impersonation_url", "ftp://canary").write(t)), nil, nil, invalid, "service_account_impersonation_url is not an https URL"},
		"key that is none":            {fileEnv(serviceAccount().with("private_key", "canary").write(t)), nil, nil, auth, "private key"},
		"identity for nobody":         {fileEnv(federated(t).with("audience", "").write(t)), nil, nil, invalid, "Audience must be set"},
		"identity from nowhere":       {fileEnv(federated(t).with("credential_source", config{}).write(t)), nil, nil, auth, "unable to parse credential source"},
		"identity file is absent":     {fileEnv(federated(t).with("credential_source", config{"file": filepath.Join(t.TempDir(), "absent")}).write(t)), nil, nil, auth, "absent"},
		"refused user":                {fileEnv(user().with("refresh_token", "other-canary").write(t)), nil, nil, invalid, "POST https://oauth2.googleapis.com/token: status 400 (Invalid grant: ***|GOOGLE_ variables"},
		"refused key":                 {fileEnv(serviceAccount().with("client_email", "other@example.com").write(t)), nil, nil, invalid, "status 400 (Invalid grant: ***"},
		"refused identity":            {fileEnv(federated(t).with("credential_source", config{"file": logintest.File(t, "other-canary")}).write(t)), nil, nil, invalid, "POST https://sts.googleapis.com/v1/token: status 400 (not ***"},
		"refused job":                 {append(jobEnv(), "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "other-canary"), nil, nil, invalid, "identity token of the job: GET https://runner.example/token: status 401"},
		"job without TLS":             {append(jobEnv(), "ACTIONS_ID_TOKEN_REQUEST_URL", "http://runner.example/token"), nil, nil, auth, "ACTIONS_ID_TOKEN_REQUEST_URL is not an https URL"},
		"job of another form":         {append(jobEnv(), "GOOGLE_WORKLOAD_IDENTITY_PROVIDER", "projects/1/../canary"), nil, nil, invalid, "GOOGLE_WORKLOAD_IDENTITY_PROVIDER: |projects/NUMBER/locations"},
		"account of another form":     {jobEnv("GOOGLE_SERVICE_ACCOUNT", "robot@project/../x?canary"), nil, nil, invalid, "GOOGLE_SERVICE_ACCOUNT is not the e-mail address"},
		"throttled":                   {byKey(), logintest.Answers(429, `{"error":"slow_down"}`), nil, auth, "status 429 (slow_down)"},
		"fails":                       {byKey(), logintest.Answers(503, `sorry`), nil, auth, "status 503"},
		"redirected":                  {byKey(), logintest.Redirects("/elsewhere"), nil, auth, "status 307"},
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
			w := newServices(t, c.vars...)
			w.Answer = c.answer
			o := logintest.Artifact("gcp", artifact)
			if c.change != nil {
				c.change(&o.Spec)
			}
			run := w.Pull(w.provider().Login, o)
			run.RequireFailure(t, c.reason, c.say)
			if w.Issued > 0 || c.change != nil && len(w.Requests) > 0 {
				t.Errorf("asked %q", w.Requests)
			}
		})
	}
}

// TestImpersonationFollowsNoRedirect does not send a token to the target of a redirect.
func TestImpersonationFollowsNoRedirect(t *testing.T) {
	w := newServices(t, fileEnv(federated(t).with("service_account_impersonation_url", "https://iamcredentials.googleapis.com/away").write(t))...)
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
	for name, vars := range map[string][]string{"key": fileEnv(serviceAccount().write(t)), "job": jobEnv(), "machine": nil} {
		w := newServices(t, vars...)
		ctx, cancel := context.WithCancelCause(t.Context())
		w.Answer = logintest.Stall(func() { cancel(errors.New("given up")) })
		_, err := w.provider().Login(ctx, w.Request("gcp", artifact))
		testenv.ErrorSays(t, err, "given up", name)
	}
}

// The program's identity gives access to a registry of Google.
func Example() {
	app := &source.OCIRepository{Spec: source.OCIRepositorySpec{Provider: "gcp", URL: "oci://europe-docker.pkg.dev/team/app/web"}}
	revision, _, err := oci.New(app, source.Env{Login: new(gcp.Provider).Login}, nil).Resolve(context.Background(), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(revision.ID)
}
