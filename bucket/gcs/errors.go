package gcs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"google.golang.org/api/googleapi"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/transport"
)

const listing = "list objects"

// hints say what to do about an answer.
var hints = map[int]string{
	http.StatusUnauthorized:    "check that the service account and its key were not deleted",
	http.StatusForbidden:       "grant the identity the role roles/storage.objectViewer on the bucket",
	http.StatusTooManyRequests: "fetch less often: raise spec.interval",
}

const anonymousHint = "the request was anonymous: set spec.secretRef to a Secret with serviceaccount, or run where there is an identity of Google Cloud"

// failure returns what the library says of a request as an error that is fit to be shown.
func (d *driver) failure(doing string, err error) error {
	api, ok := errors.AsType[*googleapi.Error](err)
	if !ok {
		if err = bare(err); len(err.Error()) > maxCause { // it repeats a value of the answer
			err = errors.New("the answer is not what it should be")
		}
		return fmt.Errorf("%s: %w", doing, redact.Error(err, d.vault.Values()...))
	}
	if api.Message == "" { // the library leaves refusals of content as they are
		parsed := googleapi.CheckResponseWithBody(&http.Response{StatusCode: api.Code, Header: api.Header}, []byte(api.Body))
		api, _ = errors.AsType[*googleapi.Error](parsed)
	}
	after, _ := transport.RetryAfter(api.Header, time.Now())
	out := &bucket.StatusError{Doing: doing, Status: api.Code, Message: said(cmp.Or(api.Message, plain(api)), d.vault), After: after}
	if len(api.Errors) > 0 {
		out.Code = word(api.Errors[0].Reason)
	}
	out.Hint = hints[api.Code]
	if l := d.tokens.good(); l != nil && l.Token == "" && out.Is(fs.ErrPermission) {
		out.Hint = anonymousHint
	}
	return out
}

// bare returns the cause of an error of package http, without the URL: that has a query.
func bare(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if strings.HasPrefix(err.Error(), "failed to parse Location header") { // which it goes on to repeat
		return errors.New("redirect without a valid address")
	}
	return err
}

// plain returns the body of a refusal that is text.
func plain(e *googleapi.Error) string {
	if strings.HasPrefix(e.Header.Get("Content-Type"), "text/plain") {
		return e.Body
	}
	return ""
}

var wordForm = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// word returns a code of a server, "" if it is of no form that codes have.
func word(s string) string {
	if wordForm.MatchString(s) {
		return s
	}
	return ""
}

const (
	maxCause = 512     // bytes of an error of package http, or of the library
	maxText  = 4 << 10 // bytes; what is longer is no message
)

// said is [bucket.Said] of what can be a message.
func said(text string, v *bucket.Vault) string {
	if len(text) > maxText {
		return ""
	}
	return bucket.Said(text, v.Values()...)
}
