package serve

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/internal/secret"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

// HookAnnotation names the Secret of an object's webhook.
const HookAnnotation = "hook.headgate.dev/secret"

// maxHookBody is the largest body of a webhook, in bytes.
const maxHookBody = 1 << 20

// An hookAnswer is the answer to a webhook. If logged is set, the log gets it instead of reason, because
// the caller must not learn it.
type hookAnswer struct {
	status int
	reason string
	logged string
}

// refuseHook returns the answer to a caller that may not trigger an object. It is the same if the object
// does not exist.
func refuseHook(logged string, args ...any) *hookAnswer {
	return &hookAnswer{http.StatusUnauthorized, "no valid signature or token for this webhook", fmt.Sprintf(logged, args...)}
}

// hook answers the webhook of an object.
func (c *call) hook() error {
	a, provider := c.answerHook()
	c.metrics.hooks.WithLabelValues(provider, strconv.Itoa(a.status)).Inc()
	level := slog.LevelInfo
	if a.status >= http.StatusBadRequest {
		level = slog.LevelWarn
	}
	c.log.Log(context.Background(), level, "webhook", "status", a.status, "reason", clean(cmp.Or(a.logged, a.reason)), "object", clean(c.ref.String()), "provider", provider)
	return httpserve.JSON(c.w, a.status, api.Problem{Status: a.status, Reason: a.reason})
}

// answerHook returns the answer to a webhook, and the provider of the call, "" unless the caller is authenticated.
func (c *call) answerHook() (a *hookAnswer, provider string) {
	kind, known := source.ParseKind(c.r.PathValue("kind"))
	c.ref = source.Reference{Kind: kind, Namespace: cmp.Or(c.r.PathValue("namespace"), source.DefaultNamespace), Name: c.r.PathValue("name")}
	if !known || document.CheckNamespace(c.ref.Namespace) != nil || document.CheckName(c.ref.Name) != nil {
		return &hookAnswer{status: http.StatusNotFound, reason: "no webhook has this path: use /hook/KIND/NAMESPACE/NAME"}, ""
	}
	if a := c.authenticateHook(); a != nil {
		return a, ""
	}
	provider, event := providerOf(c.r.Header)
	if event == "ping" || event == "diagnostics:ping" {
		return &hookAnswer{status: http.StatusOK, reason: "pong"}, provider
	}
	switch _, err := c.Request(c.ref, Hook); {
	case err == nil:
		return &hookAnswer{status: http.StatusAccepted, reason: "it is checked now"}, provider
	case errors.Is(err, ErrSuspended):
		return &hookAnswer{status: http.StatusAccepted, reason: "ignored: it is suspended"}, provider
	default:
		return &hookAnswer{http.StatusNotFound, "there is no such object", err.Error()}, provider
	}
}

// providers are recognized by the header that names the event; the first one that is present decides.
// Forgejo also sends the headers of Gitea and Gogs, and these send those of GitHub.
var providers = []struct{ name, header string }{
	{"forgejo", "X-Forgejo-Event"}, {"gitea", "X-Gitea-Event"}, {"gogs", "X-Gogs-Event"}, {"github", "X-GitHub-Event"},
	{"gitlab", "X-Gitlab-Event"}, {"bitbucket", "X-Event-Key"}, {"nexus", "X-Nexus-Webhook-Id"},
}

func providerOf(header http.Header) (name, event string) {
	for _, p := range providers {
		if event := header.Get(p.header); event != "" {
			return p.name, event
		}
	}
	return "generic", ""
}

// authenticateHook returns nil if a request may trigger its object, and the answer that refuses it otherwise. It takes
// the same steps whether the object exists or not.
func (c *call) authenticateHook() *hookAnswer {
	v, err := c.View(c.ref)
	missing := err != nil
	var token, name string
	if !missing {
		token, name, err = c.hookToken(v.Object)
	}
	right, shown, unread := verifyProof(c.w, c.r, cmp.Or(token, "-"))
	switch {
	case unread != nil:
		return unread
	case err != nil && !missing:
		return refuseHook("%v", err)
	case token != "" && right:
		return nil
	case token != "":
		return refuseHook("%s is not by the token of secret %s/%s", cmp.Or(shown, "nothing"), c.ref.Namespace, name)
	}
	switch allowed := c.authorize(mayChange, c.ref) == nil; {
	case !allowed && missing:
		return refuseHook("there is no object %s", c.ref)
	case !allowed:
		return refuseHook("it has no Secret for webhooks, and the caller no token of the server")
	case missing:
		return &hookAnswer{status: http.StatusNotFound, reason: "there is no object " + c.ref.String()}
	}
	return nil
}

