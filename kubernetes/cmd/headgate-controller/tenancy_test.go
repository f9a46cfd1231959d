//go:debug x509usefallbackroots=1
package main

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// tokenServices are the token services of three providers and a registry of one of them, behind a
// proxy.
type tokenServices struct {
	proxy    *testenv.ProxyServer
	mu       sync.Mutex
	received map[string][]string // received tokens by host
}

func newTokenServices(t *testing.T) *tokenServices {
	const registry = "europe-docker.pkg.dev"
	w := &tokenServices{received: map[string][]string{}}
	ca, hosts := testenv.SystemCA(t), map[string]string{}
	services := httptest.NewUnstartedServer(w)
	names := []string{"sts.googleapis.com", "iamcredentials.googleapis.com", "sts.eu-west-1.amazonaws.com", "login.microsoftonline.com"}
	services.TLS = ca.ServerConfig(false, names...)
	services.StartTLS()
	t.Cleanup(services.Close)
	for _, name := range names {
		hosts[name+":443"] = services.Listener.Addr().String()
	}
	g := testenv.StartRegistry(t, testenv.RegistryConfig{CA: ca, Names: []string{registry}, Allow: func(r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		return user == "oauth2accesstoken" && strings.HasPrefix(password, "issued-")
	}})
	g.Push("project/app", "latest", testenv.Manifest{Layers: []testenv.Blob{testenv.TarGzip(t, fstest.MapFS{"a": {Data: []byte("1"), Mode: 0o644}})}})
	hosts[registry+":443"] = g.Host
	w.proxy = testenv.ServeProxy(t, testenv.ProxyConfig{Hosts: hosts})
	return w
}

// tokens returns the tokens that a service has received.
func (w *tokenServices) tokens(host string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.received[host])
}

