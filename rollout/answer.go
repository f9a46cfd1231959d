package rollout

import (
	"fmt"
	"net/http"
	"net/url"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/notify"
	"github.com/headgate-io/headgate/internal/redact"
)

// An Answer is what a webhook answered.
type Answer struct {
	Status    int    // 0: no answer came
	Body      []byte // at most [MaxBody] bytes of it, without the credentials of the call
	Truncated bool   // the body was longer, or did not end
	Attempts  int

	// The person who decided what is answered, and why, where the webhook names
	// them in the headers [ActorHeader] and [ReasonHeader]; without the
	// credentials of the call. They are claims of the webhook.
	Actor, Reason string
}

// The headers in which a webhook names the person who decided what it answers,
// with the escapes of a path of a URL.
const (
	ActorHeader  = "X-Headgate-Actor"
	ReasonHeader = "X-Headgate-Reason"
)

// person returns the text of one of those headers on one line, "" when it has none.
func (c *call) person(h http.Header, name string) string {
	text, err := url.PathUnescape(h.Get(name))
	if err != nil {
		return ""
	}
	return shorten(redact.Secrets(text, c.private...), maxReason)
}

// MaxBody is how much of an answer is kept, in bytes.
const MaxBody = notify.MaxBody

// A StatusError is an answer with a status that the type of the webhook does
// not accept.
type StatusError struct {
	Code     int
	Body     []byte // see [Answer]
	Location string // of a redirect that was not followed, without credentials and control characters

	RetryAfter time.Duration // how long it asks to wait, 0 when it does not
}

// Error returns the status and the beginning of what was answered, on one line.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("status %d", e.Code)
	if e.Location != "" {
		text += ": redirect to " + excerpt(e.Location) + " is not followed"
	}
	if said := excerpt(string(e.Body[:min(len(e.Body), 4*maxExcerpt)])); said != "" {
		text += ": " + said
	}
	return text
}

// maxExcerpt is how much of an answer an error shows, in bytes.
const maxExcerpt = 300

// excerpt returns the beginning of a remote text on one line.
func excerpt(text string) string { return shorten(text, maxExcerpt) }

// shorten returns a remote text on one line, without credentials; of a long one
// about limit bytes.
func shorten(text string, limit int) string {
	text = redact.String(text)
	if len(text) <= limit {
		return text
	}
	end := limit
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
