package tester

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/access"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

const retryAfter = 5 // seconds, when there is no better guess

// broken is all that callers are told of what went wrong in the test runner.
const broken = "the test runner could not do it, see its log"

// unknown says how a caller can say who it is.
const unknown = "say who you are: by a token in the header Authorization (Bearer, or Basic as password), " +
	"in the metadata of the payload (token), in the URL (/token/TOKEN/ before the path, or ?token=TOKEN), or by a client certificate"

// statuses are those of errors that are no refusal of their own.
var statuses = []struct {
	err    error
	status int
}{
	{access.ErrUnknown, http.StatusUnauthorized},
	{access.ErrForbidden, http.StatusForbidden},
	{gate.ErrInvalid, http.StatusBadRequest},
	{gate.ErrLink, http.StatusGone},
	{gate.ErrClosed, http.StatusServiceUnavailable},
	{run.ErrNotFound, http.StatusNotFound},
	{run.ErrBusy, http.StatusTooManyRequests},
	{run.ErrClosed, http.StatusServiceUnavailable},
}

// problem returns the status and the text of an error for the caller, counts
// and logs those that are about access, and logs those of the test runner
// itself. Text of the request in it is made harmless.
func (s *Server) problem(w http.ResponseWriter, r *http.Request, err error) (int, string) {
	status := http.StatusInternalServerError
	if own, ok := errors.AsType[*answer.Refusal](err); ok {
		status = own.Status
	}
	for _, known := range statuses {
		if errors.Is(err, known.err) {
			status = known.status
		}
	}
	header := w.Header()
	switch status {
	case http.StatusUnauthorized:
		s.observeDenial(r, err)
		header.Set("WWW-Authenticate", "Bearer")
		if missing(err) {
			return status, unknown
		}
		return status, access.ErrUnknown.Error()
	case http.StatusForbidden:
		if errors.Is(err, access.ErrForbidden) {
			s.observeDenial(r, err)
			return status, "Forbidden"
		}
	case http.StatusRequestEntityTooLarge:
		header.Set("Connection", "close")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if header.Get("Retry-After") == "" {
			header.Set("Retry-After", strconv.Itoa(retryAfter))
		}
	case http.StatusInternalServerError:
		s.broke(r, err)
		return status, broken // the cause names files
	}
	return status, redact.String(err.Error())
}

// refuseText answers an error of the contract of webhooks, unless the answer
// has begun: then the error is that of writing it.
func (s *Server) refuseText(w http.ResponseWriter, r *http.Request, err error) {
	if answer.Begun(w) {
		return
	}
	status, reason := s.problem(w, r, err)
	answer.Text(w, status, reason)
}

// refuseJSON answers an error of the API in the same way.
func (s *Server) refuseJSON(w http.ResponseWriter, r *http.Request, err error) {
	if answer.Begun(w) {
		return
	}
	status, reason := s.problem(w, r, err)
	answer.JSON(w, status, api.Problem{Status: status, Reason: reason})
}
