//go:debug x509usefallbackroots=1
package gcp_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

const (
	registry   = "europe-west1-docker.pkg.dev"
	artifact   = "oci://" + registry + "/project/repo/app"
	provider   = "projects/123/locations/global/workloadIdentityPools/ci/providers/forge"
	robot      = "robot@project.iam.gserviceaccount.com"
	cloudScope = "https://www.googleapis.com/auth/cloud-platform"
)

func TestPull(t *testing.T) {
	const (
		byKey   = "token urn:ietf:params:oauth:grant-type:jwt-bearer "
		byUser  = "token refresh_token gcloud"
		runner  = "runner /token?api-version=2.0&audience=https%3A%2F%2Fiam.googleapis.com%2F" + "projects%2F123%2Flocations%2Fglobal%2FworkloadIdentityPools%2Fci%2Fproviders%2Fforge"
		trade   = "sts.googleapis.com //iam.googleapis.com/" + provider + " urn:ietf:params:oauth:token-type:jwt " + cloudScope
		account = "iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" + robot + ":generateAccessToken"
		domain  = "machine /computeMetadata/v1/universe/universe-domain"
		machine = "machine /computeMetadata/v1/instance/service-accounts/default/token"
	)
	remote := config{"url": "https://runner.example/token?audience=me", "headers": config{"Authorization": "Bearer runner-canary"},
		"format": config{"type": "json", "subject_token_field_name": "value"}}
	for name, c := range map[string]struct {
		vars  []string
		asked []string
	}{
		"key of a service account":       {file(serviceAccount().write(t)), []string{byKey}},
		"user":                           {file(user().write(t)), []string{byUser}},
		"identity in a file":             {file(federated(t).write(t)), []string{trade}},
		"identity at a URL":              {file(federated(t).with("credential_source", remote).write(t)), []string{"runner /token?audience=me", trade}},
		"identity as a service account":  {file(federated(t).with("service_account_impersonation_url", impersonation(robot)).write(t)), []string{trade, account}},
		"user as a service account":      {file(config{"type": "impersonated_service_account", "service_account_impersonation_url": impersonation(robot), "source_credentials": user()}.write(t)), []string{byUser, account}},
		"job":                            {job(), []string{runner, trade}},
		"job as a service account":       {job("GOOGLE_SERVICE_ACCOUNT", robot), []string{runner, trade, account}},
		"developer":                      {home(t), []string{byUser}},
		"machine":                        {nil, []string{domain, machine}},
		"machine that knows its cloud":   {[]string{"universe", "googleapis.com"}, []string{domain, machine}},
		"file before job":                {append(file(serviceAccount().write(t)), job()...), []string{byKey}},
		"job before developer":           {append(home(t), job()...), []string{runner, trade}},
		"job that names no provider":     {append(job(), "GOOGLE_WORKLOAD_IDENTITY_PROVIDER", ""), []string{domain, machine}},
		"provider without a job":         {[]string{"GOOGLE_WORKLOAD_IDENTITY_PROVIDER", provider}, []string{domain, machine}},
		"no home":                        {[]string{"HOME", "", "APPDATA", ""}, []string{domain, machine}},
		"job that says which cloud":      {job("GOOGLE_CLOUD_UNIVERSE_DOMAIN", "googleapis.com"), []string{runner, trade}},
		"key that says which cloud":      {file(serviceAccount().with("universe_domain", "googleapis.com").write(t)), []string{byKey}},
		"key with a null as executable":  {file(serviceAccount().with("credential_source", config{"executable": nil}).write(t)), []string{byKey}},
		"key without a place for tokens": {file(serviceAccount().with("token_uri", "").write(t)), []string{byKey}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.vars...)
			w.universe = w.Env["universe"]
			run := w.Pull(w.provider().Login, logintest.Artifact("gcp", artifact))
			if run.Err != nil {
				t.Fatal(run.Err)
			}
			if !slices.Equal(w.Asked, c.asked) || !slices.Contains(run.Secrets, token(w.Issued)) {
				t.Errorf("asked %q, want %q; or the token is not kept secret", w.Asked, c.asked)
			}
			w.Tunnels(w.Env["GCE_METADATA_HOST"])
		})
	}
}

// An identity is shown to registries of its own cloud only.
func TestUniverses(t *testing.T) {
	const other = "oci://docker.s3nsregistry.fr/project/repo/app"
	part := func(universe string) config { return serviceAccount().with("universe_domain", universe) }
	impersonated := func(part config) config {
		return config{"type": "impersonated_service_account", "service_account_impersonation_url": impersonation(robot), "source_credentials": part}
	}
	for name, c := range map[string]struct {
		vars      []string
		universe  string
		url, fail string
	}{
		"machine there":           {nil, "s3nsapis.fr", other, ""},
		"machine there, registry": {nil, "s3nsapis.fr", artifact, "the identity is one of s3nsapis.fr, and the registry is of googleapis.com"},
		"machine":                 {nil, "", other, "the identity is one of googleapis.com, and the registry is of s3nsapis.fr"},
		"key there":               {file(serviceAccount().with("universe_domain", "s3nsapis.fr").write(t)), "", other, ""},
		"key there, registry":     {file(serviceAccount().with("universe_domain", "s3nsapis.fr").write(t)), "", artifact, "one of s3nsapis.fr"},
		"key":                     {file(serviceAccount().write(t)), "", other, "one of googleapis.com"},
		"part there":              {file(impersonated(part("s3nsapis.fr")).write(t)), "", other, ""},
		"part there, registry":    {file(impersonated(part("s3nsapis.fr")).write(t)), "", artifact, "one of s3nsapis.fr"},
		"parts of two clouds":     {file(impersonated(part("googleapis.com")).with("universe_domain", "s3nsapis.fr").write(t)), "", other, "one of googleapis.com"},
		"exchange of no cloud":    {file(federated(t).with("universe_domain", "s3nsapis.fr").with("token_url", "").write(t)), "", other, "token_url is missing: it says where s3nsapis.fr exchanges tokens"},
		"exchange there":          {file(federated(t).with("universe_domain", "s3nsapis.fr").with("token_url", "https://sts.s3nsapis.fr/v1/token").write(t)), "", other, ""},
		"job there":               {job("GOOGLE_CLOUD_UNIVERSE_DOMAIN", "s3nsapis.fr", "GOOGLE_SERVICE_ACCOUNT", robot), "", other, ""},
		"job there, registry":     {job("GOOGLE_CLOUD_UNIVERSE_DOMAIN", "s3nsapis.fr"), "", artifact, "one of s3nsapis.fr"},
		"job":                     {job(), "", other, "one of googleapis.com"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.vars...)
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
