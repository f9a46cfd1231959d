package hook

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"hash"
	"io/fs"
	"net/http"
	"strings"

	"github.com/headgate-io/headgate/internal/secret"
	"github.com/headgate-io/headgate/source"
)

// A signature is a header that has an HMAC of the body.
type signature struct {
	header string
	hashes map[string]func() hash.Hash // by what stands before "="; "" when nothing does
}

var (
	named  = map[string]func() hash.Hash{"sha256": sha256.New, "sha384": sha512.New384, "sha512": sha512.New}
	plain  = map[string]func() hash.Hash{"": sha256.New}
	legacy = map[string]func() hash.Hash{"": sha1.New}
)

var signatures = []signature{
	{"X-Forgejo-Signature", plain},
	{"X-Gitea-Signature", plain},
	{"X-Gogs-Signature", plain},
	{"X-Hub-Signature-256", named}, // GitHub
	{"X-Hub-Signature", named},     // Bitbucket; GitHub's is of SHA-1 and does not count
	{"X-Signature", named},         // whoever signs as the reference's generic-hmac
	{"X-Nexus-Webhook-Signature", legacy},
}

// matches reports whether text is the signature of body.
func (s *signature) matches(text string, token, body []byte) bool {
	name, digits, found := strings.Cut(text, "=")
	if !found {
		name, digits = "", text
	}
	of := s.hashes[strings.ToLower(name)]
	sum, err := hex.DecodeString(digits)
	if of == nil || err != nil {
		return false
	}
	mac := hmac.New(of, token)
	mac.Write(body)
	return hmac.Equal(mac.Sum(nil), sum)
}

// proven reports whether a request shows that its caller knows token.
func proven(r *http.Request, token, body []byte) bool {
	ok := false // everything is compared, whatever was right already
	for i := range signatures {
		if text := r.Header.Get(signatures[i].header); text != "" && signatures[i].matches(text, token, body) {
			ok = true
		}
	}
	for _, shown := range tokens(r) {
		if same([]byte(shown), token) {
			ok = true
		}
	}
	return ok
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

// same compares in a time that does not depend on what is compared, also when the lengths differ.
func same(shown, token []byte) bool {
	a, b := sha256.Sum256(shown), sha256.Sum256(token)
	return hmac.Equal(a[:], b[:]) && len(shown) > 0
}

// shortfall says what a request lacks that is not proven.
func shortfall(r *http.Request) string {
	for _, s := range signatures {
		text := r.Header.Get(s.header)
		if text == "" {
			continue
		}
		if strings.HasPrefix(text, "sha1=") && s.header == "X-Signature" {
			return "X-Signature: HMAC-SHA1 does not count, sign with sha256 or sha512 and the token"
		}
		return s.header + " is not by the token"
	}
	for _, text := range tokens(r) {
		if text != "" {
			return "the token is not that"
		}
	}
	return "there is no signature and no token, it has to be that"
}

var keyToken = []string{"token"}

// authenticate returns the object that a request may trigger.
func (h *Receiver) authenticate(r *http.Request, ref source.Reference, body []byte) (source.Object, *refusal) {
	obj, err := h.Object(ref)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return nil, refused("object %s: %v", ref, err)
	}
	var token, name string
	if !missing {
		if token, name, err = h.token(r, obj, ref); err != nil {
			proven(r, []byte("-"), body) // as long as others take
			return nil, refused("object %s: %v", ref, err)
		}
	}
	right := proven(r, []byte(token), body) // also without a token, so that it takes as long
	switch {
	case token != "" && right:
		return obj, nil
	case token != "":
		return nil, refused("%s of secret %s/%s", shortfall(r), ref.Namespace, name)
	case h.Allowed == nil || !h.Allowed(r, ref):
		if missing {
			return nil, refused("there is no object %s", ref)
		}
		return nil, refused("object %s has no Secret for webhooks, and the caller no token of the server", ref)
	case missing:
		return nil, &refusal{http.StatusNotFound, "there is no object " + ref.String(), ""}
	}
	return obj, nil
}

// token returns the token of an object's hook, "" when it has none, and the name of its Secret.
func (h *Receiver) token(r *http.Request, obj source.Object, ref source.Reference) (token, name string, err error) {
	name, asked := obj.Head().Metadata.Annotations[Annotation]
	if !asked {
		name = h.Secret
	}
	if name == "" && !asked || h.Secrets == nil && !asked {
		return "", "", nil
	}
	if h.Secrets == nil {
		return "", name, errors.New("there are no Secrets here")
	}
	s, err := h.Secrets.Secret(r.Context(), ref.Namespace, name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !asked:
		return "", name, nil
	case err != nil:
		return "", name, err
	}
	reader := secret.Reader{Name: ref.Namespace + "/" + name, Data: s.Data}
	token, err = reader.Text(keyToken)
	if err == nil && token == "" {
		err = reader.Problem(keyToken[0], "is missing")
	}
	return token, name, err
}
