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

// The reasons of failures (reference A2).
const (
	badReference = "InvalidChartReference"
	pullFailed   = "ChartPullError"
	indexFailed  = "IndexationFailed"
	verifyFailed = "ChartVerificationError"
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

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// stepError gives err the step and the reason of its condition, unless it has
// them. The reason is AuthenticationFailed where credentials were refused.
func stepError(step source.Step, reason string, err error) error {
	chosen, ok := errors.AsType[*source.StepError](err)
	status, http := errors.AsType[*StatusError](err)
	image, registry := errors.AsType[*oci.StatusError](err)
	switch {
	case ok && error(chosen) == err:
		return err
	case ok:
		step, reason = chosen.Step, chosen.Reason
	case http && errors.Is(status, fs.ErrPermission), registry && errors.Is(image, fs.ErrPermission), is[*oci.RealmError](err), transport.Refusal(err):
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

// badURL is a defect of spec.url (reference A2).
func badURL(err error) error {
	return &source.StepError{Step: source.StepResolve, Reason: "URLInvalid", Err: invalid(fmt.Errorf("spec.url: %w", err))}
}

// badChart says that spec.chart leads to no chart.
func badChart(err error) error {
	return &source.StepError{Step: source.StepResolve, Reason: badReference, Err: invalid(err)}
}

// badValues says what is wrong with spec.valuesFiles.
func badValues(err error) error {
	return &source.StepError{Step: source.StepBuild, Reason: "ValuesFilesError", Err: invalid(err)}
}

// badVersion says that the chart cannot be given the version of its artifact.
func badVersion(err error) error {
	return &source.StepError{Step: source.StepBuild, Reason: "MetadataPatchError", Err: invalid(err)}
}
