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

// A StatusError is the answer of a store, or of its token service, that
// refuses a request. It satisfies [fs.ErrNotExist] for status 404,
// [fs.ErrPermission] for 401, 403 and whatever else is Refused, and [ErrChanged] for 412.
type StatusError struct {
	Doing   string        // for example "list objects"
	Status  int           // 0 when the store told none
	Code    string        // of the store, for example NoSuchBucket
	Message string        // of the store, as [Access.Said] has it
	Region  string        // of the bucket, where a store of S3 names it; anything, it is not checked
	After   time.Duration // when to try again, as the store has it; 0 when it does not tell
	Hint    string        // what to do, "" when nothing is known
	Refused bool          // it is the credentials that are refused, whatever the status
}

func (e *StatusError) Error() string {
	text := e.Doing
	if e.Status != 0 {
		text += fmt.Sprintf(": %d %s", e.Status, http.StatusText(e.Status))
	}
	for _, more := range []string{e.Code, strings.TrimRight(e.Message, ". "), e.Hint} {
		if more != "" {
			text += ": " + more
		}
	}
	if e.After > 0 {
		text += fmt.Sprintf(": try again in %s", e.After)
	}
	return text
}

// Is implements the errors of io/fs, and [ErrChanged].
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

// RetryAfter says when the [source.Reconciler] is to try again at the earliest.
func (e *StatusError) RetryAfter() time.Duration { return e.After }

const (
	maxRefusal = 64 << 10 // bytes of an answer that are read
	maxSaid    = 256      // bytes that are shown
	maxSkew    = 5 * time.Minute
)

var codeForm = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// Refused reads and closes an answer that refuses a request: the body in the XML
// of S3 and Azure, in the JSON of Google and of OAuth (RFC 6749 section 5.2), or a
// plain text. hints say what to do about a code or, where there is none for that,
// a status. secrets are values that the answer may repeat, beside those of the reader of Secrets.
func (a *Access) Refused(resp *http.Response, hints map[string]string, secrets ...string) *StatusError {
	e := &StatusError{Status: resp.StatusCode}
	e.After, _ = transport.RetryAfter(resp.Header, time.Now())
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // a part of a message is still one
	transport.Finish(resp)
	if resp.Header.Get("Content-Encoding") != "" { // it is compressed
		text = nil
	}
	code, message, region := saidIn(text, resp.Header.Get("Content-Type"))
	if code = a.Said(cmp.Or(resp.Header.Get("X-Ms-Error-Code"), code), secrets...); codeForm.MatchString(code) {
		e.Code = code
	}
	e.Message, e.Region = strings.TrimSuffix(a.Said(message, secrets...), "."), cmp.Or(region, resp.Header.Get("X-Amz-Bucket-Region"))
	e.Hint = cmp.Or(hints[e.Code], hints[strconv.Itoa(e.Status)])
	date, err := http.ParseTime(resp.Header.Get("Date"))
	switch {
	case err == nil && time.Since(date).Abs() > maxSkew && (e.Status == http.StatusForbidden || e.Status == http.StatusUnauthorized):
		e.Hint = fmt.Sprintf("the clock of this machine says %s, that of the server %s: set it right", time.Now().UTC().Format(time.RFC3339), date.UTC().Format(time.RFC3339))
	case e.Status/100 == 3 && e.Hint == "":
		e.Hint = "redirects are not followed: check spec.endpoint"
		if to, err := resp.Location(); err == nil {
			e.Hint = fmt.Sprintf("it redirects to %s, which is not followed: check spec.endpoint", a.Said(to.Scheme+"://"+to.Host, secrets...))
		}
	case e.Status == http.StatusBadRequest && resp.Request.URL.Scheme == "http" && strings.Contains(string(text), "HTTPS"):
		e.Hint = "the server speaks TLS: remove spec.insecure, or write https://"
	}
	return e
}

// saidIn returns what the text of a refusal says.
func saidIn(text []byte, kind string) (code, message, region string) {
	var body struct {
		Code, Message, Region string

		Error struct{ Code, Message string }
	}
	var answer struct {
		Error       json.RawMessage `json:"error"`
		Description string          `json:"error_description"`
	}
	switch text = bytes.TrimSuffix(bytes.TrimPrefix(bytes.TrimSpace(text), []byte("[")), []byte("]")); { // some servers put it into a list
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
	for _, end := range []string{"\nRequestId:", " Trace ID:"} { // Azure's names of the request
		message, _, _ = strings.Cut(message, end)
	}
	return code, message, region
}

// Said returns what a server says so that it can be shown: in one line, without
// secrets, of about 256 bytes at most.
func (a *Access) Said(text string, secrets ...string) string {
	return redact.Excerpt(text, maxSaid, append(a.SecretReader.Values(), secrets...)...)
}

// CheckPart reports why an answer is not o from offset on, as its header says.
func (a *Access) CheckPart(resp *http.Response, o Object, offset int64) error {
	_, proof, _ := strings.Cut(resp.Request.Header.Get("Authorization"), " ") // which the store may repeat
	tag := ETag(resp.Header.Get("ETag"))
	part := fmt.Sprintf("bytes %d-%d/%d", offset, o.Size-1, o.Size)
	switch {
	case tag != o.ETag:
		return fmt.Errorf("%w: its ETag was %q, and is %q", ErrChanged, a.Said(o.ETag), a.Said(tag, proof))
	case offset > 0 && (resp.StatusCode != http.StatusPartialContent || resp.Header.Get("Content-Range") != part):
		return fmt.Errorf("the answer is another part of it than %s", part)
	case offset == 0 && resp.StatusCode != http.StatusOK:
		return errors.New("the answer is a part of it")
	case resp.ContentLength >= 0 && resp.ContentLength != o.Size-offset:
		return fmt.Errorf("%w: the answer has %d bytes, by its listing it should have %d", ErrChanged, resp.ContentLength, o.Size-offset)
	}
	return nil
}

// Explain returns err, which ended doing, fit to be shown: its text has neither
// the query of a URL nor secrets that a server sent back, and says what to do when
// only one of the two ends speaks TLS. A [*StatusError] gets doing, and the cause of
// ctx and a [*source.StepError] stay as they are.
func (a *Access) Explain(ctx context.Context, doing string, err error, secrets ...string) error {
	if e, ok := errors.AsType[*explained](err); ok { // which an SDK wraps
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
		err = e.Err // without the URL
	}
	plain := err.Error()
	text := a.Said(plain, secrets...)
	large, isLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case isLarge:
		text = fmt.Sprintf("the answer is larger than %d bytes", large.Limit)
	case errors.Is(err, http.ErrSchemeMismatch):
		text += ": the server speaks no TLS: set spec.insecure, or write http://, if that is meant to be"
	case strings.Contains(plain, `malformed HTTP response "\x15\x03`): // an alert of TLS
		text += ": the server speaks TLS: remove spec.insecure, or write https://"
	case strings.HasPrefix(plain, "failed to parse Location header"): // which the error repeats
		text = "redirect without a valid address"
	}
	return &explained{doing + ": " + cmp.Or(text, "the answer is not what it should be"), err}
}

// An explained error has a text that was made fit to be shown.
type explained struct {
	text string
	error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.error }
