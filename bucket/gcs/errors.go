package gcs

import (
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/transport"
)

// hints say what to do about an answer.
var hints = map[int]string{
	http.StatusUnauthorized:    "check that the service account and its key were not deleted",
	http.StatusForbidden:       "grant the identity the role roles/storage.objectViewer on the bucket",
	http.StatusTooManyRequests: "fetch less often: raise spec.interval",
}

const anonymousHint = "the request was anonymous: set spec.secretRef to a Secret with serviceaccount, or run where there is an identity of Google Cloud"

const maxRefusal = 64 << 10 // bytes of an answer

// refusal returns the answer of a store that refuses a request.
func (g *guard) refusal(resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // a part of a message is still one
	if resp.Header.Get("Content-Encoding") != "" {               // the body is compressed
		body = nil
	}
	after, _ := transport.RetryAfter(resp.Header, time.Now())
	code, message := refused(resp.Header, body)
	out := &bucket.StatusError{Status: resp.StatusCode, Code: g.access.Code(code), Message: g.access.Said(message), After: after}
	out.Hint = hints[out.Status]
	if _, bearer := g.next.(*bucket.Bearer); !bearer && out.Is(fs.ErrPermission) {
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
