// Package hook answers the webhooks of Git hosts and registries: a push makes a
// source be checked at once. Its rules:
//
//   - Only POST /hook/KIND/NAME (in the namespace default) and
//     /hook/KIND/NAMESPACE/NAME are answered. The kind may be written in any case.
//   - Who calls comes first. The body is read whole, at most [MaxBody] bytes, and is not
//     looked at before its signature or the token of the request was found right.
//   - The Secret of an object has the key token. It is the one that the annotation
//     [Annotation] names in the object's namespace, or else the one of Receiver.Secret. It is
//     looked up for each request, so that a rotated one counts at once. An object with
//     the annotation whose Secret is missing or has no token cannot be triggered.
//   - The token proves a request when one of these is right: an HMAC of the body in
//     X-Hub-Signature-256, X-Hub-Signature, X-Signature, X-Forgejo-Signature,
//     X-Gitea-Signature, X-Gogs-Signature or X-Nexus-Webhook-Signature; the token itself
//     in X-Gitlab-Token, in Authorization (alone, as bearer token or as
//     password) or in the parameter token of the URL. Comparisons take the same time
//     whatever differs. HMAC-SHA1 counts for Nexus only, which has no other.
//   - Without a Secret Receiver.Allowed decides.
//   - Everybody else is answered 401 with the same words, whether the object exists or not. Only who Receiver.Allowed
//     lets change an object is told, by 404, that it does not exist.
//   - 200 is the answer to a ping. 202 is that to everything else: the object
//     is checked at once, unless it certainly does not follow what was
//     pushed; then the answer says so. What cannot be read counts as a push.
//   - A request that is repeated asks for another check, of which one at most waits for the one
//     under way: Receiver.Request sees to it.
//
// Headers and payloads are those of GitHub, GitLab, Gitea, Forgejo, Gogs,
// Bitbucket, Azure DevOps, and of the registries distribution, Docker Hub,
// Quay, Harbor, Azure, Google, GitHub and Nexus.
package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/controller"
)

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
	// [controller.ErrSuspended] is no failure of the request.
	Request func(source.Reference) error
	// Allowed reports whether a request without a signature may trigger a run of
	// the object: its caller has shown a token of the server. Nil for nobody.
	Allowed func(*http.Request, source.Reference) bool
	// Observe is told what became of each request; nil for nobody.
	Observe func(Outcome)

	bodies answer.Budget
}

// An Outcome is what became of a request.
type Outcome struct {
	Object   source.Reference // zero when the path names none
	Provider string           // github, gitlab, gitea, generic, registry …; "" when it is not known who calls
	Status   int              // of the answer
	Reason   string           // fit for a log
	Ignored  bool             // it is not about what the object follows
}

// ServeHTTP implements [http.Handler].
func (h *Receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out, said := h.answer(w, r)
	if h.Observe != nil {
		h.Observe(out)
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	if out.Status == http.StatusMethodNotAllowed {
		header.Set("Allow", http.MethodPost)
	}
	if out.Status == http.StatusRequestEntityTooLarge {
		header.Set("Connection", "close") // the rest of the body is not read
	}
	w.WriteHeader(out.Status)
	json.NewEncoder(w).Encode(struct {
		Status int    `json:"status"`
		Reason string `json:"reason"`
	}{out.Status, said})
}

// A refusal ends a request early.
type refusal struct {
	status int
	said   string // to the caller
	logged string // if something else is
}

// refused is what everybody is told who may not trigger an object, or who asks for one that
// does not exist.
func refused(logged string, args ...any) *refusal {
	return &refusal{http.StatusUnauthorized, "no valid signature or token for this webhook", fmt.Sprintf(logged, args...)}
}

// answer returns what became of a request, and what its caller is told.
func (h *Receiver) answer(w http.ResponseWriter, r *http.Request) (out Outcome, said string) {
	refusal := h.do(w, r, &out)
	if refusal == nil {
		return out, out.Reason
	}
	out.Status, out.Reason = refusal.status, refusal.said
	if refusal.logged != "" {
		out.Reason = redact.String(refusal.logged)
	}
	return out, refusal.said
}

// do handles a request; nil means that out is complete.
func (h *Receiver) do(w http.ResponseWriter, r *http.Request, out *Outcome) *refusal {
	ref, ok := parsePath(r.URL.Path)
	if !ok {
		return &refusal{http.StatusNotFound, "no webhook has this path: use /hook/KIND/NAMESPACE/NAME", ""}
	}
	out.Object = ref
	if r.Method != http.MethodPost {
		return &refusal{http.StatusMethodNotAllowed, "webhooks are called with POST", ""}
	}
	body, bad := h.readBody(w, r)
	if bad != nil {
		return bad
	}
	obj, bad := h.authenticate(r, ref, body)
	if bad != nil {
		return bad
	}
	call := read(r.Header, body)
	out.Provider = call.provider
	switch ignored := ignore(obj, call); {
	case call.ping:
		out.Status, out.Reason = http.StatusOK, "pong"
	case ignored != "":
		out.Status, out.Reason, out.Ignored = http.StatusAccepted, "ignored: "+ignored, true
	default:
		return h.request(ref, out)
	}
	return nil
}

// request asks for a run.
func (h *Receiver) request(ref source.Reference, out *Outcome) *refusal {
	switch err := h.Request(ref); {
	case err == nil:
		out.Status, out.Reason = http.StatusAccepted, "it is checked now"
	case errors.Is(err, controller.ErrSuspended):
		out.Status, out.Reason = http.StatusAccepted, "ignored: it is suspended"
	case errors.Is(err, fs.ErrNotExist):
		return &refusal{http.StatusNotFound, "there is no such object", err.Error()}
	default:
		return &refusal{http.StatusServiceUnavailable, "it cannot be checked now: try again later", err.Error()}
	}
	return nil
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

// readBody reads the body of a request whole.
func (h *Receiver) readBody(w http.ResponseWriter, r *http.Request) ([]byte, *refusal) {
	large := &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d MiB", MaxBody>>20), ""}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, &refusal{http.StatusUnsupportedMediaType, "the body is compressed: send it as it is", ""}
	}
	if r.ContentLength > MaxBody {
		return nil, large
	}
	var body bytes.Buffer
	incoming := h.bodies.Count(w, io.LimitReader(r.Body, MaxBody+1))
	defer incoming.Close()
	_, err := body.ReadFrom(incoming)
	switch {
	case errors.Is(err, answer.ErrFull):
		return nil, &refusal{http.StatusServiceUnavailable, err.Error(), ""}
	case err != nil:
		return nil, &refusal{http.StatusBadRequest, "the body ends early", err.Error()}
	case body.Len() > MaxBody:
		return nil, large
	}
	return body.Bytes(), nil
}
