package bucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
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

// maxText is how long a text may be, in bytes, that is worth showing a part of.
const maxText = 4 << 10

// Said is [Said] without the secrets of a, and "" for a text of more than 4 KiB.
func (a *Access) Said(text string) string {
	if len(text) > maxText {
		return ""
	}
	return Said(text, a.Vault.Values()...)
}

var codeForm = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// Code returns an error code of a server as it may be shown, "" for a text
// that has not the form of a code.
func (a *Access) Code(text string) string {
	if text = a.Said(text); codeForm.MatchString(text) {
		return text
	}
	return ""
}

// Explain returns err, which ended doing, fit to be shown: its text has neither
// the query of a URL nor secrets that a server sent back. A [*StatusError] gets
// doing, and the cause of ctx and a [*source.StepError] stay as they are.
func (a *Access) Explain(ctx context.Context, doing string, err error) error {
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
	text := a.Said(err.Error())
	if strings.HasPrefix(text, "failed to parse Location header") { // and the error repeats that header
		text = "redirect without a valid address"
	}
	return &explained{doing + ": " + cmp.Or(text, "the answer is not what it should be"), err}
}

// An explained error has a text that was made fit to be shown.
type explained struct {
	text string
	err  error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.err }

// Bounded returns body, which ends with an error after limit bytes.
func Bounded(body io.ReadCloser, limit int64) io.ReadCloser {
	return &bounded{ReadCloser: body, left: limit, limit: limit}
}

var errLarger = errors.New("the answer is larger")

type bounded struct {
	io.ReadCloser
	left, limit int64
}

// Read implements [io.Reader]. It reads one byte more than is allowed, to tell
// a body of just limit bytes from a longer one.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left >= 0 {
		n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
		if b.left -= int64(n); b.left >= 0 {
			return n, err
		}
	}
	return 0, fmt.Errorf("%w than %d bytes", errLarger, b.limit)
}
