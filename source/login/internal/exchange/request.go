package exchange

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
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
	return Said(cmp.Or(body.Message, body.Description, messageOf(body.Error), messageOf(body.Errors)), secrets...)
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

// maxSaid bounds, in bytes, how much of a service's explanation is repeated.
const maxSaid = 300

// Said returns what a service says about a failure so that it can be shown: in
// one line, short, and without secrets.
func Said(text string, secrets ...string) string {
	text = strings.ReplaceAll(text, "http: request body too large", fmt.Sprintf("the answer is larger than %d bytes", MaxAnswer))
	return redact.Excerpt(text, maxSaid, secrets...)
}

// What a runner tells its jobs.
const (
	requestURL   = "ACTIONS_ID_TOKEN_REQUEST_URL"
	requestToken = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
)

// JobVariables are those that are set in a job that may ask for tokens.
var JobVariables = []string{requestURL, requestToken}

// JobToken returns an identity token (OpenID Connect) for audience, of the job of
// GitHub Actions or Forgejo Actions that the program runs in. The job must be
// allowed to ask for one: permission id-token: write on GitHub,
// enable-openid-connect on Forgejo. The request goes over https only, or to loopback.
func JobToken(ctx context.Context, client *http.Client, env Environment, audience string) (string, error) {
	u, err := url.Parse(env.Value(requestURL))
	if err != nil || !Safe(u) || u.User != nil {
		return "", errors.New(requestURL + " is not an https URL")
	}
	q := u.Query()
	q.Set("audience", audience)
	u.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", errors.New(requestURL + " is not an https URL")
	}
	req.Header.Set("Authorization", "Bearer "+env.Value(requestToken))
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "headgate")
	var answer struct {
		Value string `json:"value"`
	}
	if err := JSON(client, req, &answer); err != nil {
		return "", fmt.Errorf("identity token of the job: %w", err)
	}
	if answer.Value == "" {
		return "", errors.New("identity token of the job: the answer holds none")
	}
	return answer.Value, nil
}

// An Environment looks up variables of the environment.
type Environment func(name string) (value string, ok bool)

// NewEnvironment returns lookup, or when that is nil the environment of the process.
func NewEnvironment(lookup func(string) (string, bool)) Environment {
	if lookup == nil {
		return os.LookupEnv
	}
	return lookup
}

// Value returns the value of a variable, "" when it is not set.
func (e Environment) Value(name string) string {
	v, _ := e(name)
	return v
}

// Has reports whether all variables have a value.
func (e Environment) Has(names ...string) bool {
	for _, name := range names {
		if e.Value(name) == "" {
			return false
		}
	}
	return true
}

// File returns the content of a file that a variable names; more than
// [MaxAnswer] bytes are an error.
func File(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxAnswer+1))
	if err == nil && len(data) > MaxAnswer {
		err = fmt.Errorf("%s has more than %d bytes", name, MaxAnswer)
	}
	return data, err
}
