package serve_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

const (
	hookToken = "t0ken-of-the-hook"
	hookPath  = "/hook/git/app"
	signedApp = `{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: app, annotations: {hook.headgate.dev/secret: hook}}, spec: {url: "https://h/o/app", interval: 1h}}`
)

// hookFixture is a fixture for calls of webhooks, with their Secrets.
type hookFixture struct {
	*fixture
	secrets map[string]map[string]string
	log     *logBuffer
}

// withHookFixture calls test with a fixture of documents whose objects have run.
func withHookFixture(t *testing.T, documents string, adjust func(*serve.Config), test func(*hookFixture)) {
	t.Helper()
	h := &hookFixture{secrets: map[string]map[string]string{"default/hook": {"token": hookToken}}, log: new(logBuffer)}
	withFixture(t, objects(t, documents), func(r *fixture) {
		r.feed.now.Secrets, r.Statuses = h, new(memoryStatuses)
		if r.Config.Log = slog.New(slog.NewTextHandler(h.log, nil)); adjust != nil {
			adjust(&r.Config)
		}
	}, func(r *fixture) {
		h.fixture = r
		test(h)
	})
}

func (h *hookFixture) Secret(_ context.Context, namespace, name string) (source.Secret, error) {
	s := source.Secret{Data: map[string][]byte{}}
	data, found := h.secrets[namespace+"/"+name]
	if !found {
		return s, fmt.Errorf("secret %s/%s: %w", namespace, name, fs.ErrNotExist)
	}
	for key, value := range data {
		if value == "broken" {
			return s, errors.New("the store of secrets is broken")
		}
		s.Data[key] = []byte(value)
	}
	return s, nil
}

func (h *hookFixture) PullSecrets(context.Context, string, string) ([]source.Secret, error) {
	return nil, errors.New("none")
}

// post sends a webhook and returns status and reason of the answer.
func (h *hookFixture) post(path, body string, header map[string]string) (int, string) {
	h.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	for name, value := range header {
		r.Header.Set(name, value)
	}
	return h.answer(r)
}

func (h *hookFixture) answer(r *http.Request) (int, string) {
	h.Helper()
	w := httptest.NewRecorder()
	h.Handler().ServeHTTP(w, r)
	var reply struct {
		Status int
		Reason string
	}
	if err := json.Unmarshal(w.Body.Bytes(), &reply); w.Code != 404 && w.Code != 405 && (err != nil || reply.Status != w.Code) {
		h.Errorf("%v: %s", err, w.Body)
	}
	if text := w.Body.String() + h.log.String(); strings.Contains(text, hookToken) || strings.Contains(text, "\x1b") {
		h.Errorf("%q is not to be shown", text)
	}
	return w.Code, reply.Reason
}

func hmacHex(of func() hash.Hash, key, body string) string {
	mac := hmac.New(of, []byte(key))
	mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}

