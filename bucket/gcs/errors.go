package gcs

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/headgate-io/headgate/bucket"
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

// refusal returns the answer of a store that refuses a request with the token
// of l, and closes it.
func (d *driver) refusal(doing string, resp *http.Response, l *lease) error {
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // what was torn says less
	if resp.Header.Get("Content-Encoding") != "" {               // which nobody undid
		body = nil
	}
	after, _ := transport.RetryAfter(resp.Header, time.Now())
	code, message := refused(resp.Header, body)
	out := &bucket.StatusError{Doing: doing, Status: resp.StatusCode, Code: word(code, d.vault), Message: d.said(message), After: after}
	out.Hint = hints[out.Status]
	if l.Token == "" && out.Is(fs.ErrPermission) {
		out.Hint = anonymousHint
	}
	return out
}

// refused returns what a refusal says: as JSON, in a list sometimes, or, where
// content was asked for, as a text.
func refused(header http.Header, body []byte) (code, message string) {
	type answer struct {
		Error struct {
			Message string `json:"message"`
			Errors  []struct {
				Reason string `json:"reason"`
			} `json:"errors"`
		} `json:"error"`
	}
	var one answer
	if all := []answer(nil); json.Unmarshal(body, &all) == nil && len(all) > 0 {
		one = all[0]
	} else if json.Unmarshal(body, &one) != nil {
		if strings.HasPrefix(header.Get("Content-Type"), "text/plain") {
			return "", string(body)
		}
		return "", ""
	}
	if len(one.Error.Errors) > 0 {
		code = one.Error.Errors[0].Reason
	}
	return code, one.Error.Message
}

// A caused error is one of package http, or of a body, as it may be shown: in
// its text are neither the query of the URL nor secrets that a server sent back.
type caused struct {
	err  error
	text string
}

func cause(err error, v *bucket.Vault) error {
	err = bare(err)
	return &caused{err, cmp.Or(said(err.Error(), v), "the answer is not what it should be")}
}

func (c *caused) Error() string { return c.text }
func (c *caused) Unwrap() error { return c.err }

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

var wordForm = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// word returns a code of a server, "" if it is of no form that codes have.
func word(s string, v *bucket.Vault) string {
	if s = said(s, v); wordForm.MatchString(s) {
		return s
	}
	return ""
}

const (
	maxText    = 4 << 10  // bytes; what is longer is no message
	maxRefusal = 64 << 10 // bytes of an answer
)

func (d *driver) said(text string) string { return said(text, d.vault) }

// said is [bucket.Said] of what can be a message.
func said(text string, v *bucket.Vault) string {
	if len(text) > maxText {
		return ""
	}
	return bucket.Said(text, v.Values()...)
}