func (w *tokenServices) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	reply := func(status int, body any) {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(status)
		json.NewEncoder(rw).Encode(body)
	}
	form := func(name string) string { return r.PostFormValue(name) }
	base := "https://" + r.Host + "/tenant"
	switch {
	case r.URL.Path == "/common/discovery/instance":
		reply(200, object{"tenant_discovery_endpoint": base + "/v2.0/.well-known/openid-configuration", "metadata": []any{object{"preferred_network": r.Host, "preferred_cache": r.Host, "aliases": []any{r.Host}}}})
		return
	case strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration"):
		reply(200, object{"issuer": base + "/v2.0", "authorization_endpoint": base + "/authorize", "token_endpoint": base + "/token"})
		return
	}
	w.mu.Lock()
	given := form("subject_token") + form("WebIdentityToken") + form("client_assertion")
	w.received[r.Host] = append(w.received[r.Host], given)
	n := len(w.received[r.Host])
	w.mu.Unlock()
	switch r.Host {
	case "sts.googleapis.com":
		reply(200, object{"access_token": fmt.Sprintf("issued-%d", n), "issued_token_type": "urn:ietf:params:oauth:token-type:access_token", "token_type": "Bearer", "expires_in": 3600})
	case "iamcredentials.googleapis.com":
		reply(200, object{"accessToken": "issued-impersonated", "expireTime": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
	case "sts.eu-west-1.amazonaws.com":
		rw.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(rw, `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Code>AccessDenied</Code><Message>not %s</Message></Error></ErrorResponse>`, given)
	default:
		reply(401, object{"error": "invalid_client", "error_description": "AADSTS70021: not " + given})
	}
}

// TestAccounts checks objects that act as service accounts, with tokens from the API server.
func TestAccounts(t *testing.T) {
	c := startCluster(t)
	ns, w := c.namespace(t), newTokenServices(t)
	const provider = "projects/123/locations/global/workloadIdentityPools/pool/providers/cluster"
	c.apply(t, secretOf(ns, "proxy", "Opaque", object{"address": w.proxy.URL}))
	robot := func(annotations object) {
		c.apply(t, object{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": object{"name": "robot", "namespace": ns, "annotations": annotations}})
	}
	apply := func(kind, name string, spec object) {
		c.apply(t, document(kind, ns, name, withFields(spec, object{"interval": "1h", "proxySecretRef": object{"name": "proxy"}})))
	}
	says := func(reason string, parts ...string) func(source.Object) bool {
		return func(obj source.Object) bool {
			failed := obj.Common().Condition("FetchFailed")
			return failed.Status == "True" && failed.Reason == reason && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(failed.Message, part) })
		}
	}
	google := object{"url": "oci://europe-docker.pkg.dev/project/app", "provider": "gcp"}
	apply("OCIRepository", "google", withFields(google, object{"serviceAccountName": "robot"}))

	r := c.start(t, ns, t.TempDir())
	obj := c.wait(t, "OCIRepository", ns, "google", "needs the gate", says("FeatureGateDisabled", "--feature-gates=ObjectLevelWorkloadIdentity=true"))
	testenv.Equal(t, obj.Common().Condition("Stalled").Reason, "FeatureGateDisabled")
	r.end()

	gate := []string{"--feature-gates=ObjectLevelWorkloadIdentity=true", "--default-service-account=robot", "--max-retry-delay=1s"}
	r = c.start(t, ns, t.TempDir(), gate...)
	apply("OCIRepository", "default", google)
	c.wait(t, "OCIRepository", ns, "google", "has no account", says("AuthenticationFailed", "service account "+ns+"/robot does not exist"))
	c.wait(t, "OCIRepository", ns, "default", "has no account", says("AuthenticationFailed", "service account "+ns+"/robot does not exist", "without spec.serviceAccountName"))
	annotations := object{
		"gcp.auth.fluxcd.io/workload-identity-provider": provider, "eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/reader",
		"azure.workload.identity/tenant-id": "tenant", "azure.workload.identity/client-id": "app",
	}
	robot(annotations)
	const right = `cannot create resource "serviceaccounts/token" in API group "" in the namespace`
	c.wait(t, "OCIRepository", ns, "google", "has no right", says("AuthenticationFailed", right, "grant it"))
	if said := strings.Join(r.missingPermissions(), "\n"); !strings.Contains(said, strings.TrimPrefix(right, "cannot ")) {
		t.Errorf("the log says that it is missing: %s", said)
	}
	for _, right := range rightsOf(t, "rbac-tokens.yaml") {
		const group = "rbac.authorization.k8s.io"
		head := object{"name": "tokens", "namespace": ns}
		c.apply(t, object{"apiVersion": group + "/v1", "kind": "Role", "metadata": head, "rules": []any{object{"apiGroups": []any{right.group}, "resources": []any{right.resource}, "verbs": []any{right.verb}}}})
		c.apply(t, object{
			"apiVersion": group + "/v1", "kind": "RoleBinding", "metadata": head,
			"roleRef": object{"apiGroup": group, "kind": "Role", "name": "tokens"}, "subjects": []any{object{"kind": "User", "apiGroup": group, "name": "controller"}},
		})
	}
	c.wait(t, "OCIRepository", ns, "google", "is ready", isReady)
	c.wait(t, "OCIRepository", ns, "default", "is ready", isReady)
	apply("Bucket", "amazon", object{"provider": "aws", "endpoint": "s3.eu-west-1.amazonaws.com", "bucketName": "bucket", "serviceAccountName": "robot"})
	apply("GitRepository", "microsoft", object{"provider": "azure", "url": "https://dev.azure.com/org/project/_git/app", "serviceAccountName": "robot"})
	c.wait(t, "Bucket", ns, "amazon", "is refused", says("InvalidProviderConfiguration", "AccessDenied", "service account "+ns+"/robot"))
	obj = c.wait(t, "GitRepository", ns, "microsoft", "is refused", says("InvalidProviderConfiguration", "AADSTS70021", "service account "+ns+"/robot"))
	if text, _ := source.EncodeJSON(obj); strings.Contains(string(text), "eyJ") {
		t.Errorf("a token shows: %s", text)
	}
	for host, audience := range map[string]string{
		"sts.googleapis.com": "//iam.googleapis.com/" + provider, "sts.eu-west-1.amazonaws.com": "sts.amazonaws.com", "login.microsoftonline.com": "api://AzureADTokenExchange",
	} {
		given := w.tokens(host)
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: append(given, "")[0], Audiences: []string{audience}}}
		testenv.Must(t, c.Create(t.Context(), review))
		if s := review.Status; !s.Authenticated || s.User.Username != "system:serviceaccount:"+ns+":robot" || !slices.Equal(s.Audiences, []string{audience}) {
			t.Errorf("%s was given tokens of %+v", host, s)
		}
	}

	// Both objects of Google share one issued token, and another run reuses it. A changed account
	// gets a new token.
	once := len(w.tokens("sts.googleapis.com"))
	if once > 2 { // the two objects may request tokens concurrently
		t.Errorf("%d exchanges of tokens for one account", once)
	}
	handled := func(value string) func(source.Object) bool {
		return func(obj source.Object) bool { return isReady(obj) && obj.Common().LastHandledReconcileAt == value }
	}
	c.patch(t, "OCIRepository", ns, "google", false, `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"1"}}}`)
	c.wait(t, "OCIRepository", ns, "google", "ran again", handled("1"))
	testenv.Equal(t, len(w.tokens("sts.googleapis.com")), once, "exchanges after another run")
	robot(object{"iam.gke.io/gcp-service-account": "robot@project.iam.gserviceaccount.com"})
	waitUntil(t, "the account acts as another one", func() bool { return len(w.tokens("iamcredentials.googleapis.com")) > 0 })
}

