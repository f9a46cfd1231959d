package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/redact"
)

// pieceSize is how much is read or written at a time, in bytes.
const pieceSize = 32 << 10

// An output is where a task writes: secrets are masked and characters mended, then
// its beginning and its end are kept. Readers go at their own pace and cost the task
// nothing.
type output struct {
	limit int // bytes that are kept

	mu      sync.Mutex
	mask    *redact.Stream
	part    []byte // of a character
	written int64  // bytes that the task wrote
	closed  bool

	head, tail []byte
	full       bool          // nothing is added to head
	total      int64         // bytes of masked text
	wake       chan struct{} // closed by the next change; nil when no follower waits
}

func newOutput(limit int, secrets []string) *output {
	return &output{mask: redact.NewStream(secrets...), limit: limit}
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return 0, io.ErrClosedPipe
	}
	o.written += int64(len(b))
	for piece := range slices.Chunk(b, pieceSize) { // or a mask would copy all of it
		o.put(o.mask.Next(piece), false)
	}
	return len(b), nil
}

// close ends the output. What is still written is refused.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.put(o.mask.End(), true)
	o.closed, o.mask = true, nil
}

// put adds whole, valid characters.
func (o *output) put(b []byte, last bool) {
	b = append(o.part, b...)
	n := len(b)
	if !last {
		n = whole(b)
	}
	o.part = bytes.Clone(b[n:])
	b = bytes.ToValidUTF8(b[:n], []byte("\ufffd"))
	o.total += int64(len(b))
	if !o.full {
		n := min(len(b), o.limit/2-len(o.head))
		if o.full = n < len(b); o.full {
			for n > 0 && !utf8.RuneStart(b[n]) {
				n--
			}
		}
		o.head, b = append(o.head, b[:n]...), b[n:]
	}
	most := o.limit - len(o.head)
	o.tail = append(o.tail, b[max(0, len(b)-most):]...)
	if excess := len(o.tail) - most; excess > most+pieceSize {
		o.tail = o.tail[:copy(o.tail, o.tail[excess:])]
	}
	if o.wake != nil {
		close(o.wake)
		o.wake = nil
	}
}

// end returns the end that is kept, which begins with a character, and where that is.
func (o *output) end() (kept []byte, first int64) {
	kept = o.tail[max(0, len(o.tail)+len(o.head)-o.limit):]
	for len(kept) > 0 && !utf8.RuneStart(kept[0]) {
		kept = kept[1:]
	}
	return kept, o.total - int64(len(kept))
}

// text returns what is kept.
func (o *output) text() (text string, written int64, truncated bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	end, first := o.end()
	text = string(o.head)
	if lost := first - int64(len(o.head)); lost > 0 {
		text, truncated = text+gap(lost), true
	}
	return text + string(end), o.written, truncated
}

// read copies what is kept from position *pos on, and moves it. What is not kept
// any more is lost. Without anything to read it returns what to wait for; nil
// at the end.
func (o *output) read(p []byte, pos *int64) (n int, lost int64, wait <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	end, first := o.end()
	switch {
	case *pos < int64(len(o.head)):
		n = copy(p, o.head[*pos:])
	case *pos < o.total:
		lost = max(0, first-*pos)
		*pos += lost
		n = copy(p, end[*pos-first:])
	case o.closed:
		return 0, 0, nil
	default:
		if o.wake == nil {
			o.wake = make(chan struct{})
		}
		return 0, 0, o.wake
	}
	n = whole(p[:n])
	*pos += int64(n)
	return n, lost, nil
}

// copy writes the output to w: what there is now, or with follow until it ends.
func (o *output) copy(ctx context.Context, follow bool, w io.Writer) error {
	if !follow {
		text, _, _ := o.text()
		_, err := io.WriteString(w, text)
		return err
	}
	piece := make([]byte, pieceSize)
	for pos := int64(0); ctx.Err() == nil; {
		n, lost, wait := o.read(piece, &pos)
		if lost > 0 {
			if _, err := io.WriteString(w, gap(lost)); err != nil {
				return err
			}
		}
		switch {
		case n > 0:
			if _, err := w.Write(piece[:n]); err != nil {
				return err
			}
		case wait != nil:
			select {
			case <-wait:
			case <-ctx.Done():
			}
		case lost == 0:
			return nil
		}
	}
	return context.Cause(ctx)
}

// whole returns the length of b without a character that is cut at its end.
func whole(b []byte) int {
	for n := len(b) - 1; n >= max(0, len(b)-utf8.UTFMax); n-- {
		if utf8.RuneStart(b[n]) {
			if !utf8.FullRune(b[n:]) {
				return n
			}
			break
		}
	}
	return len(b)
}

// gap is the line that stands for bytes which were left out.
func gap(lost int64) string { return fmt.Sprintf("\n[%d bytes left out]\n", lost) }

// Bounds of what a record says of its request, in bytes.
const (
	shortMax    = 512 // what a server takes: scopes are checked against what is recorded
	valueMax    = 4 << 10
	metadataMax = 16 << 10
	reasonMax   = 4 << 10 // why a run did not succeed
)

// short bounds a text of the request.
func short(text string) string { return strings.ToValidUTF8(cut(text, shortMax), "\ufffd") }

func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return text[:whole([]byte(text[:limit]))] + "…"
}

// recorded returns what is kept of metadata: without secrets, and of what is too
// long the beginning. Keys beyond the bound are left out, the last ones first.
func recorded(metadata map[string]string, secrets []string) map[string]string {
	kept, size := map[string]string{}, 0
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		value := public(name, metadata[name], secrets)
		name = redact.String(cut(name, shortMax), secrets...)
		if size += len(name) + len(value); size > metadataMax {
			break
		}
		kept[name] = value
	}
	return kept
}

// private matches the names of keys whose values are secrets. References to them,
// such as apiKeyPath, are none.
var private, reference = regexp.MustCompile(`(?i)key$|passw|secret|token|apikey|credential`), regexp.MustCompile(`(?i)(path|file|from)$`)

// public masks a value, line by line: scripts have several. Of an object of
// texts, as env_vars is, the secret ones are masked too.
func public(name, value string, secrets []string) string {
	if value != "" && private.MatchString(name) && !reference.MatchString(name) {
		return redact.Mask
	}
	value = redact.Tail(cut(redact.Secrets(value, secrets...), 4*valueMax), secrets...)
	var object map[string]string
	if strings.HasPrefix(strings.TrimSpace(value), "{") && json.Unmarshal([]byte(value), &object) == nil {
		for name, inner := range object {
			object[name] = public(name, inner, secrets)
		}
		text, _ := json.Marshal(object) // of texts, which always marshal
		return cut(string(text), valueMax)
	}
	if strings.Contains(value, "PRIVATE KEY-----") { // spans lines
		return cut(redact.String(value, secrets...), valueMax)
	}
	lines := strings.Split(value, "\n")
	for i, line := range lines {
		lines[i] = redact.String(line)
	}
	return cut(redact.Secrets(strings.Join(lines, "\n"), secrets...), valueMax)
}
