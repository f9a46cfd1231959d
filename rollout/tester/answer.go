package tester

import (
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/access"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

const (
	answerTime  = 30 * time.Second // for an answer to be taken
	shortAnswer = 1 << 10          // bytes that net/http keeps until the handler has returned
	retryAfter  = 5                // seconds, when there is no better guess
)

// broken is all that callers are told of what went wrong in the test runner.
const broken = "the test runner could not do it, see its log"

// unknown says how a caller can say who it is.
const unknown = "say who you are: by a token in the header Authorization (Bearer, or Basic as password), " +
	"in the metadata of the payload (token), in the URL (/token/TOKEN/ before the path, or ?token=TOKEN), or by a client certificate"

// send writes the body of an answer. The last byte of it leaves when the handler
// has returned: what the handler does next, callers find done.
func send(w http.ResponseWriter, body []byte) error {
	if n := len(body) - 1; n >= shortAnswer {
		if _, err := w.Write(body[:n]); err != nil {
			return err
		}
		body = body[n:]
	}
	_, err := w.Write(body)
	return err
}

// Values of headers of all texts, which nobody changes.
var (
	nosniff   = []string{"nosniff"}
	plainText = []string{"text/plain; charset=utf-8"}
)

// text answers with a text, "" for no body.
func text(w http.ResponseWriter, status int, body string) error {
	header := w.Header()
	header["X-Content-Type-Options"] = nosniff
	if body != "" {
		header["Content-Type"] = plainText
	}
	if len(body) >= shortAnswer { // else net/http does
		header["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(status)
	return send(w, []byte(body))
}

// reply answers with JSON.
func reply(w http.ResponseWriter, status int, value any) error {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	body = append(body, '\n')
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	return send(w, body)
}

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
	if own, ok := errors.AsType[*refusal](err); ok {
		status = own.status
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
	if begun(w) {
		return
	}
	status, reason := s.problem(w, r, err)
	text(w, status, reason)
}

// refuseJSON answers an error of the API in the same way.
func (s *Server) refuseJSON(w http.ResponseWriter, r *http.Request, err error) {
	if begun(w) {
		return
	}
	status, reason := s.problem(w, r, err)
	reply(w, status, api.Problem{Status: status, Reason: reason})
}

// wrongMethod returns the refusal of a method that a path does not have.
func wrongMethod(w http.ResponseWriter, allowed ...string) error {
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	return refuse(http.StatusMethodNotAllowed, "use %s", strings.Join(allowed, " or "))
}

// wantsJSON reports whether the caller asked for JSON by that name.
func wantsJSON(r *http.Request) bool {
	for _, line := range r.Header["Accept"] {
		for item := range strings.SplitSeq(line, ",") {
			kind, parameters, err := mime.ParseMediaType(item)
			if err != nil || kind != "application/json" {
				continue
			}
			if weight, err := strconv.ParseFloat(parameters["q"], 64); err != nil || weight > 0 {
				return true
			}
		}
	}
	return false
}
