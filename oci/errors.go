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

// stepError gives err the reason of its condition, unless it has one.
func stepError(step source.Step, reason string, err error) error {
	if _, has := errors.AsType[*source.StepError](err); has {
		return err
	}
	if _, secret := errors.AsType[*transport.SecretError](err); secret {
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
