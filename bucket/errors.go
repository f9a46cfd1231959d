package bucket

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// A StatusError is a response of a store, or of its token service, that
// refuses a request. It satisfies [fs.ErrPermission] if Refused is set or the status is
// 401 or 403. If Refused is not set, it satisfies [fs.ErrNotExist] for status 404 and
// [ErrChanged] for 412.
type StatusError struct {
	Doing   string        // for example "list objects"
	Status  int           // HTTP status; 0 if unknown
	Code    string        // of the store, for example NoSuchBucket
	Message string        // of the store, redacted by [Access.CleanText]
	Region  string        // of the bucket, if an S3 store sent one; it is not validated
	After   time.Duration // the store's Retry-After; 0 if it sent none
	Hint    string        // what the user can do, "" if unknown
	Refused bool          // the store refused the credentials, whatever the status
}

func (e *StatusError) Error() string {
	text := e.Doing
	if e.Status != 0 {
		text += fmt.Sprintf(": %d %s", e.Status, http.StatusText(e.Status))
	}
	for _, part := range []string{e.Code, strings.TrimRight(e.Message, ". "), e.Hint} {
		if part != "" {
			text += ": " + part
		}
	}
	if e.After > 0 {
		text += fmt.Sprintf(": try again in %s", e.After)
	}
	return text
}

// Is makes e match errors of io/fs, and [ErrChanged].
func (e *StatusError) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return e.Status == http.StatusNotFound && !e.Refused
	case fs.ErrPermission:
		return e.Refused || e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
	case ErrChanged:
		return e.Status == http.StatusPreconditionFailed && !e.Refused
	}
	return false
}

// RetryAfter returns the time that the [source.Reconciler] must wait before it retries.
func (e *StatusError) RetryAfter() time.Duration { return e.After }

const (
	maxRefusal    = 64 << 10 // bytes of a response that are read
	maxServerText = 256      // bytes of a server's text in errors
	maxSkew       = 5 * time.Minute
)

var codeForm = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// ReadRefusal reads and closes a response that refuses a request, and returns its content.
// The body is the XML of S3 and Azure, the JSON of Google and of OAuth (RFC 6749 section
// 5.2), or plain text. hints tell the user what to do, by code or, for other codes, by
// status. secrets are values to redact in addition to those of a.SecretReader.
func (a *Access) ReadRefusal(resp *http.Response, hints map[string]string, secrets ...string) *StatusError {
	e := &StatusError{Status: resp.StatusCode}
	e.After, _ = transport.RetryAfter(resp.Header, time.Now())
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // a partial message is still useful
	transport.DrainAndClose(resp)
	if resp.Header.Get("Content-Encoding") != "" { // the body is compressed
		text = nil
	}
	code, message, region := parseRefusal(text, resp.Header.Get("Content-Type"))
	if code = a.CleanText(cmp.Or(resp.Header.Get("X-Ms-Error-Code"), code), secrets...); codeForm.MatchString(code) {
		e.Code = code
	}
	e.Message, e.Region = strings.TrimSuffix(a.CleanText(message, secrets...), "."), cmp.Or(region, resp.Header.Get("X-Amz-Bucket-Region"))
	e.Hint = cmp.Or(hints[e.Code], hints[strconv.Itoa(e.Status)])
	date, err := http.ParseTime(resp.Header.Get("Date"))
	switch {
	case err == nil && time.Since(date).Abs() > maxSkew && (e.Status == http.StatusForbidden || e.Status == http.StatusUnauthorized):
		e.Hint = fmt.Sprintf("the clock of this machine says %s, that of the server %s: set it right", time.Now().UTC().Format(time.RFC3339), date.UTC().Format(time.RFC3339))
	case e.Status/100 == 3 && e.Hint == "":
		e.Hint = "redirects are not followed: check spec.endpoint"
		if to, err := resp.Location(); err == nil {
			e.Hint = fmt.Sprintf("it redirects to %s, which is not followed: check spec.endpoint", a.CleanText(to.Scheme+"://"+to.Host, secrets...))
		}
	case e.Status == http.StatusBadRequest && resp.Request.URL.Scheme == "http" && strings.Contains(string(text), "HTTPS"):
		e.Hint = "the server speaks TLS: remove spec.insecure, or write https://"
	}
	return e
}

