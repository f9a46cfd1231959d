package chart

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// A StatusError is the answer of a repository that refuses a request. It
// satisfies [fs.ErrNotExist] for status 404 and 410, and [fs.ErrPermission] for 401 and 403.
type StatusError struct {
	URL    string // without user information and query
	Status int
	After  time.Duration // when to try again, as the server has it; 0 when it does not tell
	Hint   string        // what to do, "" when nothing is known
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("GET %s: %d %s", e.URL, e.Status, http.StatusText(e.Status))
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	if e.After > 0 {
		text += fmt.Sprintf(": try again in %s", e.After)
	}
	return text
}

// Is implements the errors of io/fs.
func (e *StatusError) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return e.Status == http.StatusNotFound || e.Status == http.StatusGone
	case fs.ErrPermission:
		return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
	}
	return false
}

// RetryAfter says when the [source.Reconciler] is to try again at the earliest.
func (e *StatusError) RetryAfter() time.Duration { return e.After }

// refusal returns what resp refuses of the request for u. What the server has to say about it is left
// out: it may repeat credentials, and is hardly ever more than a web page.
func (w *web) refusal(u *url.URL, resp *http.Response) *StatusError {
	e := &StatusError{URL: redact.URL(resp.Request.URL), Status: resp.StatusCode}
	e.After, _ = transport.RetryAfter(resp.Header, time.Now())
	switch {
	case e.Status == http.StatusNotModified:
		e.Hint = "the server answers as if it had been asked whether something changed"
	case errors.Is(e, fs.ErrPermission) && transport.SameOrigin(u, resp.Request.URL):
		e.Hint = w.advice(u)
	}
	return e
}

// advice tells who is not let in at u what to do about credentials, "" when
// there is nothing to tell.
func (w *web) advice(u *url.URL) string {
	own, none := transport.SameOrigin(u, w.at), w.way.Auth == transport.Auth{}
	switch {
	case own && none && w.secret != "":
		return "secret " + w.secret + " in spec.secretRef of its PkgRepository has no username and password"
	case own && none:
		return "the repository may want the user name and password of a Secret in spec.secretRef of its PkgRepository"
	case own:
		return "check the user name and password, which are in spec.secretRef or spec.url of its PkgRepository"
	case !none && !w.pass:
		return "user name and password were sent to " + w.at.Host + " only: spec.passCredentials of its PkgRepository sends them to the servers of its charts as well"
	}
	return ""
}

// unreached returns the cause of what an [http.Client] reports, with the URL as
// far as it may show.
func unreached(err error) error {
	e, ok := err.(*url.Error)
	if !ok {
		return err
	}
	at := "the address of a redirect"
	if u, parse := url.Parse(e.URL); parse == nil {
		at = redact.URL(u)
	}
	cause := e.Err
	switch {
	case is[x509.UnknownAuthorityError](cause):
		cause = fmt.Errorf("%w: ca.crt of a server that the system does not know belongs into the Secret of spec.certSecretRef", cause)
	case errors.Is(cause, http.ErrSchemeMismatch):
		cause = fmt.Errorf("%w: the server speaks no TLS: spec.url may have to begin with http://", cause)
	}
	return fmt.Errorf("%s %s: %w", strings.ToUpper(e.Op), at, cause)
}

// refused reports whether the reason of err is AuthenticationFailed, whatever was
// going on.
func refused(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	image, also := errors.AsType[*oci.StatusError](err)
	return ok && errors.Is(status, fs.ErrPermission) || also && errors.Is(image, fs.ErrPermission) ||
		is[*oci.RealmError](err) || transport.Refusal(err)
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

// invalid marks err as a defect of the spec, once: the object stalls until it changes.
func invalid(err error) error {
	if errors.Is(err, source.ErrInvalid) {
		return err
	}
	return fmt.Errorf("%w: %w", source.ErrInvalid, err)
}

// urlInvalid is a defect of spec.url (reference A2).
func urlInvalid(err error) error {
	return &source.StepError{Step: source.StepResolve, Reason: "URLInvalid", Err: invalid(err)}
}