// push calls a webhook as GitHub does after a push, and returns the response status. If token is
// "", the request is not signed.
func push(t *testing.T, url, token string) int {
	t.Helper()
	const body = `{"ref":"refs/heads/main"}`
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	testenv.Must(t, err)
	mac := hmac.New(sha256.New, []byte(token))
	fmt.Fprint(mac, body)
	req.Header.Set("X-GitHub-Event", "push")
	if token != "" {
		req.Header.Set("X-Hub-Signature-256", fmt.Sprintf("sha256=%x", mac.Sum(nil)))
	}
	resp, err := http.DefaultClient.Do(req)
	testenv.Must(t, err)
	resp.Body.Close()
	return resp.StatusCode
}

// TestHooks checks that a push triggers a run in spite of a long interval.
func TestHooks(t *testing.T) {
	c := startCluster(t)
	ns := c.namespace(t)
	repo := testenv.NewRepo(t)
	commit := func(text string) string {
		return repo.Commit(testenv.Commit{Branch: "main", Message: text, Files: fstest.MapFS{"a": {Data: []byte(text)}}})
	}
	at := func(id string) func(source.Object) bool {
		return func(obj source.Object) bool {
			return isReady(obj) && obj.Artifact() != nil && obj.Artifact().Revision == "main@sha1:"+id
		}
	}
	git := testenv.ServeGit(t, testenv.GitConfig{}, repo)
	first := commit("first")
	for _, name := range []string{"app", "other"} {
		c.apply(t, document("GitRepository", ns, name, object{"url": git.Repo(), "interval": "1h", "ref": object{"branch": "main"}}))
	}
	c.patch(t, "GitRepository", ns, "other", false, `{"metadata":{"annotations":{"hook.headgate.dev/secret":"none"}}}`)
	args := []string{"--hooks-addr=127.0.0.1:0", "--hook-secret=hooks", "--enable-leader-election", "--leader-election-retry-period=200ms"}
	r := c.start(t, ns, t.TempDir(), args...)
	for _, name := range []string{"app", "other"} {
		c.wait(t, "GitRepository", ns, name, "is ready", at(first))
	}
	call := func(r *localController, path, token string) int {
		t.Helper()
		waitUntil(t, "webhooks are served", func() bool { return r.loggedValue("webhooks are served", "addr") != "" })
		return push(t, "http://"+r.loggedValue("webhooks are served", "addr")+path, token)
	}
	path := "/hook/gitrepository/" + ns + "/"
	token := func(value string) { c.apply(t, secretOf(ns, "hooks", "Opaque", object{"token": value})) }
	testenv.Equal(t, call(r, path+"app", "s3cret"), 401, "without a Secret")
	token("s3cret")
	second := commit("second")
	for what, want := range map[string]int{path + "app": 401, path + "other": 401, path + "none": 401, "/api/v1/sources": 404, "/readyz": 404, "/metrics": 404, "/": 404} {
		testenv.Equal(t, call(r, what, ""), want, what)
		testenv.Equal(t, call(r, what, "wrong"), want, what)
	}
	testenv.Equal(t, call(r, path+"other", "s3cret"), 401, "the Secret that the object names is missing")
	testenv.Equal(t, call(r, path+"app", "s3cret"), 202)
	c.wait(t, "GitRepository", ns, "app", "is at the second commit", at(second))
	token("rotated")
	testenv.Equal(t, call(r, path+"app", "s3cret"), 401, "an old token")
	third := commit("third")
	testenv.Equal(t, call(r, path+"app", "rotated"), 202)
	c.wait(t, "GitRepository", ns, "app", "is at the third commit", at(third))
	testenv.Equal(t, c.get(t, "GitRepository", ns, "other").Artifact().Revision, "main@sha1:"+first)

	waiting := c.begin(t, ns, t.TempDir(), args...)
	waitUntil(t, "the second waits", func() bool { return waiting.readyz() == http.StatusInternalServerError })
	testenv.Equal(t, call(waiting, path+"app", "rotated"), 503, "without the lease")
}

