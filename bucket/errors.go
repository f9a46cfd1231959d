package bucket

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// operationFailed is the reason of failures that name no other (reference A2).
const operationFailed = "BucketOperationFailed"

// refused reports whether the reason of err is AuthenticationFailed, whatever was
// going on.
func refused(err error) bool {
	return errors.Is(err, fs.ErrPermission) && is[*StatusError](err) || transport.Refusal(err)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// failed says which bucket err is about, what to do where that is known, and
// gives it the step and the reason of its condition unless it has them.
func (o *Origin) failed(step source.Step, err error) error {
	out := &source.StepError{Step: step, Reason: operationFailed}
	if refused(err) {
		out.Reason = "AuthenticationFailed"
	}
	if chosen, ok := errors.AsType[*source.StepError](err); ok {
		out.Step, out.Reason = chosen.Step, chosen.Reason
	}
	if is[x509.UnknownAuthorityError](err) {
		err = fmt.Errorf("%w: ca.crt of a server that the system does not know belongs into the Secret of certSecretRef", err)
	}
	out.Err = fmt.Errorf("bucket '%s': %w", o.bucket.Spec.BucketName, err)
	return out
}

// invalid marks err as a defect of the spec: the object stalls until it changes.
func invalid(err error) error { return fmt.Errorf("%w: %w", source.ErrInvalid, err) }
