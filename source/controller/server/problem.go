package server

import (
	"errors"
	"io/fs"
	"net/http"
	"strconv"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source/controller"
	"github.com/headgate-io/headgate/source/controller/access"
	"github.com/headgate-io/headgate/source/controller/api"
)

const retryAfter = 5 // seconds

// broken is all that callers are told of what went wrong in the server.
const broken = "the server could not do it, see its log"

// unknown says how a caller can say who it is.
const unknown = "say who you are: by a token in the header Authorization (Bearer, or Basic as password) or by a client certificate; " +
	"headgate takes it from --token-file or HEADGATE_TOKEN"

// statuses are those of errors that are no refusal of their own.
var statuses = []struct {
	err    error
	status int
}{
	{access.ErrUnknown, http.StatusUnauthorized},
	{access.ErrForbidden, http.StatusForbidden},
	{fs.ErrNotExist, http.StatusNotFound},
	{controller.ErrSuspended, http.StatusConflict},
	{controller.ErrEnded, http.StatusServiceUnavailable},
}

func statusOf(err error) int {
	if own, ok := errors.AsType[*answer.Refusal](err); ok {
		return own.Status
	}
	for _, known := range statuses {
		if errors.Is(err, known.err) {
			return known.status
		}
	}
	return http.StatusInternalServerError
}

// problem returns the status and the text of an error for the caller, counts
// and logs those that are about access, and logs those of the server itself.
// Text of the request in it is made harmless.
func (s *Server) problem(w http.ResponseWriter, r *http.Request, err error) (int, string) {
	status := statusOf(err)
	header := w.Header()
	switch status {
	case http.StatusUnauthorized:
		s.observeDenial(r, err)
		header.Set("WWW-Authenticate", "Bearer")
		return status, unknown
	case http.StatusForbidden:
		s.observeDenial(r, err)
		return status, "the credential does not allow it"
	case http.StatusRequestEntityTooLarge:
		header.Set("Connection", "close")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if header.Get("Retry-After") == "" {
			header.Set("Retry-After", strconv.Itoa(retryAfter))
		}
	case http.StatusInternalServerError:
		s.logger().Error("a request could not be answered", "method", r.Method, "path", clean(r.URL.Path), "error", redact.String(err.Error()))
		return status, broken // the cause names files
	}
	return status, redact.String(err.Error())
}

func problem(status int, reason string) api.Problem {
	return api.Problem{Status: status, Reason: reason}
}
