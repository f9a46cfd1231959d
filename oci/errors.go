package oci

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// A StatusError is the answer of a registry, or of its token service, that
// refuses a request. It satisfies [fs.ErrNotExist] for status 404 and
// [fs.ErrPermission] for 401 and 403.
type StatusError struct {
	Method  string
	URL     string // without user information and query
	Status  int
	Code    string        // of the first error in the answer, for example DENIED
	Message string        // of that error, at most 256 bytes
	After   time.Duration // when to try again, as the server has it; 0 when it does not tell
	Hint    string        // what to do, "" when nothing is known
}

const (
	maxErrorBody = 16 << 10
	maxMessage   = 256
)

func (e *StatusError) Error() string {
	text := []string{fmt.Sprintf("%s %s: %d %s", e.Method, e.URL, e.Status, http.StatusText(e.Status))}
	for _, more := range []string{e.Code, e.Message, e.Hint} {
		if more != "" {
			text = append(text, more)
		}
	}
	if e.After > 0 {
		text = append(text, fmt.Sprintf("try again in %s", e.After))
	}
	return strings.Join(text, ": ")
}

// Is implements the errors of io/fs.
func (e *StatusError) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return e.Status == http.StatusNotFound
	case fs.ErrPermission:
		return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
	}
	return false
}

// RetryAfter says when the [source.Reconciler] is to try again at the earliest.
func (e *StatusError) RetryAfter() time.Duration { return e.After }

const (
	overTLS    = "the registry speaks TLS: remove spec.insecure"
	withoutTLS = "the registry speaks no TLS: set spec.insecure if that is meant to be"
)

// plain makes what a server says fit for a message. It is cut last, and between
// words: a part of a secret would not be known for one.
func plain(text string, secrets ...string) string {
	if text = redact.String(text, secrets...); len(text) <= maxMessage {
		return text
	}
	return text[:max(strings.LastIndexByte(text[:maxMessage+1], ' '), 0)] + "..."
}

// bare returns the cause of what an [http.Client] reports, with the URL as far
// as it may show: those of storage hosts hold signatures.
func bare(err error) error {
	e, ok := err.(*url.Error)
	if !ok {
		return err
	}
	at := "the address of a redirect"
	if u, parse := url.Parse(e.URL); parse == nil {
		at = redact.URL(u)
	}
	return fmt.Errorf("%s %s: %w", strings.ToUpper(e.Op), at, hinted(e.Err))
}

// hinted says what to do about an error of the connection where that is known.
func hinted(err error) error {
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%w: %s", err, withoutTLS)
	case strings.Contains(err.Error(), `malformed HTTP response "\x15\x03`): // an alert of TLS
		return fmt.Errorf("%w: %s", err, overTLS)
	}
	return err
}

// listFailed is the reason when no tag can be chosen (reference A2).
const listFailed = "ReadOperationFailed"

// refused reports whether the reason of err is AuthenticationFailed, whatever was
// going on.
func refused(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && errors.Is(status, fs.ErrPermission) || is[*RealmError](err) || transport.Refusal(err)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// stepError gives err the reason of its condition, unless it has one.
func stepError(step source.Step, reason string, err error) error {
	if is[*source.StepError](err) {
		return err
	}
	if refused(err) {
		reason = "AuthenticationFailed"
	}
	return &source.StepError{Step: step, Reason: reason, Err: err}
}

// invalid marks err as a defect of the spec: the object stalls until it changes.
func invalid(err error) error { return fmt.Errorf("%w: %w", source.ErrInvalid, err) }

// notFound is fs.ErrNotExist in other words: nothing selected exists.
type notFound string

func (e notFound) Error() string        { return string(e) }
func (e notFound) Is(target error) bool { return target == fs.ErrNotExist }
