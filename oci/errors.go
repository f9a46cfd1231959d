package oci

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// listFailed is the reason when no tag can be chosen (reference A2).
const listFailed = "ReadOperationFailed"

// refusals are the failures whose reason is AuthenticationFailed, whatever was
// going on: what is presented to the other side does not do, or the other way round.
var refusals = []func(error) bool{
	func(err error) bool {
		status, ok := errors.AsType[*StatusError](err)
		return ok && errors.Is(status, fs.ErrPermission)
	},
	is[*RealmError],
	is[*transport.SecretError],
	is[*tls.CertificateVerificationError],
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
	for _, refused := range refusals {
		if refused(err) {
			reason = "AuthenticationFailed"
		}
	}
	return &source.StepError{Step: step, Reason: reason, Err: err}
}

// invalid marks err as a defect of the spec: the object stalls until it changes.
func invalid(err error) error { return fmt.Errorf("%w: %w", source.ErrInvalid, err) }

// notFound is fs.ErrNotExist in other words: nothing selected exists.
type notFound string

func (e notFound) Error() string        { return string(e) }
func (e notFound) Is(target error) bool { return target == fs.ErrNotExist }
