package hook_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/source/serve/hook"
)

func TestProof(t *testing.T) {
	const body = "{}"
	refused := 401
	for name, test := range map[string]struct {
		header map[string]string
		query  string
		want   int
	}{
		"github":                    {map[string]string{"X-Hub-Signature-256": "sha256=" + sum(sha256.New, token, body)}, "", 202},
		"github, other key":         {map[string]string{"X-Hub-Signature-256": "sha256=" + sum(sha256.New, "x", body)}, "", refused},
		"github, other body":        {map[string]string{"X-Hub-Signature-256": "sha256=" + sum(sha256.New, token, body+" ")}, "", refused},
		"github, SHA-1":             {map[string]string{"X-Hub-Signature": "sha1=" + sum(sha1.New, token, body)}, "", refused},
		"github, SHA-1 as 256":      {map[string]string{"X-Hub-Signature-256": "sha1=" + sum(sha1.New, token, body)}, "", refused},
		"bitbucket":                 {map[string]string{"X-Hub-Signature": "sha256=" + sum(sha256.New, token, body)}, "", 202},
		"no hash named":             {map[string]string{"X-Hub-Signature-256": sum(sha256.New, token, body)}, "", refused},
		"upper case":                {map[string]string{"X-Hub-Signature-256": "SHA256=" + strings.ToUpper(sum(sha256.New, token, body))}, "", 202},
		"short":                     {map[string]string{"X-Hub-Signature-256": "sha256=" + sum(sha256.New, token, body)[:10]}, "", refused},
		"empty signature":           {map[string]string{"X-Hub-Signature-256": "sha256="}, "", refused},
		"no hexadecimal digits":     {map[string]string{"X-Hub-Signature-256": "sha256=zz"}, "", refused},
		"gitea":                     {map[string]string{"X-Gitea-Signature": sum(sha256.New, token, body)}, "", 202},
		"forgejo":                   {map[string]string{"X-Forgejo-Signature": sum(sha256.New, token, body)}, "", 202},
		"gogs":                      {map[string]string{"X-Gogs-Signature": sum(sha256.New, token, body)}, "", 202},
		"gitea, SHA-1":              {map[string]string{"X-Gitea-Signature": sum(sha1.New, token, body)}, "", refused},
		"generic, SHA-256":          {map[string]string{"X-Signature": "sha256=" + sum(sha256.New, token, body)}, "", 202},
		"generic, SHA-512":          {map[string]string{"X-Signature": "sha512=" + sum(sha512.New, token, body)}, "", 202},
		"generic, SHA-1":            {map[string]string{"X-Signature": "sha1=" + sum(sha1.New, token, body)}, "", refused},
		"generic, unknown hash":     {map[string]string{"X-Signature": "md5=" + sum(sha256.New, token, body)}, "", refused},
		"nexus":                     {map[string]string{"X-Nexus-Webhook-Signature": sum(sha1.New, token, body)}, "", 202},
		"gitlab":                    {map[string]string{"X-Gitlab-Token": token}, "", 202},
		"gitlab, longer":            {map[string]string{"X-Gitlab-Token": token + "x"}, "", refused},
		"gitlab, a part":            {map[string]string{"X-Gitlab-Token": token[:5]}, "", refused},
		"harbor":                    {map[string]string{"Authorization": token}, "", 202},
		"bearer":                    {map[string]string{"Authorization": "bearer " + token}, "", 202},
		"basic":                     {map[string]string{"Authorization": "Basic " + url.UserPassword("u", token).String()}, "", refused},
		"azure devops":              {map[string]string{"Authorization": "Basic dTp0MGtlbi1vZi10aGUtaG9vaw=="}, "", 202},
		"other bearer":              {map[string]string{"Authorization": "Bearer x"}, "", refused},
		"parameter":                 {nil, "?token=" + token, 202},
		"other parameter":           {nil, "?token=x", refused},
		"empty parameter":           {nil, "?token=", refused},
		"nothing":                   {nil, "", refused},
		"one of several is right":   {map[string]string{"X-Hub-Signature-256": "sha256=00", "X-Gitea-Signature": sum(sha256.New, token, body)}, "", 202},
		"HMAC with the empty key":   {map[string]string{"X-Hub-Signature-256": "sha256=" + sum(sha256.New, "", body)}, "", refused},
		"body with a line break in": {map[string]string{"Authorization": "Bearer\t" + token}, "", refused},
	} {
		d := newReceiver(signedApp)
		d.open = true // which does not matter where there is a Secret
		status, reason, runs := d.post(t, path+test.query, body, test.header)
		if status != test.want || (runs == 1) != (test.want == 202) {
			t.Errorf("%s: %d %s, %d runs; %s", name, status, reason, runs, d.outcomes[0].Reason)
		}
	}
}