// hookToken returns the token of an object's webhook and the name of its Secret. The token is "" if the
// object has none.
func (c *call) hookToken(obj source.Object) (token, name string, err error) {
	name, annotated := obj.Head().Metadata.Annotations[HookAnnotation]
	if !annotated {
		name = c.config.Hooks
	}
	if !annotated && name == "" {
		return "", "", nil
	}
	s, err := latestSecrets{c.Server}.Secret(c.r.Context(), c.ref.Namespace, name)
	switch missing := errors.Is(err, fs.ErrNotExist); {
	case missing && !annotated:
		return "", name, nil
	case missing:
		err = fmt.Errorf("secret %s/%s does not exist", c.ref.Namespace, name) // the object does
	}
	if err != nil {
		return "", name, err
	}
	reader := secret.Reader{Name: c.ref.Namespace + "/" + name, Data: s.Data}
	if token, err = reader.Text([]string{"token"}); err == nil && token == "" {
		err = reader.Problem("token", "is missing")
	}
	return token, name, err
}

// signatures are the headers that may contain an HMAC of the body, with the accepted hashes by the prefix
// before "="; the key is "" for a signature without a prefix.
var signatures = []struct {
	header string
	hashes map[string]func() hash.Hash
}{
	{"X-Forgejo-Signature", bareSHA256},
	{"X-Gitea-Signature", bareSHA256},
	{"X-Gogs-Signature", bareSHA256},
	{"X-Hub-Signature-256", prefixedSHA2}, // GitHub
	{"X-Hub-Signature", prefixedSHA2},     // Bitbucket; GitHub's uses SHA-1 and is ignored
	{"X-Signature", prefixedSHA2},         // like generic-hmac of the reference
	{"X-Nexus-Webhook-Signature", map[string]func() hash.Hash{"": sha1.New}},
}

var (
	prefixedSHA2 = map[string]func() hash.Hash{"sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New}
	bareSHA256   = map[string]func() hash.Hash{"": sha256.New}
)

// verifyProof reads the body of a request and reports whether the request proves that its caller knows token. It
// compares all proofs, even after one was valid. Shown names the first proof of the request, valid or not, "" if there is
// none. Unread is the answer if the body cannot be read.
func verifyProof(w http.ResponseWriter, r *http.Request, token string) (right bool, shown string, unread *hookAnswer) {
	var sums []func() bool
	var body []io.Writer
	for _, s := range signatures {
		text := r.Header.Get(s.header)
		algorithm, digits, found := strings.Cut(text, "=")
		if !found {
			algorithm, digits = "", text
		}
		if text != "" && shown == "" {
			if shown = s.header; algorithm == "sha1" {
				shown += " with SHA-1, which does not count,"
			}
		}
		of := s.hashes[strings.ToLower(algorithm)]
		sum, err := hex.DecodeString(digits)
		if text == "" || of == nil || err != nil {
			continue
		}
		mac := hmac.New(of, []byte(token))
		body = append(body, mac)
		sums = append(sums, func() bool { return hmac.Equal(mac.Sum(nil), sum) })
	}
	_, err := io.Copy(io.MultiWriter(body...), http.MaxBytesReader(w, r.Body, maxHookBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return false, "", &hookAnswer{status: http.StatusRequestEntityTooLarge, reason: fmt.Sprintf("the body is larger than %d MiB", maxHookBody>>20)}
	}
	if err != nil {
		return false, "", &hookAnswer{http.StatusBadRequest, "the body ends early", err.Error()}
	}
	for _, equal := range sums {
		right = equal() || right
	}
	want := sha256.Sum256([]byte(token)) // hashed, so that the time does not reveal the length
	for _, text := range tokenCandidates(r) {
		if text != "" {
			shown = cmp.Or(shown, "a token")
		}
		got := sha256.Sum256([]byte(text))
		right = hmac.Equal(got[:], want[:]) && text != "" || right
	}
	return right, shown, nil
}

// tokenCandidates returns the values of a request that may be a token; some may be "".
func tokenCandidates(r *http.Request) []string {
	authorization := r.Header.Get("Authorization")
	all := []string{r.Header.Get("X-Gitlab-Token"), r.URL.Query().Get("token"), authorization}
	if scheme, rest, found := strings.Cut(authorization, " "); found && strings.EqualFold(scheme, "bearer") {
		all = append(all, strings.TrimSpace(rest))
	}
	if _, password, ok := r.BasicAuth(); ok {
		all = append(all, password)
	}
	return all
}
