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

// maxHook is the largest body of a webhook, in bytes.
const maxHook = 1 << 20

// An answer to a webhook; what the log says is another text where the caller is not to know it.
type answer struct {
	status int
	said   string
	logged string
}

// refuseHook returns the answer to callers that may not trigger an object, and to those
// that ask for one that does not exist.
func refuseHook(logged string, args ...any) *answer {
	return &answer{http.StatusUnauthorized, "no valid signature or token for this webhook", fmt.Sprintf(logged, args...)}
}

// hook answers the webhook of an object.
func (c *call) hook() error {
	a, ref, provider := c.answerHook()
	c.metrics.hooks.WithLabelValues(provider, strconv.Itoa(a.status)).Inc()
	level := slog.LevelInfo
	if a.status >= http.StatusBadRequest {
		level = slog.LevelWarn
	}
	log := c.log.With("status", a.status, "reason", clean(cmp.Or(a.logged, a.said)))
	if ref != (source.Reference{}) {
		log = log.With("object", ref.String())
	}
	if provider != "" {
		log = log.With("provider", provider)
	}
	log.Log(context.Background(), level, "webhook")
	return httpserve.JSON(c.w, a.status, api.Problem{Status: a.status, Reason: a.said})
}

// answerHook returns the answer to a webhook, the object that it is for, and the provider of a caller that is proven.
func (c *call) answerHook() (a *answer, ref source.Reference, provider string) {
	kind, known := source.ParseKind(c.r.PathValue("kind"))
	ref = source.Reference{Kind: kind, Namespace: cmp.Or(c.r.PathValue("namespace"), source.DefaultNamespace), Name: c.r.PathValue("name")}
	if !known || document.CheckNamespace(ref.Namespace) != nil || document.CheckName(ref.Name) != nil {
		return &answer{status: http.StatusNotFound, said: "no webhook has this path: use /hook/KIND/NAMESPACE/NAME"}, source.Reference{}, ""
	}
	if coding := c.r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return &answer{status: http.StatusUnsupportedMediaType, said: "the body is compressed: send it as it is"}, ref, ""
	}
	if a := c.authenticate(ref); a != nil {
		return a, ref, ""
	}
	provider, event := providerOf(c.r.Header)
	if event == "ping" || event == "diagnostics:ping" {
		return &answer{status: http.StatusOK, said: "pong"}, ref, provider
	}
	switch _, err := c.Request(ref, Hook); {
	case err == nil:
		return &answer{status: http.StatusAccepted, said: "it is checked now"}, ref, provider
	case errors.Is(err, ErrSuspended):
		return &answer{status: http.StatusAccepted, said: "ignored: it is suspended"}, ref, provider
	default:
		return &answer{http.StatusNotFound, "there is no such object", err.Error()}, ref, provider
	}
}

// providers are told by the header that names the event, the first that is there:
// Forgejo sends those of Gitea and Gogs as well, and these those of GitHub.
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

// authenticate returns the answer to a request that may not trigger an object, nil for one that may. It takes
// the same steps whether the object exists or not.
func (c *call) authenticate(ref source.Reference) *answer {
	v, err := c.View(ref)
	missing := err != nil
	var token, name string
	if !missing {
		token, name, err = c.hookToken(v.Object, ref)
	}
	right, unread := proven(c.w, c.r, cmp.Or(token, "-"))
	lacks := shortfall(c.r)
	switch {
	case unread != nil:
		return unread
	case err != nil && !missing:
		return refuseHook("object %s: %v", ref, err)
	case token != "" && right:
		return nil
	case token != "":
		return refuseHook("%s of secret %s/%s", lacks, ref.Namespace, name)
	}
	grant, err := c.identify(c.r)
	switch allowed := err == nil && may(grant, mayChange, ref) == nil; {
	case !allowed && missing:
		return refuseHook("there is no object %s", ref)
	case !allowed:
		return refuseHook("object %s has no Secret for webhooks, and the caller no token of the server", ref)
	case missing:
		return &answer{status: http.StatusNotFound, said: "there is no object " + ref.String()}
	}
	return nil
}

