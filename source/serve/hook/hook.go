// Package hook answers the webhooks of Git hosts and registries: a push makes a
// source be checked at once. Its rules:
//
//   - Only POST /hook/KIND/NAME (in the namespace default) and
//     /hook/KIND/NAMESPACE/NAME are answered. The kind may be written in any case.
//   - The Secret of an object has the key token. It is the one that the annotation
//     [Annotation] names in the object's namespace, or else the one of Receiver.Secret. It is
//     looked up for each request, so that a rotated one counts at once. An object with
//     the annotation whose Secret is missing or has no token cannot be triggered.
//   - The token proves a request when one of these is right: an HMAC of the body, of at most
//     [MaxBody] bytes, in X-Hub-Signature-256, X-Hub-Signature, X-Signature, X-Forgejo-Signature,
//     X-Gitea-Signature, X-Gogs-Signature or X-Nexus-Webhook-Signature; the token itself
//     in X-Gitlab-Token, in Authorization (alone, as bearer token or as
//     password) or in the parameter token of the URL. Comparisons take the same time
//     whatever differs. HMAC-SHA1 counts for Nexus only, which has no other.
//   - Without a Secret Receiver.Allowed decides.
//   - All other callers are answered 401 with the same words, whether the object exists or
//     not. Only callers that Receiver.Allowed lets change an object are told, by 404, that it
//     does not exist.
//   - A proven call asks for a check, whatever its body says, and is answered 202; a ping of
//     GitHub and Bitbucket is answered 200. Of calls that are repeated one at most waits for
//     the check under way: Receiver.Request sees to it.
package hook

import (
	"cmp"
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
	"net/http"
	"strings"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/secret"
	"github.com/headgate-io/headgate/source"
)

// ErrSuspended marks an object that is suspended.
var ErrSuspended = errors.New("suspended")

// Annotation names the Secret of an object's webhook.
const Annotation = "hook.headgate.dev/secret"

// MaxBody is the largest body of a request, in bytes.
const MaxBody = 1 << 20

// A Receiver answers POST /hook/KIND/NAME and /hook/KIND/NAMESPACE/NAME. Its
// fields are set before the first request.
type Receiver struct {
	// Object returns the object that a hook is for; the error wraps fs.ErrNotExist.
	Object func(source.Reference) (source.Object, error)
	// Secrets has the Secrets of hooks.
	Secrets source.Secrets
	// Secret is the name of the Secret of objects that name none, in their
	// namespace; "" for none. It need not exist.
	Secret string
	// Request asks for a run of the object. An error that wraps
	// [ErrSuspended] is no failure of the request.
	Request func(source.Reference) error
	// Allowed reports whether a request without a signature may trigger a run of
	// the object: its caller has shown a token of the server. Nil allows none.
	Allowed func(*http.Request, source.Reference) bool
	// Observe is told what became of each request; nil for no reports.
	Observe func(Outcome)
}

// An Outcome is what became of a request.
type Outcome struct {
	Object   source.Reference // zero when the path names none
	Provider string           // github, gitlab, gitea, generic …; "" when the caller is not proven
	Status   int              // of the answer
	Reason   string           // fit for a log
}

// An answer to a request; what the log says is another text where the caller is not to know it.
type answer struct {
	status int
	said   string
	logged string
}

// refused is the answer to callers that may not trigger an object, and to those
// that ask for one that does not exist.
func refused(logged string, args ...any) *answer {
	return &answer{http.StatusUnauthorized, "no valid signature or token for this webhook", fmt.Sprintf(logged, args...)}
}

// ServeHTTP implements [http.Handler].
func (h *Receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var out Outcome
	a := h.handle(w, r, &out)
	out.Status, out.Reason = a.status, redact.String(cmp.Or(a.logged, a.said))
	if h.Observe != nil {
		h.Observe(out)
	}
	if a.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", http.MethodPost)
	}
	httpserve.JSON(w, a.status, map[string]any{"status": a.status, "reason": a.said})
}

