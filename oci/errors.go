package oci

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

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
