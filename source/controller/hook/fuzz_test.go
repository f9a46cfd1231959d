package hook_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func FuzzPayload(f *testing.F) {
	for i, body := range []string{gitPush("refs/heads/x", someHash), gitLabPush("push", "refs/heads/x", noHash), bitbucketCloud("null", "null"), bitbucketServer("refs/heads/x", "ADD"),
		distribution("push", manifest, "team/app", "1.0"), harbor("PUSH_ARTIFACT", "1"), harborCloudEvent("harbor.artifact.pushed", "1"), google("INSERT", "a/b:c"), githubPackage("package", "a", "b"),
		acr("push", "a", "b"), quay("a", "b"), dockerHub("a", "b"), azureDevOps("refs/heads/x", noHash), nexus("CREATED", "a", "b"), "payload=%7B%7D"} {
		f.Add(body, "X-GitHub-Event", "push", i%2 == 0)
		f.Add(body, "X-Gitlab-Event", "System Hook", i%2 == 0)
		f.Add(body, "X-Event-Key", "repo:push", i%2 == 0)
	}
	d := newDesk(followers)
	d.open = true
	f.Fuzz(func(t *testing.T, body, name, event string, git bool) {
		object := "/hook/oci/app"
		if git {
			object = "/hook/git/main"
		}
		r := httptest.NewRequest(http.MethodPost, object, strings.NewReader(body))
		r.Header[http.CanonicalHeaderKey(name)] = []string{event}
		status, reason, runs := d.serve(t, r)
		d.outcomes = nil
		switch {
		case status == 202 && (runs == 1) == (reason == run) && (runs == 1) != strings.HasPrefix(reason, "ignored: "):
		case status == 200 && reason == "pong" && runs == 0:
		case status == 415 && http.CanonicalHeaderKey(name) == "Content-Encoding" || status == 413:
		default:
			t.Errorf("%d %q, %d runs", status, reason, runs)
		}
	})
}

// No header that is made without the token triggers a run.
func FuzzSignature(f *testing.F) {
	for _, name := range []string{"X-Hub-Signature-256", "X-Signature", "X-Gitea-Signature", "X-Nexus-Webhook-Signature", "Authorization", "X-Gitlab-Token"} {
		for _, value := range []string{"sha256=", "sha256=00", "=", "Bearer ", "Basic Og==", "sha1=da39a3ee5e6b4b0d3255bfef95601890afd80709"} {
			f.Add(name, value, "{}", "x")
		}
	}
	d := newDesk(signedApp)
	d.open = true
	f.Fuzz(func(t *testing.T, name, value, body, parameter string) {
		r := httptest.NewRequest(http.MethodPost, path+"?token="+url.QueryEscape(parameter), strings.NewReader(body))
		r.Header[http.CanonicalHeaderKey(name)] = []string{value}
		if strings.Contains(value+parameter, token) {
			t.Skip()
		}
		status, _, runs := d.serve(t, r)
		d.outcomes = nil
		if runs != 0 || status != 401 && status != 413 && status != 415 {
			t.Errorf("%d, %d runs", status, runs)
		}
	})
}