// hookToken returns the token of an object's hook, "" when it has none, and the name of its Secret.
func (c *call) hookToken(obj source.Object, ref source.Reference) (token, name string, err error) {
	name, asked := obj.Head().Metadata.Annotations[HookAnnotation]
	if !asked {
		name = c.config.Hooks
	}
	if !asked && name == "" {
		return "", "", nil
	}
	s, err := latest{c.Server}.Secret(c.r.Context(), ref.Namespace, name)
	if errors.Is(err, fs.ErrNotExist) {
		if !asked {
			return "", name, nil
		}
		err = fmt.Errorf("secret %s/%s does not exist", ref.Namespace, name) // the object does
	}
	if err != nil {
		return "", name, err
	}
	reader := secret.Reader{Name: ref.Namespace + "/" + name, Data: s.Data}
	if token, err = reader.Text([]string{"token"}); err == nil && token == "" {
		err = reader.Problem("token", "is missing")
	}
	return token, name, err
}

// signatures are the headers that have an HMAC of the body, and the hashes that
// count by what stands before "=", "" when nothing does.
var signatures = []struct {
	header string
	hashes map[string]func() hash.Hash
}{
	{"X-Forgejo-Signature", plain},
	{"X-Gitea-Signature", plain},
	{"X-Gogs-Signature", plain},
	{"X-Hub-Signature-256", named}, // GitHub
	{"X-Hub-Signature", named},     // Bitbucket; GitHub's is of SHA-1 and does not count
	{"X-Signature", named},         // as the reference's generic-hmac
	{"X-Nexus-Webhook-Signature", map[string]func() hash.Hash{"": sha1.New}},
}

var (
	named = map[string]func() hash.Hash{"sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New}
	plain = map[string]func() hash.Hash{"": sha256.New}
)

// proven reads the body of a request and reports whether the request shows that
// its caller knows token. All that it shows is compared, whatever was right already.
func proven(w http.ResponseWriter, r *http.Request, token string) (right bool, unread *answer) {
	var sums []func() bool
	var body []io.Writer
	for _, s := range signatures {
		text := r.Header.Get(s.header)
		algorithm, digits, found := strings.Cut(text, "=")
		if !found {
			algorithm, digits = "", text
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
	large := (*http.MaxBytesError)(nil)
	_, err := io.Copy(io.MultiWriter(body...), http.MaxBytesReader(w, r.Body, maxHook))
	switch {
	case errors.As(err, &large):
		return false, &answer{status: http.StatusRequestEntityTooLarge, said: fmt.Sprintf("the body is larger than %d MiB", maxHook>>20)}
	case err != nil:
		return false, &answer{http.StatusBadRequest, "the body ends early", err.Error()}
	}
	for _, equal := range sums {
		right = equal() || right
	}
	want := sha256.Sum256([]byte(token)) // so that the time does not tell the length
	for _, shown := range tokens(r) {
		got := sha256.Sum256([]byte(shown))
		right = hmac.Equal(got[:], want[:]) && shown != "" || right
	}
	return right, nil
}

// tokens returns what a request has in the places for tokens.
func tokens(r *http.Request) []string {
	all := []string{r.Header.Get("X-Gitlab-Token"), r.URL.Query().Get("token")}
	text := r.Header.Get("Authorization")
	all = append(all, text)
	if scheme, rest, found := strings.Cut(text, " "); found && strings.EqualFold(scheme, "bearer") {
		all = append(all, strings.TrimSpace(rest))
	}
	if _, password, ok := r.BasicAuth(); ok {
		all = append(all, password)
	}
	return all
}

// shortfall says what a request lacks that is not proven.
func shortfall(r *http.Request) string {
	for _, s := range signatures {
		text := r.Header.Get(s.header)
		switch {
		case strings.HasPrefix(text, "sha1=") && s.header == "X-Signature":
			return "X-Signature: HMAC-SHA1 does not count, sign with sha256 or sha512 and the token"
		case text != "":
			return s.header + " is not by the token"
		}
	}
	for _, text := range tokens(r) {
		if text != "" {
			return "the token is not that"
		}
	}
	return "there is no signature and no token, it has to be that"
}