// handle handles a request.
func (h *Receiver) handle(w http.ResponseWriter, r *http.Request, out *Outcome) *answer {
	ref, ok := parsePath(r.URL.Path)
	if !ok {
		return &answer{status: http.StatusNotFound, said: "no webhook has this path: use /hook/KIND/NAMESPACE/NAME"}
	}
	out.Object = ref
	if r.Method != http.MethodPost {
		return &answer{status: http.StatusMethodNotAllowed, said: "webhooks are called with POST"}
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return &answer{status: http.StatusUnsupportedMediaType, said: "the body is compressed: send it as it is"}
	}
	if a := h.authenticate(w, r, ref); a != nil {
		return a
	}
	var event string
	if out.Provider, event = providerOf(r.Header); event == "ping" || event == "diagnostics:ping" {
		return &answer{status: http.StatusOK, said: "pong"}
	}
	switch err := h.Request(ref); {
	case err == nil:
		return &answer{status: http.StatusAccepted, said: "it is checked now"}
	case errors.Is(err, ErrSuspended):
		return &answer{status: http.StatusAccepted, said: "ignored: it is suspended"}
	case errors.Is(err, fs.ErrNotExist):
		return &answer{http.StatusNotFound, "there is no such object", err.Error()}
	default:
		return &answer{http.StatusServiceUnavailable, "it cannot be checked now: try again later", err.Error()}
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

// parsePath returns the object that a path is for.
func parsePath(path string) (ref source.Reference, ok bool) {
	rest, found := strings.CutPrefix(path, "/hook/")
	parts := strings.Split(rest, "/")
	if len(parts) == 2 {
		parts = []string{parts[0], source.DefaultNamespace, parts[1]}
	}
	if !found || len(parts) != 3 {
		return ref, false
	}
	kind, known := source.ParseKind(parts[0])
	if !known || document.CheckNamespace(parts[1]) != nil || document.CheckName(parts[2]) != nil {
		return ref, false
	}
	return source.Reference{Kind: kind, Namespace: parts[1], Name: parts[2]}, true
}

// authenticate returns the answer to a request that may not trigger an object, nil for one that may. It takes
// the same steps whether the object exists or not.
func (h *Receiver) authenticate(w http.ResponseWriter, r *http.Request, ref source.Reference) *answer {
	obj, err := h.Object(ref)
	missing := errors.Is(err, fs.ErrNotExist)
	var token, name string
	if err == nil {
		token, name, err = h.token(r, obj, ref)
	}
	right, unread := proven(w, r, cmp.Or(token, "-"))
	switch {
	case unread != nil:
		return unread
	case err != nil && !missing:
		return refused("object %s: %v", ref, err)
	case token != "" && right:
		return nil
	case token != "":
		return refused("%s of secret %s/%s", shortfall(r), ref.Namespace, name)
	case h.Allowed == nil || !h.Allowed(r, ref):
		if missing {
			return refused("there is no object %s", ref)
		}
		return refused("object %s has no Secret for webhooks, and the caller no token of the server", ref)
	case missing:
		return &answer{status: http.StatusNotFound, said: "there is no object " + ref.String()}
	}
	return nil
}

// token returns the token of an object's hook, "" when it has none, and the name of its Secret.
func (h *Receiver) token(r *http.Request, obj source.Object, ref source.Reference) (token, name string, err error) {
	name, asked := obj.Head().Metadata.Annotations[Annotation]
	if !asked {
		name = h.Secret
	}
	switch {
	case !asked && (name == "" || h.Secrets == nil):
		return "", "", nil
	case h.Secrets == nil:
		return "", name, errors.New("there are no Secrets here")
	}
	s, err := h.Secrets.Secret(r.Context(), ref.Namespace, name)
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
	_, err := io.Copy(io.MultiWriter(body...), http.MaxBytesReader(w, r.Body, MaxBody))
	switch {
	case errors.As(err, &large):
		return false, &answer{status: http.StatusRequestEntityTooLarge, said: fmt.Sprintf("the body is larger than %d MiB", MaxBody>>20)}
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
