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
	After  time.Duration // how long the server asks to wait, 0 if it does not say
	Hint   string        // advice for the user, "" if there is none
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

// RetryAfter returns the time before which the [source.Reconciler] does not try again.
func (e *StatusError) RetryAfter() time.Duration { return e.After }

// requestError returns the cause of an error of an [http.Client], with the URL redacted.
func requestError(err error) error {
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

// stepError adds the step and the reason to err, unless it has them. If credentials were
// refused, the reason is AuthenticationFailed.
func stepError(step source.Step, reason string, err error) error {
	chosen, ok := errors.AsType[*source.StepError](err)
	status, http := errors.AsType[*StatusError](err)
	image, registry := errors.AsType[*oci.StatusError](err)
	switch {
	case ok && error(chosen) == err:
		return err
	case ok:
		step, reason = chosen.Step, chosen.Reason
	case http && errors.Is(status, fs.ErrPermission), registry && errors.Is(image, fs.ErrPermission), is[*oci.RealmError](err), transport.IsAuthFailure(err):
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

// badURL returns the error of a defect in spec.url (reference A2).
func badURL(err error) error {
	return &source.StepError{Step: source.StepResolve, Reason: "URLInvalid", Err: invalid(fmt.Errorf("spec.url: %w", err))}
}

// badChart returns the error that spec.chart leads to no chart.
func badChart(err error) error {
	return &source.StepError{Step: source.StepResolve, Reason: badReference, Err: invalid(err)}
}

// badValues returns the error of a defect in spec.valuesFiles.
func badValues(err error) error {
	return &source.StepError{Step: source.StepBuild, Reason: "ValuesFilesError", Err: invalid(err)}
}

// badVersion returns the error that the chart cannot have the version of its artifact.
func badVersion(err error) error {
	return &source.StepError{Step: source.StepBuild, Reason: "MetadataPatchError", Err: invalid(err)}
}
