package tester

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/web"
)

// Callers keep 64 KiB of an answer.
const (
	maxFailure = 64 << 10
	maxCommand = 4 << 10 // bytes of a command in the text of a failure
	maxReason  = 8 << 10
)

// endedHeader says when the run of a verdict that was kept for this request ended.
const endedHeader = "Headgate-Run-Ended"

// verdict answers with how a run ended; kept says that it had ended before it was
// asked for. When that has been written to a caller that is still there it is
// delivered. The k6 webhook also answers for a run that goes on.
func (s *Server) verdict(w http.ResponseWriter, r *http.Request, j *job, state api.Run, kept bool) {
	note := ""
	if kept {
		ended := state.Ended.UTC().Format(time.RFC3339)
		w.Header().Set(endedHeader, ended)
		note = "the run ended before this request, at " + ended
	}
	status, body := s.verdictStatus(w, j, state), j.verdictText(state, note)
	if j.launch != nil && final(state.State) && state.State != api.Stopped {
		s.launches.remember(*j.launch, state.State != api.Succeeded)
	}
	var err error
	if answer.Wants(r, "application/json") {
		state.URL = s.runURL(r, state.ID)
		err = answer.JSON(w, status, state)
	} else {
		err = answer.Text(w, status, body)
	}
	if final(state.State) {
		s.deliver(r, state, err)
	}
}

// deliver says that a verdict was received, unless it could not be written or
// the caller has left. The end of the answer is sent after that: whoever has all
// of it and asks again gets a new run.
func (s *Server) deliver(r *http.Request, state api.Run, err error) {
	if err == nil && r.Context().Err() == nil {
		s.Runs.Deliver(state.ID)
	}
}

// verdictStatus returns the status of a run. One that was stopped with the test
// runner has no verdict: it is to be asked for again.
func (s *Server) verdictStatus(w http.ResponseWriter, j *job, state api.Run) int {
	switch {
	case state.State == api.Succeeded || !final(state.State):
		return http.StatusOK
	case state.State == api.Stopped:
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		return http.StatusServiceUnavailable
	case j.launch != nil:
		return http.StatusBadRequest
	}
	return s.failure()
}

// verdictText returns the body of the answer, with a note, which may be "", where
// the output does not stand alone.
func (j *job) verdictText(state api.Run, note string) string {
	if state.State == api.Succeeded || !final(state.State) {
		if j.ReturnOutput || j.launch != nil {
			return state.Output
		}
		return note
	}
	reason := middle(state.Reason, maxReason)
	if reason == "" {
		reason = string(state.State)
	}
	if note != "" {
		reason += " (" + note + ")"
	}
	switch {
	case j.launch != nil:
		return failureText("k6 failed: "+reason+"\n", state.Output, "")
	case j.command:
		return failureText("command "+middle(state.Metadata["cmd"], maxCommand)+" failed: ", state.Output, ": "+reason)
	case state.Output != "":
		return failureText(reason+"\n", state.Output, "")
	}
	return reason
}

// failureText returns a text of at most maxFailure bytes, whose output is cut
// in the middle.
func failureText(head, output, tail string) string {
	return head + middle(output, maxFailure-len(head)-len(tail)) + tail
}

// middle returns a text of at most most bytes: its beginning and its end.
func middle(text string, most int) string {
	if len(text) <= most {
		return text
	}
	mark := fmt.Sprintf("\n[%d bytes left out]\n", len(text)-most)
	half := (most - len(mark)) / 2
	if half <= 0 {
		return text[:most]
	}
	return trimEnd(text[:half]) + mark + trimStart(text[len(text)-half:])
}

// trimEnd and trimStart remove the part of a character that a cut left.
func trimEnd(text string) string {
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if utf8.RuneStart(text[len(text)-i]) {
			if !utf8.FullRuneInString(text[len(text)-i:]) {
				return text[:len(text)-i]
			}
			break
		}
	}
	return text
}

func trimStart(text string) string {
	for i := 0; i < utf8.UTFMax && i < len(text); i++ {
		if utf8.RuneStart(text[i]) {
			return text[i:]
		}
	}
	return text
}

// base returns the URL of the test runner as the caller has it, without a slash
// at its end.
func (s *Server) base(r *http.Request) string {
	if s.BaseURL != "" {
		return strings.TrimRight(s.BaseURL, "/")
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + r.Host
}

// runURL is the page of a run, for people who read an answer.
func (s *Server) runURL(r *http.Request, id string) string {
	return s.base(r) + "/" + web.RunPath(id)
}
