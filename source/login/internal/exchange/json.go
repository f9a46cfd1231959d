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

// Header returns a header of the answer, "" when it has none of that name.
func (e *StatusError) Header(name string) string { return e.header.Get(name) }

// Final reports whether asking again later is of no use: what was asked for, or
// who asked, was refused.
func (e *StatusError) Final() bool { return Final(e.Status) && !e.Limited() }

// Final reports the same of a status alone.
func Final(status int) bool {
	return status/100 == 4 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests
}

func newStatusError(req *http.Request, resp *http.Response) *StatusError {
	return &StatusError{nameOf(req), resp.StatusCode, said(resp, proofs(req)), resp.Header}
}

// nameOf names a request in messages.
func nameOf(req *http.Request) string { return req.Method + " " + redact.URL(req.URL) }

// proofFields are those of a form that say who asks (RFC 6749, RFC 7523, RFC 8693).
var proofFields = []string{"assertion", "client_assertion", "client_secret", "refresh_token", "subject_token", "access_token"}

// proofs returns what req proves itself with: its credentials, in the header or in a form.
func proofs(req *http.Request) []string {
	_, secret, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	_, password, _ := req.BasicAuth()
	secrets := []string{secret, password}
	if req.GetBody == nil || !strings.HasPrefix(req.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		return secrets
	}
	body, err := req.GetBody()
	if err != nil {
		return secrets
	}
	defer body.Close()
	text, _ := io.ReadAll(body) // of memory: this program made it
	form, _ := url.ParseQuery(string(text))
	for _, field := range proofFields {
		secrets = append(secrets, form[field]...)
	}
	return secrets
}

// JSON sends req and stores what the answer says in out. The error is a
// *[StatusError] when that is no success. None shows what req proves itself with.
func JSON(client *http.Client, req *http.Request, out any) error {
	body, err := Text(client, req)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(body), out); err != nil { // which may repeat a value of any length
		return fmt.Errorf("%s: the answer is not what it should be: %s", nameOf(req), Said(err.Error(), proofs(req)...))
	}
	return nil
}

// Text sends req and returns what the answer says. Errors are as those of [JSON].
func Text(client *http.Client, req *http.Request) (string, error) {
	name, secrets := nameOf(req), proofs(req)
	resp, err := client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // name says which URL
		}
		if strings.HasPrefix(err.Error(), "failed to parse Location header") { // which it goes on to repeat
			err = errors.New("redirect without a valid address")
		}
		return "", fmt.Errorf("%s: %w", name, redact.Error(err, secrets...))
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return "", newStatusError(req, resp)
	}
	body, err := io.ReadAll(resp.Body) // which is bounded, see Client
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return "", fmt.Errorf("%s: %s", name, Said(err.Error()))
	}
	if err != nil {
		return "", fmt.Errorf("%s: the answer breaks off: %w", name, redact.Error(err, secrets...))
	}
	return string(body), nil
}

// said returns the explanation in the body of a failure, in the words that
// GitHub, OAuth 2.0 (RFC 6749 section 5.2), Google, registries and others use for it.
func said(resp *http.Response, secrets []string) string {
	var body struct {
		Message     string `json:"message"`
		Description string `json:"error_description"`
		Error       any    `json:"error"`
		Errors      any    `json:"errors"`
	}
	if json.NewDecoder(resp.Body).Decode(&body) != nil {
		return ""
	}
	for _, text := range []string{body.Message, body.Description, messageOf(body.Error), messageOf(body.Errors)} {
		if text != "" {
			return Said(text, secrets...)
		}
	}
	return ""
}

// messageOf returns the message in v: v itself, that of an object, or that of the first of a list.
func messageOf(v any) string {
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
	}
	if object, ok := v.(map[string]any); ok {
		v = object["message"]
	}
	text, _ := v.(string)
	return text
}

// maxSaid bounds, in characters, how much of a service's explanation is repeated.
const maxSaid = 300

// Said returns what a service says about a failure so that it can be shown: in
// one line, short, and without secrets.
func Said(text string, secrets ...string) string {
	text = strings.ReplaceAll(text, "http: request body too large", fmt.Sprintf("the answer is larger than %d bytes", MaxAnswer))
	r := []rune(redact.String(text, secrets...))
	if len(r) > maxSaid {
		r = append(r[:maxSaid], '…')
	}
	return string(r)
}