// parseRefusal parses the body of a refusal. The results are empty if the body has none.
func parseRefusal(text []byte, kind string) (code, message, region string) {
	var body struct {
		Code, Message, Region string

		Error struct{ Code, Message string }
	}
	var answer struct {
		Error       json.RawMessage `json:"error"`
		Description string          `json:"error_description"`
	}
	switch text = bytes.TrimSuffix(bytes.TrimPrefix(bytes.TrimSpace(text), []byte("[")), []byte("]")); { // some servers wrap the object in a list
	case xml.Unmarshal(text, &body) == nil:
		code, message, region = cmp.Or(body.Error.Code, body.Code), cmp.Or(body.Error.Message, body.Message), body.Region
	case json.Unmarshal(text, &answer) == nil:
		var google struct {
			Message string `json:"message"`
			Errors  []struct {
				Reason string `json:"reason"`
			} `json:"errors"`
		}
		if json.Unmarshal(answer.Error, &code) != nil && json.Unmarshal(answer.Error, &google) == nil && len(google.Errors) > 0 {
			code = google.Errors[0].Reason
		}
		message = cmp.Or(google.Message, answer.Description)
	case strings.HasPrefix(kind, "text/plain"):
		message = string(text)
	}
	for _, end := range []string{"\nRequestId:", " Trace ID:"} { // Azure appends request IDs
		message, _, _ = strings.Cut(message, end)
	}
	return code, message, region
}

// CleanText returns a server's text in a form that can be shown to users: one line of at
// most about 256 bytes, without secrets.
func (a *Access) CleanText(text string, secrets ...string) string {
	return redact.Excerpt(text, maxServerText, append(a.SecretReader.Values(), secrets...)...)
}

// CheckPart returns an error if the header of a response shows that the body is not
// the content of o from offset on. The error wraps [ErrChanged] if the object changed.
func (a *Access) CheckPart(resp *http.Response, o Object, offset int64) error {
	_, proof, _ := strings.Cut(resp.Request.Header.Get("Authorization"), " ") // the store may repeat it
	tag := ETag(resp.Header.Get("ETag"))
	part := fmt.Sprintf("bytes %d-%d/%d", offset, o.Size-1, o.Size)
	switch {
	case tag != o.ETag:
		return fmt.Errorf("%w: its ETag was %q, and is %q", ErrChanged, a.CleanText(o.ETag), a.CleanText(tag, proof))
	case offset > 0 && (resp.StatusCode != http.StatusPartialContent || resp.Header.Get("Content-Range") != part):
		return fmt.Errorf("the answer is another part of it than %s", part)
	case offset == 0 && resp.StatusCode != http.StatusOK:
		return errors.New("the answer is a part of it")
	case resp.ContentLength >= 0 && resp.ContentLength != o.Size-offset:
		return fmt.Errorf("%w: the answer has %d bytes, by its listing it should have %d", ErrChanged, resp.ContentLength, o.Size-offset)
	}
	return nil
}

// Explain returns err, which ended doing, with a text that can be shown to users: it
// contains neither the query of a URL nor secrets that a server sent back. It
// says what to do when only one of the two ends speaks TLS. Explain sets Doing of a
// [*StatusError], and wraps the cause of ctx and a [*source.StepError] unchanged.
func (a *Access) Explain(ctx context.Context, doing string, err error, secrets ...string) error {
	if e, ok := errors.AsType[*redactedError](err); ok { // an SDK has wrapped it
		return e
	}
	if e, ok := errors.AsType[*source.StepError](err); ok { // no token was issued
		return fmt.Errorf("%s: %w", doing, e)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
	if e, ok := errors.AsType[*StatusError](err); ok {
		e.Doing = doing
		return e
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // drops the URL
	}
	message := err.Error()
	text := a.CleanText(message, secrets...)
	large, isLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case isLarge:
		text = fmt.Sprintf("the answer is larger than %d bytes", large.Limit)
	case errors.Is(err, http.ErrSchemeMismatch):
		text += ": the server speaks no TLS: set spec.insecure, or write http://, if that is meant to be"
	case strings.Contains(message, `malformed HTTP response "\x15\x03`): // a TLS alert
		text += ": the server speaks TLS: remove spec.insecure, or write https://"
	case strings.HasPrefix(message, "failed to parse Location header"): // the error quotes the header
		text = "redirect without a valid address"
	}
	return &redactedError{doing + ": " + cmp.Or(text, "the answer is invalid"), err}
}

// An redactedError (A) error has a text that contains no secrets.
type redactedError struct {
	text string
	error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.error }
