package api

import (
	"io/fs"
	"net/http"

	"github.com/headgate-io/headgate/internal/call"
)

// advice says what to do about answers that do not say it themselves.
var advice = map[int]string{
	http.StatusBadRequest:         "perhaps the server speaks TLS alone: try https://",
	http.StatusUnauthorized:       "the server does not know who calls: give a token of its file that has not expired by --token-file or the variable HEADGATE_TOKEN",
	http.StatusForbidden:          "the token does not allow this: give another by --token-file or the variable HEADGATE_TOKEN, or have its entry in the file of the server changed",
	http.StatusServiceUnavailable: "the server is starting or shutting down: try again",
}

// Error returns what is wrong, and what to do.
func (p *Problem) Error() string {
	text := call.Status(p.Status, p.Reason)
	switch p.Status {
	case http.StatusNotFound, http.StatusConflict:
		if p.Reason != "" {
			text = p.Reason
		}
	case http.StatusUnauthorized, http.StatusForbidden:
		text = call.Status(p.Status, "") + ": " + advice[p.Status]
	default:
		if more := advice[p.Status]; more != "" && p.Reason == "" {
			text += ": " + more
		}
	}
	return text
}

// Is reports whether the problem is that there is no such thing, or that the
// caller may not see it: [fs.ErrNotExist], [fs.ErrPermission].
func (p *Problem) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return p.Status == http.StatusNotFound
	case fs.ErrPermission:
		return p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden
	}
	return false
}
