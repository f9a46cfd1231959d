package access

import (
	"errors"
	"strconv"
)

// ErrUnknown is a caller who did not say who it is, or whose credential is not known: 401.
// ErrForbidden is one who may not do what it asks for: 403.
var (
	ErrUnknown   = errors.New("no valid credential")
	ErrForbidden = errors.New("not allowed")
)

// A Denial is why a caller was refused. It is for the log: callers are told
// no more than the error that it wraps.
type Denial struct {
	Kind  string // missing, invalid, expired, or the part of the scope that does not allow it: namespace, read-only
	Actor string // who was refused, "" when that is not known

	reason  string
	value   string // that is not in the scope
	outside bool   // of the scope: reason is what the caller wanted to do
	err     error
}

// Forbid returns a [Denial] that wraps [ErrForbidden].
func Forbid(kind, actor, reason string) error {
	return &Denial{Kind: kind, Actor: actor, reason: reason, err: ErrForbidden}
}

// Outside returns the [Denial] of one who wants to do something, verb, with
// something whose kind, a namespace perhaps, has a value that its scope does not
// have. It wraps [ErrForbidden], and costs little: lists are filtered by it.
func Outside(kind, actor, verb, value string) error {
	return &Denial{Kind: kind, Actor: actor, reason: verb, value: value, outside: true, err: ErrForbidden}
}

func (d *Denial) Error() string {
	text := d.err.Error() + ": " + d.reason
	if d.outside {
		text += ": " + d.Kind + " " + quote(d.value) + " is not in its scope"
	}
	return text
}

// Unwrap returns ErrUnknown or ErrForbidden.
func (d *Denial) Unwrap() error { return d.err }

// quote quotes a text of a request, shortened to 80 bytes.
func quote(text string) string {
	if len(text) > 80 {
		text = text[:77] + "..."
	}
	return strconv.Quote(text)
}
