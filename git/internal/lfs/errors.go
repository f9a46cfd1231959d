package lfs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
)

// The kinds of failure that callers tell apart with errors.Is.
var (
	// ErrAuth: the endpoint refused the credentials, or wants some. It is fs.ErrPermission.
	ErrAuth error = &kind{"authentication failed", fs.ErrPermission}
	// ErrNotFound: there is no such endpoint or object. It is fs.ErrNotExist.
	ErrNotFound error = &kind{"not found", fs.ErrNotExist}
	// ErrProtocol: the answer does not follow the protocol.
	ErrProtocol = errors.New("protocol error")
	// ErrRefused: the answer leads to where it may not lead.
	ErrRefused = errors.New("address refused")
	// errRemote: the server reported an error.
	errRemote = errors.New("remote error")
	// errExpired: the link to an object is too old.
	errExpired = errors.New("the link has expired")
)

type kind struct {
	text string
	std  error
}

func (k *kind) Error() string        { return k.text }
func (k *kind) Is(target error) bool { return target == k.std }

// A transientError is one that another attempt may not meet.
type transientError struct {
	err   error
	after time.Duration // what the server asks to wait, negative when it asks nothing
}

func (e *transientError) Error() string { return e.err.Error() }
func (e *transientError) Unwrap() error { return e.err }

const (
	maxErrorPage = 4 << 10 // bytes read of an error page
	maxMessage   = 300     // bytes of a server's message that are repeated
)

// statuses tells what an HTTP status, or the code of an object, means and what
// to do about it.
var statuses = map[int]struct {
	kind error
	hint string
}{
	http.StatusUnauthorized:        {ErrAuth, "check the credentials in the Secret, and that they may read LFS objects"},
	http.StatusForbidden:           {ErrAuth, "the credentials may not read LFS objects of this repository"},
	http.StatusNotFound:            {ErrNotFound, "the server has no such LFS object, or no LFS for this repository"},
	http.StatusGone:                {ErrNotFound, "the object was removed from the server"},
	http.StatusUnprocessableEntity: {errRemote, "the server does not accept the pointer"},
	http.StatusNotImplemented:      {errRemote, "the server has no Git LFS"},
	http.StatusInsufficientStorage: {errRemote, "the server has no space left"},
	509:                            {errRemote, "the bandwidth quota of the repository is used up"},
}

// statusError is the error for a status and what the server says about it, which
// may repeat what it was shown.
func statusError(status int, said string, shown ...string) error {
	text := fmt.Sprintf("status %d", status)
	if said = clean(said, shown...); said != "" {
		text += " (" + said + ")"
	}
	if s, ok := statuses[status]; ok {
		return fmt.Errorf("%w: %s: %s", s.kind, text, s.hint)
	}
	return fmt.Errorf("%w: %s", errRemote, text)
}

// responseError is the error for a response that is no success.
func responseError(resp *http.Response, now time.Time) error {
	page, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorPage))
	var answer struct{ Message string }
	if json.Unmarshal(page, &answer) != nil && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		answer.Message = string(page)
	}
	err := statusError(resp.StatusCode, answer.Message, secrets(resp.Request)...)
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		after, given := transport.RetryAfter(resp.Header, now)
		if !given {
			after = -1
		}
		return &transientError{err, after}
	}
	return err
}

// clean makes a server's text fit to be repeated: without secrets, and in whole
// words, for a part of a secret that is not known here would be known nowhere.
func clean(text string, secrets ...string) string {
	text = strings.Join(strings.Fields(redact.String(words(text, maxErrorPage), secrets...)), " ")
	if short := words(text, maxMessage); short != text {
		text = short + "…"
	}
	return text
}

// words returns text as far as its words end within limit bytes.
func words(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return text[:max(strings.LastIndexAny(text[:limit+1], blank), 0)]
}

// plainFields are header fields that hold no secret.
var plainFields = map[string]bool{"Accept": true, "Accept-Encoding": true, "Content-Type": true, "User-Agent": true}

// secrets returns what a request, as it was sent, proves itself with: header
// fields, and the query of a link.
func secrets(req *http.Request) (all []string) {
	for name, values := range req.Header {
		if plainFields[name] {
			continue
		}
		for _, v := range values {
			_, credential, _ := strings.Cut(v, " ")
			all = append(all, v, credential)
		}
	}
	for _, values := range req.URL.Query() {
		all = append(all, values...)
	}
	return all
}