func TestHookProof(t *testing.T) {
	const body = "{}"
	refused := 401
	rows := map[string]struct {
		header map[string]string
		query  string
		want   int
	}{
		"github":                    {map[string]string{"X-Hub-Signature-256": "sha256=" + hmacHex(sha256.New, hookToken, body)}, "", 202},
		"github, other key":         {map[string]string{"X-Hub-Signature-256": "sha256=" + hmacHex(sha256.New, "x", body)}, "", refused},
		"github, other body":        {map[string]string{"X-Hub-Signature-256": "sha256=" + hmacHex(sha256.New, hookToken, body+" ")}, "", refused},
		"github, SHA-1":             {map[string]string{"X-Hub-Signature": "sha1=" + hmacHex(sha1.New, hookToken, body)}, "", refused},
		"github, SHA-1 as 256":      {map[string]string{"X-Hub-Signature-256": "sha1=" + hmacHex(sha1.New, hookToken, body)}, "", refused},
		"bitbucket":                 {map[string]string{"X-Hub-Signature": "sha256=" + hmacHex(sha256.New, hookToken, body)}, "", 202},
		"no hash named":             {map[string]string{"X-Hub-Signature-256": hmacHex(sha256.New, hookToken, body)}, "", refused},
		"upper case":                {map[string]string{"X-Hub-Signature-256": "SHA256=" + strings.ToUpper(hmacHex(sha256.New, hookToken, body))}, "", 202},
		"short":                     {map[string]string{"X-Hub-Signature-256": "sha256=" + hmacHex(sha256.New, hookToken, body)[:10]}, "", refused},
		"empty signature":           {map[string]string{"X-Hub-Signature-256": "sha256="}, "", refused},
		"no hexadecimal digits":     {map[string]string{"X-Hub-Signature-256": "sha256=zz"}, "", refused},
		"gitea":                     {map[string]string{"X-Gitea-Signature": hmacHex(sha256.New, hookToken, body)}, "", 202},
		"forgejo":                   {map[string]string{"X-Forgejo-Signature": hmacHex(sha256.New, hookToken, body)}, "", 202},
		"gogs":                      {map[string]string{"X-Gogs-Signature": hmacHex(sha256.New, hookToken, body)}, "", 202},
		"gitea, SHA-1":              {map[string]string{"X-Gitea-Signature": hmacHex(sha1.New, hookToken, body)}, "", refused},
		"generic, SHA-256":          {map[string]string{"X-Signature": "sha256=" + hmacHex(sha256.New, hookToken, body)}, "", 202},
		"generic, SHA-512":          {map[string]string{"X-Signature": "sha512=" + hmacHex(sha512.New, hookToken, body)}, "", 202},
		"generic, SHA-1":            {map[string]string{"X-Signature": "sha1=" + hmacHex(sha1.New, hookToken, body)}, "", refused},
		"generic, unknown hash":     {map[string]string{"X-Signature": "md5=" + hmacHex(sha256.New, hookToken, body)}, "", refused},
		"nexus":                     {map[string]string{"X-Nexus-Webhook-Signature": hmacHex(sha1.New, hookToken, body)}, "", 202},
		"gitlab":                    {map[string]string{"X-Gitlab-Token": hookToken}, "", 202},
		"gitlab, longer":            {map[string]string{"X-Gitlab-Token": hookToken + "x"}, "", refused},
		"gitlab, a part":            {map[string]string{"X-Gitlab-Token": hookToken[:5]}, "", refused},
		"harbor":                    {map[string]string{"Authorization": hookToken}, "", 202},
		"bearer":                    {map[string]string{"Authorization": "bearer " + hookToken}, "", 202},
		"basic":                     {map[string]string{"Authorization": "Basic " + url.UserPassword("u", hookToken).String()}, "", refused},
		"azure devops":              {map[string]string{"Authorization": "Basic dTp0MGtlbi1vZi10aGUtaG9vaw=="}, "", 202},
		"other bearer":              {map[string]string{"Authorization": "Bearer x"}, "", refused},
		"parameter":                 {nil, "?token=" + hookToken, 202},
		"other parameter":           {nil, "?token=x", refused},
		"empty parameter":           {nil, "?token=", refused},
		"nothing":                   {nil, "", refused},
		"one of several is right":   {map[string]string{"X-Hub-Signature-256": "sha256=00", "X-Gitea-Signature": hmacHex(sha256.New, hookToken, body)}, "", 202},
		"HMAC with the empty key":   {map[string]string{"X-Hub-Signature-256": "sha256=" + hmacHex(sha256.New, "", body)}, "", refused},
		"body with a line break in": {map[string]string{"Authorization": "Bearer\t" + hookToken}, "", refused},
	}
	withHookFixture(t, signedApp, nil, func(h *hookFixture) { // callers may do everything, but not call a webhook that has a Secret
		for _, want := range []int{refused, 202} {
			for name, test := range rows {
				if test.want != want {
					continue
				}
				before := len(h.log.String())
				if status, reason := h.post(hookPath+test.query, body, test.header); status != want {
					h.Errorf("%s: %d %s; %s", name, status, reason, h.log.String()[before:])
				}
			}
			if want == refused {
				h.wantRuns("")
			}
		}
	})
}

