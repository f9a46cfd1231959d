package answer

import (
	"fmt"
	"net/http"
	"strings"
)

// A Refusal is an error with the status of its answer.
type Refusal struct {
	Status int
	Err    error // fit to be shown to the caller
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// Refuse returns a refusal.
func Refuse(status int, format string, values ...any) error {
	return &Refusal{status, fmt.Errorf(format, values...)}
}

// WrongMethod returns the refusal of a method that a path does not have.
func WrongMethod(w http.ResponseWriter, allowed ...string) error {
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	return Refuse(http.StatusMethodNotAllowed, "use %s", strings.Join(allowed, " or "))
}
