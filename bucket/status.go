package bucket

import (
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/redact"
)

// A StatusError is the answer of a store, or of its token service, that
// refuses a request. It satisfies [fs.ErrNotExist] for status 404,
// [fs.ErrPermission] for 401, 403 and whatever else is Refused, and [ErrChanged] for 412.
type StatusError struct {
	Doing   string        // for example "list objects"
	Status  int           // 0 when the store told none
	Code    string        // of the store, for example NoSuchBucket
	Message string        // of the store, as [Said] has it
	After   time.Duration // when to try again, as the store has it; 0 when it does not tell
	Hint    string        // what to do, "" when nothing is known
	Refused bool          // it is the credentials that are refused, whatever the status
}

func (e *StatusError) Error() string {
	text := []string{e.Doing}
	if e.Status != 0 {
		text = append(text, fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status)))
	}
	for _, more := range []string{e.Code, strings.TrimRight(e.Message, ". "), e.Hint} {
		if more != "" {
			text = append(text, more)
		}
	}
	if e.After > 0 {
		text = append(text, fmt.Sprintf("try again in %s", e.After))
	}
	return strings.Join(text, ": ")
}

// Is implements the errors of io/fs, and [ErrChanged].
func (e *StatusError) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return e.Status == http.StatusNotFound
	case fs.ErrPermission:
		return e.Refused || e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
	case ErrChanged:
		return e.Status == http.StatusPreconditionFailed
	}
	return false
}

// RetryAfter says when the [source.Reconciler] is to try again at the earliest.
func (e *StatusError) RetryAfter() time.Duration { return e.After }

const maxSaid = 256 // bytes

// Said returns what a server says so that it can be shown: in one line, without
// secrets, and of at most 256 bytes. It is cut after a word where it has any.
func Said(text string, secrets ...string) string {
	text = strings.TrimSpace(redact.String(text, secrets...))
	if len(text) <= maxSaid {
		return text
	}
	end := maxSaid - len("…")
	if space := strings.LastIndexByte(text[:end+1], ' '); space > 0 {
		end = space
	}
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
