package git

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/lfs"
	"github.com/headgate-io/headgate/git/internal/wire"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// reasons chooses the reason of a failure's condition (reference A2); the
// first row that matches counts, and GitOperationFailed when none does.
var reasons = []struct {
	is     func(error) bool
	reason string
}{
	{as[*source.StepError], ""}, // has its reason already
	{as[*transport.SecretError], "AuthenticationFailed"},
	{as[*wire.HostKeyError], "AuthenticationFailed"},
	{is(artifact.ErrIgnore), "SourceIgnoreError"},
	{is(wire.ErrAuth), "AuthenticationFailed"},
	{is(lfs.ErrAuth), "AuthenticationFailed"},
	{is(wire.ErrEmpty), "EmptyGitRepository"},
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func as[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

// stepError gives err the reason of its condition.
func stepError(step source.Step, err error) error {
	for _, r := range reasons {
		if !r.is(err) {
			continue
		}
		if r.reason == "" {
			return err
		}
		return &source.StepError{Step: step, Reason: r.reason, Err: err}
	}
	return &source.StepError{Step: step, Reason: "GitOperationFailed", Err: err}
}

// invalid marks err as a defect of the spec: the object stalls until it changes.
func invalid(err error) error { return fmt.Errorf("%w: %w", source.ErrInvalid, err) }

func isAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// notFound is fs.ErrNotExist in other words: nothing selected exists.
type notFound string

func (e notFound) Error() string        { return string(e) }
func (e notFound) Is(target error) bool { return target == fs.ErrNotExist }