// A caller that cannot sign learns nothing about which objects exist.
func TestHookRefusalsAreIdentical(t *testing.T) {
	documents := signedApp
	for name, secret := range map[string]string{"lost": "none", "void": `""`, "blank": "blank", "line": "line", "broken": "broken"} {
		documents += "\n---\n" + strings.Replace(strings.Replace(signedApp, "name: app", "name: "+name, 1), "secret: hook", "secret: "+secret, 1)
	}
	documents += `
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: plain}, spec: {url: "https://h/o/app", interval: 1h}}
`
	withHookFixture(t, documents, requireCallers(t), func(h *hookFixture) {
		h.secrets["default/blank"] = map[string]string{"password": hookToken}
		h.secrets["default/line"] = map[string]string{"token": hookToken + "\n"}
		h.secrets["default/broken"] = map[string]string{"token": "broken"}
		var first string
		for name, logged := range map[string]string{
			"app": "X-Hub-Signature-256 is not by the token of secret default/hook", "plain": "has no Secret for webhooks", "nobody": "there is no object GitRepository/default/nobody",
			"lost": "secret default/none does not exist", "void": "secret default/ does not exist", "blank": "key token is missing", "line": "key token ends in a line break", "broken": "store of secrets is broken",
		} {
			r := httptest.NewRequest(http.MethodPost, "/hook/git/"+name, strings.NewReader("{}"))
			r.Header.Set("X-Hub-Signature-256", "sha256=00")
			w := httptest.NewRecorder()
			h.Handler().ServeHTTP(w, r)
			got := fmt.Sprint(w.Code, w.Header(), w.Body)
			if first == "" {
				first = got
			}
			if got != first || w.Code != 401 {
				h.Errorf("%s: %s\nothers: %s", name, got, first)
			}
			if reason := h.log.String(); !strings.Contains(reason, logged) || strings.Contains(reason, hookToken) {
				h.Errorf("%s: %s", name, reason)
			}
		}
		h.wantRuns("")
	})
}

// requireCallers returns a function that makes the server authenticate callers.
func requireCallers(t *testing.T) func(*serve.Config) {
	return func(c *serve.Config) { c.Callers = callersOf(t, callers) }
}

// Webhooks of objects without a Secret need a token of the server, or nothing if callers need not authenticate. The Secret
// of Config.Hooks need not exist in every namespace. A changed token takes effect at once.
func TestHookWithoutSecret(t *testing.T) {
	const document = `{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: app, namespace: shop}, spec: {url: "https://h/o/app", interval: 1h}}`
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
		"Secret of the server":     {"hooks", map[string]string{"token": hookToken}, true, "/hook/git/shop/app", hookToken, 202},
		"not signed":               {"hooks", map[string]string{"token": hookToken}, true, "/hook/git/shop/app", "", 401},
		"none here, open":          {"hooks", nil, true, "/hook/git/shop/app", "", 202},
		"none here, closed":        {"hooks", nil, false, "/hook/git/shop/app", hookToken, 401},
		"Secret without token":     {"hooks", map[string]string{"x": "y"}, true, "/hook/git/shop/app", "", 401},
		"Secret cannot be read":    {"hooks", map[string]string{"token": "broken"}, true, "/hook/git/shop/app", "", 401},
		"no object, with a Secret": {"hooks", map[string]string{"token": hookToken}, false, "/hook/git/shop/other", hookToken, 401},
	} {
		adjust := func(c *serve.Config) {
			if c.Hooks = test.secret; !test.open {
				requireCallers(t)(c)
			}
		}
		withHookFixture(t, document, adjust, func(h *hookFixture) {
			if test.data != nil {
				h.secrets["shop/hooks"] = test.data
			}
			if status, reason := h.post(test.path, "", map[string]string{"X-Gitlab-Token": test.token}); status != test.want {
				h.Errorf("%s: %d %s", name, status, reason)
			}
		})
	}
	withHookFixture(t, signedApp, nil, func(h *hookFixture) {
		h.secrets["default/hook"] = map[string]string{"token": "n3w-token"}
		for token, want := range map[string]int{hookToken: 401, "n3w-token": 202} {
			if status, _ := h.post(hookPath, "", map[string]string{"X-Gitlab-Token": token}); status != want {
				h.Errorf("%s: %d after it was changed", token, status)
			}
		}
	})
}

