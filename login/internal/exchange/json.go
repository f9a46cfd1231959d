package exchange

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/headgate-io/headgate/internal/redact"
)

// A StatusError is an answer with a status other than 2xx.
type StatusError struct {
	Request string // method and URL, without its query
	Status  int
	Message string // what the service says about it, fit to be shown; may be empty
	header  http.Header
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s: status %d", e.Request, e.Status)
	if e.Message != "" {
		text += " (" + e.Message + ")"
	}
	return text
}

// Limited reports whether the service refused because it was asked too often.
func (e *StatusError) Limited() bool {
	return e.Status == http.StatusTooManyRequests || e.header.Get("Retry-After") != "" || e.header.Get("X-Ratelimit-Remaining") == "0"
}

// JSON sends req and stores what the answer says in out. The error is a
// *[StatusError] when that is no success. None shows what req proves itself with.
func JSON(client *http.Client, req *http.Request, out any) error {
	name := req.Method + " " + redact.URL(req.URL)
	_, secret, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	resp, err := client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // name says which URL
		}
		if strings.HasPrefix(err.Error(), "failed to parse Location header") { // which it goes on to repeat
			err = errors.New("redirect without a valid address")
		}
		return fmt.Errorf("%s: %w", name, redact.Error(err, secret))
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return &StatusError{name, resp.StatusCode, said(resp, secret), resp.Header}
	}
	body, err := io.ReadAll(resp.Body) // which is bounded, see Client
	if err != nil {
		return fmt.Errorf("%s: the answer breaks off: %w", name, redact.Error(err, secret))
	}
	if err := json.Unmarshal(body, out); err != nil { // which may repeat a value of any length
		return fmt.Errorf("%s: the answer is not what it should be: %s", name, Said(err.Error(), secret))
	}
	return nil
}

// said returns the explanation in the body of a failure, in the words that
// GitHub, OAuth 2.0 (RFC 6749 section 5.2) and others use for it.
func said(resp *http.Response, secret string) string {
	var body struct {
		Message     string `json:"message"`
		Description string `json:"error_description"`
		Error       any    `json:"error"`
	}
	if json.NewDecoder(resp.Body).Decode(&body) != nil {
		return ""
	}
	code, _ := body.Error.(string)
	for _, text := range []string{body.Message, body.Description, code} {
		if text != "" {
			return Said(text, secret)
		}
	}
	return ""
}

// maxSaid bounds, in characters, how much of a service's explanation is repeated.
const maxSaid = 300

// Said returns what a service says about a failure so that it can be shown: in
// one line, short, and without secrets.
func Said(text string, secrets ...string) string {
	r := []rune(redact.String(text, secrets...))
	if len(r) > maxSaid {
		r = append(r[:maxSaid], '…')
	}
	return string(r)
}