// Who cannot sign learns nothing about which objects there are.
func TestRefusalsAreAlike(t *testing.T) {
	d := newReceiver(signedApp + `
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: plain}, spec: {url: "https://h/o/app", interval: 1h}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: lost, annotations: {hook.headgate.dev/secret: none}}, spec: {url: "https://h/o/app", interval: 1h}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: void, annotations: {hook.headgate.dev/secret: ""}}, spec: {url: "https://h/o/app", interval: 1h}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: blank, annotations: {hook.headgate.dev/secret: blank}}, spec: {url: "https://h/o/app", interval: 1h}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: line, annotations: {hook.headgate.dev/secret: line}}, spec: {url: "https://h/o/app", interval: 1h}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: broken, annotations: {hook.headgate.dev/secret: broken}}, spec: {url: "https://h/o/app", interval: 1h}}
`)
	d.secrets["default/blank"] = map[string]string{"password": token}
	d.secrets["default/line"] = map[string]string{"token": token + "\n"}
	d.secrets["default/broken"] = map[string]string{"token": "broken"}
	var first string
	for name, logged := range map[string]string{
		"app": "X-Hub-Signature-256 is not by the token of secret default/hook", "plain": "has no Secret for webhooks", "nobody": "there is no object GitRepository/default/nobody",
		"lost": "secret default/none does not exist", "void": "secret default/ does not exist", "blank": "key token is missing", "line": "key token ends in a line break", "broken": "store of secrets is broken",
	} {
		r := httptest.NewRequest(http.MethodPost, "/hook/git/"+name, strings.NewReader("{}"))
		r.Header.Set("X-Hub-Signature-256", "sha256=00")
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		got := fmt.Sprint(w.Code, w.Header(), w.Body)
		if first == "" {
			first = got
		}
		if got != first || w.Code != 401 {
			t.Errorf("%s: %s\nothers: %s", name, got, first)
		}
		if reason := d.outcomes[len(d.outcomes)-1].Reason; !strings.Contains(reason, logged) || strings.Contains(reason, token) {
			t.Errorf("%s: %s", name, reason)
		}
	}
	if d.runs != 0 {
		t.Error("something ran")
	}
}

// Objects without a Secret are for those whom the server knows, or for all; a Secret of the
// server need not exist in each namespace.
func TestWithoutSecret(t *testing.T) {
	const document = `{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: app, namespace: shop}, spec: {url: "https://h/o/app", interval: 1h}}`
	d := newReceiver(document)
	for name, test := range map[string]struct {
		secret string
		data   map[string]string
		open   bool
		path   string
		token  string
		want   int
	}{
		"open":                     {"", nil, true, "/hook/git/shop/app", "", 202},
		"closed":                   {"", nil, false, "/hook/git/shop/app", "", 401},
		"open, no object":          {"", nil, true, "/hook/git/app", "", 404},
		"closed, no object":        {"", nil, false, "/hook/git/app", "", 401},
		"Secret of the server":     {"hooks", map[string]string{"token": token}, true, "/hook/git/shop/app", token, 202},
		"not signed":               {"hooks", map[string]string{"token": token}, true, "/hook/git/shop/app", "", 401},
		"none here, open":          {"hooks", nil, true, "/hook/git/shop/app", "", 202},
		"none here, closed":        {"hooks", nil, false, "/hook/git/shop/app", token, 401},
		"Secret without token":     {"hooks", map[string]string{"x": "y"}, true, "/hook/git/shop/app", "", 401},
		"Secret cannot be read":    {"hooks", map[string]string{"token": "broken"}, true, "/hook/git/shop/app", "", 401},
		"no object, with a Secret": {"hooks", map[string]string{"token": token}, false, "/hook/git/shop/other", token, 401},
	} {
		d.serverSecret(test.secret, test.data)
		d.open = test.open
		if status, reason, _ := d.post(t, test.path, "", map[string]string{"X-Gitlab-Token": test.token}); status != test.want {
			t.Errorf("%s: %d %s", name, status, reason)
		}
	}
	d.Receiver.Allowed, d.Receiver.Secret = nil, ""
	if status, _, _ := d.post(t, "/hook/git/shop/app", "", nil); status != 401 {
		t.Error("nobody is asked, and all are let in")
	}
}

