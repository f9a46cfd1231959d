package access

import "errors"

// ErrUnknown is a caller who did not say who it is, or whose credential is not known: 401.
// ErrForbidden is one who may not do what it asks for: 403.
var (
	ErrUnknown   = errors.New("no valid credential")
	ErrForbidden = errors.New("not allowed")
)

// A Denial is why a caller was refused. It is for the log: callers are told
// no more than the error that it wraps.
type Denial struct {
	Kind  string // missing, invalid, expired; namespace, type, gate, kind, read-only
	Actor string // who was refused, "" when that is not known

	reason string
	err    error
}

func (d *Denial) Error() string { return d.err.Error() + ": " + d.reason }

// Unwrap returns ErrUnknown or ErrForbidden.
func (d *Denial) Unwrap() error { return d.err }
