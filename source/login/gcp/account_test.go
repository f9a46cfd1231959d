package gcp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source/login/internal/logintest"
)

// TestAccount logs in as service accounts of a cluster, whatever identity the environment
// gives the program.
func TestAccount(t *testing.T) {
	const (
		providerKey, emailKey = "gcp.auth.fluxcd.io/workload-identity-provider", "iam.gke.io/gcp-service-account"
		pool                  = "identitynamespace:project.svc.id.goog:https://container.googleapis.com/v1/projects/project/locations/europe/clusters/here"
		impersonated          = "iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/" + serviceAccountEmail + ":generateAccessToken"
		ask                   = "machine /computeMetadata/v1/"
	)
	trade := func(pool string) string {
		return "sts.googleapis.com " + pool + " urn:ietf:params:oauth:token-type:jwt " + cloudScope
	}
	gke := []string{ask + "project/project-id", ask + "instance/attributes/cluster-location", ask + "instance/attributes/cluster-name"}
	for name, c := range map[string]struct {
		annotations []string
		machine     string // kind of machine
		url         string
		asked       []string
		say         string // of the error
	}{
		"provider":               {[]string{providerKey, provider}, "", artifact, []string{"account //iam.googleapis.com/" + provider, trade("//iam.googleapis.com/" + provider)}, ""},
		"provider and account":   {[]string{providerKey, provider, emailKey, serviceAccountEmail}, "", artifact, []string{"account //iam.googleapis.com/" + provider, trade("//iam.googleapis.com/" + provider), impersonated}, ""},
		"cluster of GKE":         {nil, "GKE", artifact, append(gke[:3:3], "account project.svc.id.goog", trade(pool)), ""},
		"cluster and account":    {[]string{emailKey, serviceAccountEmail}, "GKE", artifact, append(gke[:3:3], "account project.svc.id.goog", trade(pool), impersonated), ""},
		"no cluster of GKE":      {nil, "", artifact, gke[:1], "service account default/robot: |annotation " + providerKey + " is missing"},
		"machine that fails":     {nil, "failing", artifact, gke[:1], "status 500"},
		"no provider":            {[]string{providerKey, "../x"}, "", artifact, nil, "annotation " + providerKey + ": want projects/NUMBER"},
		"no account":             {[]string{providerKey, provider, emailKey, "a/b"}, "", artifact, nil, "annotation " + emailKey + ": want the e-mail"},
		"another cloud":          {[]string{providerKey, provider}, "", "oci://docker.s3nsregistry.fr/project/repo/app", nil, "the identity is one of googleapis.com"},
		"refused":                {[]string{providerKey, provider}, "", artifact, []string{"account //iam.googleapis.com/" + provider, trade("//iam.googleapis.com/" + provider)}, "status 400|check the annotations of service account default/robot"},
		"no token of it":         {[]string{providerKey, provider}, "", artifact, []string{"account //iam.googleapis.com/" + provider}, "tokens of default/robot are forbidden"},
		"somebody else's server": {[]string{providerKey, provider}, "", "oci://registry.example/app", nil, "spec.url"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newServices(t, fileEnv(serviceAccount().write(t))...)
			machine := logintest.ServeLoopback(t, func(rw http.ResponseWriter, r *http.Request) {
				w.Note("machine %s", r.URL)
				rw.Header().Set("Metadata-Flavor", "Google")
				value := map[string]string{"project-id": "project", "cluster-location": "europe\n", "cluster-name": "here"}[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]
				switch {
				case c.machine == "failing":
					rw.WriteHeader(http.StatusInternalServerError)
				case c.machine == "":
					rw.WriteHeader(http.StatusNotFound)
				default:
					fmt.Fprint(rw, value)
				}
			})
			w.Env["GCE_METADATA_HOST"] = logintest.Host(machine)
			w.Revoked = name == "no token of it"
			if name == "refused" {
				w.SetAnswer(func(rw http.ResponseWriter, r *http.Request) {
					logintest.Reply(rw, 400, map[string]any{"error": "invalid_grant", "error_description": "not " + r.PostFormValue("subject_token")})
				})
			}
			p, account := w.provider(), w.Account(c.annotations...)
			got, err := w.LogIn(p.Login, "gcp", c.url, account)
			if c.say != "" {
				logintest.Run{Reason: "x", Err: err}.RequireFailure(t, "x", c.say)
			} else if err != nil || got.Password != token(w.Issued) {
				t.Fatalf("%+v, %v", got, err)
			}
			testenv.Equal(t, w.Requests, c.asked, "asked")
			if c.say != "" {
				return
			}
			if again, err := w.LogIn(p.Login, "gcp", c.url, account); err != nil || again.Password != got.Password {
				t.Errorf("%+v, %v, want the same", again, err)
			}
			issued := w.Issued
			if other, err := w.LogIn(p.Login, "gcp", c.url, w.Account(append(c.annotations, "other", "1")...)); err != nil || other.Password == got.Password || w.Issued == issued {
				t.Errorf("%+v, %v: the account is another one now", other, err)
			}
			if credential, err := p.Login(t.Context(), w.Request("gcp", c.url)); err != nil || credential.Password != token(w.Issued) || len(w.RequestsContaining("jwt-bearer")) != 1 {
				t.Errorf("the program itself: %+v, %v, asked %q", credential, err, w.Requests)
			}
			w.RequireTunnels(w.Env["GCE_METADATA_HOST"])
		})
	}
}