// TestEvents compares the emitted events with those of the reference.
func TestEvents(t *testing.T) {
	c := startCluster(t)
	ns := c.namespace(t)
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Message: "first", Files: fstest.MapFS{"a": {Data: []byte("a")}}})
	git := testenv.ServeGit(t, testenv.GitConfig{}, repo)
	var told receiver
	receives := httptest.NewServer(&told)
	t.Cleanup(receives.Close)
	doc := document("GitRepository", ns, "app", object{"url": git.Repo(), "interval": "1h", "ref": object{"branch": "main"}})
	doc["metadata"].(object)["annotations"] = object{"event.toolkit.fluxcd.io/team": "shop", "example.org/other": "x"}
	c.apply(t, doc)
	c.start(t, ns, t.TempDir(), "--events-addr="+receives.URL, "--min-retry-delay=5m")
	obj := c.wait(t, "GitRepository", ns, "app", "is ready", isReady)
	posted := func(reason string) (found []source.Event) {
		told.mu.Lock()
		defer told.mu.Unlock()
		for _, e := range told.events {
			if e.Reason == reason {
				found = append(found, e)
			}
		}
		return found
	}
	written := func(reason string) (found []corev1.Event) {
		list := new(corev1.EventList)
		testenv.Must(t, c.List(t.Context(), list, client.InNamespace(ns)))
		for _, e := range list.Items {
			if e.Reason == reason {
				found = append(found, e)
			}
		}
		return found
	}
	waitUntil(t, "the artifact is announced", func() bool { return len(posted("NewArtifact")) == 1 && len(written("NewArtifact")) == 1 })
	host, err := os.Hostname()
	testenv.Must(t, err)
	head, e, k := obj.Head(), posted("NewArtifact")[0], written("NewArtifact")[0]
	metadata := map[string]string{
		"source.toolkit.fluxcd.io/revision": obj.Artifact().Revision, "source.toolkit.fluxcd.io/digest": obj.Artifact().Digest, "event.toolkit.fluxcd.io/team": "shop",
	}
	about := source.ObjectReference{APIVersion: source.ReferenceGroup + "/v1", Kind: "GitRepository", Namespace: ns, Name: "app", UID: head.Metadata.UID}
	if e.Timestamp.IsZero() || time.Since(e.Timestamp) > time.Hour {
		t.Errorf("the event is of %s", e.Timestamp)
	}
	e.Timestamp = time.Time{}
	testenv.Equal(t, e, source.Event{
		InvolvedObject: about, Severity: "info", Message: "stored artifact for commit 'first'", Reason: "NewArtifact", Metadata: metadata,
		Controller: "source-controller", Instance: host,
	}, "posted")
	if !maps.Equal(k.Annotations, metadata) || k.Type != "Normal" || k.Message != e.Message || k.Source.Component != "source-controller" ||
		k.InvolvedObject != (corev1.ObjectReference{APIVersion: about.APIVersion, Kind: about.Kind, Namespace: ns, Name: "app", UID: k.InvolvedObject.UID}) || string(k.InvolvedObject.UID) != about.UID {
		t.Errorf("written: %+v", k)
	}

	// A repeated failure is reported once.
	c.patch(t, "GitRepository", ns, "app", false, `{"spec":{"ref":{"branch":"none"}}}`)
	for _, value := range []string{"1", "2", "3"} {
		c.patch(t, "GitRepository", ns, "app", false, `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"`+value+`"}}}`)
		c.wait(t, "GitRepository", ns, "app", "has failed again", func(obj source.Object) bool {
			return obj.Common().Condition("FetchFailed").Status == "True" && obj.Common().LastHandledReconcileAt == value
		})
	}
	waitUntil(t, "the failure is told", func() bool {
		return len(posted("GitOperationFailed")) > 0 && len(written("GitOperationFailed")) > 0
	})
	c.patch(t, "GitRepository", ns, "app", false, `{"spec":{"ref":{"branch":"main"}}}`)
	c.wait(t, "GitRepository", ns, "app", "is ready again", isReady)
	waitUntil(t, "the recovery is told", func() bool { return len(posted("Succeeded")) == 1 && len(written("Succeeded")) == 1 })
	failures := written("GitOperationFailed")
	if len(posted("GitOperationFailed")) != 1 || len(failures) != 1 || failures[0].Count != 1 || failures[0].Type != "Warning" {
		t.Errorf("posted %+v, written %+v, want the failure once", posted("GitOperationFailed"), failures)
	}
	testenv.Equal(t, posted("GitOperationSucceeded"), nil, "traces")

	// The metrics have the names that dashboards use.
	testenv.Equal(t, series(t, ns), []string{"gotk_reconcile_condition GitRepository app Ready True 1", "gotk_reconcile_duration_seconds GitRepository app", "gotk_suspend_status GitRepository app 0"})
	c.patch(t, "GitRepository", ns, "app", false, `{"spec":{"suspend":true}}`)
	waitUntil(t, "it is suspended", func() bool {
		return slices.Contains(series(t, ns), "gotk_suspend_status GitRepository app 1")
	})
	testenv.Must(t, c.Delete(t.Context(), emptyObject("GitRepository", ns, "app")))
	waitUntil(t, "its metrics are gone", func() bool { return len(series(t, ns)) == 0 })
}