// A token that is changed counts at once.
func TestRotation(t *testing.T) {
	d := newReceiver(signedApp)
	d.secrets["default/hook"] = map[string]string{"token": "n3w-token"}
	if status, _, _ := d.post(t, path, "", map[string]string{"X-Gitlab-Token": token}); status != 401 {
		t.Error("the old token counts")
	}
	if status, _, _ := d.post(t, path, "", map[string]string{"X-Gitlab-Token": "n3w-token"}); status != 202 {
		t.Error("the new token does not count")
	}
}

func TestRequests(t *testing.T) {
	auth := map[string]string{"Authorization": token}
	d := newReceiver(signedApp)
	for path, want := range map[string]int{
		"/hook/gitrepository/app": 202, "/hook/GitRepository/default/app": 202, "/hook/gitrepositories/app": 202,
		"/hook/": 404, "/hook/app": 404, "/hook/secret/app": 404, "/hook/git/default/app/": 404, "/hook/git/default/app/x": 404, "/hook/git//app": 404,
		"/hook/git/default/..": 404, "/hook/git/default/A": 404, "/hook/git/default/a%0Ab": 404, "/hook/git/default%2Fapp": 202, "/other/git/app": 404,
	} {
		if status, reason, _ := d.post(t, path, "{}", auth); status != want {
			t.Errorf("%s: %d %s", path, status, reason)
		}
	}
	large := strings.Repeat(" ", hook.MaxBody)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Close()
	for name, test := range map[string]struct {
		request *http.Request
		want    int
	}{
		"GET":                   {httptest.NewRequest("GET", path, nil), 405},
		"PUT":                   {httptest.NewRequest("PUT", path, nil), 405},
		"as large as it may be": {httptest.NewRequest("POST", path, strings.NewReader(large)), 202},
		"too large":             {httptest.NewRequest("POST", path, strings.NewReader(large+" ")), 413},
		"too large, chunks":     {httptest.NewRequest("POST", path, struct{ io.Reader }{strings.NewReader(large + " ")}), 413},
		"chunks":                {httptest.NewRequest("POST", path, struct{ io.Reader }{strings.NewReader("{}")}), 202},
		"no body":               {httptest.NewRequest("POST", path, nil), 202},
		"ping of GitHub":        {event("X-GitHub-Event", "ping"), 200},
		"ping of Bitbucket":     {event("X-Event-Key", "diagnostics:ping"), 200},
		"another event":         {event("X-GitHub-Event", "issues"), 202},
		"no JSON":               {httptest.NewRequest("POST", path, strings.NewReader("\x00[{")), 202},
		"breaks off":            {httptest.NewRequest("POST", path, io.MultiReader(strings.NewReader("{"), broken{})), 400},
	} {
		test.request.Header.Set("Authorization", token)
		if status, reason, runs := d.serve(t, test.request); status != test.want || (runs == 1) != (status == 202) {
			t.Errorf("%s: %d %s", name, status, reason)
		}
	}
	r := httptest.NewRequest("POST", path, &zipped)
	r.Header.Set("Content-Encoding", "gzip")
	if status, _, _ := d.serve(t, r); status != 415 {
		t.Errorf("gzip: %d", status)
	}
}

func event(header, name string) *http.Request {
	r := httptest.NewRequest("POST", path, strings.NewReader("{}"))
	r.Header.Set(header, name)
	return r
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("connection \x1b reset") }

func TestRequestFails(t *testing.T) {
	d := newReceiver(signedApp)
	for err, want := range map[error]string{
		fmt.Errorf("it is: %w", hook.ErrSuspended): "202 ignored: it is suspended",
		fs.ErrNotExist:                  "404 there is no such object",
		errors.New("no more " + "room"): "503 it cannot be checked now: try again later",
	} {
		d.err = err
		status, reason, _ := d.post(t, path, "{}", map[string]string{"Authorization": token})
		if got := fmt.Sprint(status, " ", reason); got != want {
			t.Errorf("%v: %s", err, got)
		}
	}
}

// A receiver behind a real server, with a body in chunks.
func TestServer(t *testing.T) {
	d := newReceiver(signedApp)
	server := httptest.NewServer(d)
	defer server.Close()
	body := `{"ref":"refs/heads/master"}`
	req, err := http.NewRequest("POST", server.URL+path, struct{ io.Reader }{strings.NewReader(body)})
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Hub-Signature-256", "sha256="+sum(sha256.New, token, body))
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 202 || d.runs != 1 {
		t.Error(resp.Status)
	}
}