func TestHookRequests(t *testing.T) {
	auth := map[string]string{"Authorization": hookToken}
	paths := map[string]int{
		"/hook/gitrepository/app": 202, "/hook/GitRepository/default/app": 202, "/hook/gitrepositories/app": 202, "/hook/git//app": 202,
		"/hook/": 404, "/hook/app": 404, "/hook/secret/app": 404, "/hook/git/default/app/": 404, "/hook/git/default/app/x": 404,
		"/hook/git/default/..": 404, "/hook/git/default/A": 404, "/hook/git/default/a%0Ab": 404, "/hook/git/default%2Fapp": 404, "/other/git/app": 404,
	}
	large := strings.Repeat(" ", 1<<20)
	event := func(header, name string) *http.Request {
		r := httptest.NewRequest("POST", hookPath, strings.NewReader("{}"))
		r.Header.Set(header, name)
		return r
	}
	requests := map[string]struct {
		request *http.Request
		want    int
	}{
		"GET":                   {httptest.NewRequest("GET", hookPath, nil), 405},
		"PUT":                   {httptest.NewRequest("PUT", hookPath, nil), 405},
		"as large as it may be": {httptest.NewRequest("POST", hookPath, strings.NewReader(large)), 202},
		"too large":             {httptest.NewRequest("POST", hookPath, strings.NewReader(large+" ")), 413},
		"too large, chunks":     {httptest.NewRequest("POST", hookPath, struct{ io.Reader }{strings.NewReader(large + " ")}), 413},
		"chunks":                {httptest.NewRequest("POST", hookPath, struct{ io.Reader }{strings.NewReader("{}")}), 202},
		"no body":               {httptest.NewRequest("POST", hookPath, nil), 202},
		"ping of GitHub":        {event("X-GitHub-Event", "ping"), 200},
		"ping of Bitbucket":     {event("X-Event-Key", "diagnostics:ping"), 200},
		"another event":         {event("X-GitHub-Event", "issues"), 202},
		"no JSON":               {httptest.NewRequest("POST", hookPath, strings.NewReader("\x00[{")), 202},
		"breaks off":            {httptest.NewRequest("POST", hookPath, io.MultiReader(strings.NewReader("{"), brokenBody{})), 400},
		"compressed":            {event("Content-Encoding", "gzip"), 202},
	}
	withHookFixture(t, signedApp, nil, func(h *hookFixture) {
		for path, want := range paths {
			if status, reason := h.post(path, "{}", auth); status != want {
				h.Errorf("%s: %d %s", path, status, reason)
			}
		}
		for name, test := range requests {
			test.request.Header.Set("Authorization", hookToken)
			if status, reason := h.answer(test.request); status != test.want {
				h.Errorf("%s: %d %s", name, status, reason)
			}
		}
		h.must(h.Suspend(repoRef("app"), source.Suspension{}))
		if status, reason := h.post(hookPath, "{}", auth); status != 202 || reason != "ignored: it is suspended" {
			h.Errorf("suspended: %d %s", status, reason)
		}
	})
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, errors.New("connection \x1b reset") }