// series returns the reference's metrics about a namespace.
func series(t *testing.T, namespace string) (all []string) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	testenv.Must(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if !strings.HasPrefix(f.GetName(), "gotk_") || labels["namespace"] != namespace {
				continue
			}
			text := f.GetName() + " " + labels["kind"] + " " + labels["name"]
			for _, name := range []string{"type", "status"} {
				if labels[name] != "" {
					text += " " + labels[name]
				}
			}
			if g := m.GetGauge(); g != nil {
				text += fmt.Sprintf(" %v", g.GetValue())
			}
			all = append(all, text)
		}
	}
	return all
}

// TestReferenceFlags checks that all flags and variables of source-controller are accepted, and
// that each has an effect unless a warning says why not.
func TestReferenceFlags(t *testing.T) {
	file, err := os.Open("testdata/source-controller-v1.9.5.flags")
	testenv.Must(t, err)
	defer file.Close()
	none := func(string) (string, bool) { return "", false }
	plain, _, err := parse(nil, none, t.Output())
	testenv.Must(t, err)
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := lines.Text()
		name, value, _ := strings.Cut(line, "=")
		args, env := []string{line}, none
		switch {
		case strings.HasPrefix(line, "#"):
			continue
		case !strings.HasPrefix(line, "--"):
			args, env = nil, func(asked string) (string, bool) { return value, asked == name }
		case name == "--default-service-account":
			args = append(args, "--feature-gates=ObjectLevelWorkloadIdentity=true")
		}
		f, warnings, err := parse(args, env, t.Output())
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		said := slices.ContainsFunc(warnings, func(text string) bool { return strings.HasPrefix(text, name) })
		if same := fmt.Sprint(*f) == fmt.Sprint(*plain); same != said && name != "--feature-gates" {
			t.Errorf("%s: without effect %v, warnings %q", line, same, warnings)
		}
	}
}
