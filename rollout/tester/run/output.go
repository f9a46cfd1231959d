package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
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
	mu      sync.Mutex
	mask    *redact.Stream
	part    []byte // of a character
	written int64  // bytes that the task wrote
	closed  bool

	head, tail       []byte
	headMax, tailMax int
	full             bool          // nothing is added to head
	total            int64         // bytes of masked text
	wake             chan struct{} // closed by the next change; nil when nobody waits
}

func newOutput(limit int, secrets []string) *output {
	return &output{mask: redact.NewStream(secrets...), headMax: limit / 2, tailMax: limit - limit/2}
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

// close ends the output, and returns it. What is still written is refused.
func (o *output) close() (text string, written int64, truncated bool) {
	o.mu.Lock()
	if !o.closed {
		o.put(o.mask.End(), true)
		o.closed, o.mask = true, nil
		o.changed()
	}
	o.mu.Unlock()
	return o.text()
}

// put adds whole, valid characters.
func (o *output) put(b []byte, last bool) {
	if len(o.part) > 0 {
		b = append(o.part, b...)
	}
	n := len(b)
	if !last {
		n = whole(b)
	}
	o.part = bytes.Clone(b[n:])
	b = bytes.ToValidUTF8(b[:n], []byte("\ufffd"))
	if len(b) == 0 {
		return
	}
	o.total += int64(len(b))
	if !o.full {
		room := o.headMax - len(o.head)
		if o.full = len(b) > room; o.full {
			room = runeStart(b, room)
		}
		n := min(len(b), room)
		o.head = append(o.head, b[:n]...)
		if b = b[n:]; o.full {
			o.tailMax += o.headMax - len(o.head)
		}
	}
	o.tail = append(o.tail, b[max(0, len(b)-o.tailMax):]...)
	if excess := len(o.tail) - o.tailMax; excess > o.tailMax+pieceSize {
		o.tail = o.tail[:copy(o.tail, o.tail[excess:])]
	}
	o.changed()
}

func (o *output) changed() {
	if o.wake != nil {
		close(o.wake)
		o.wake = nil
	}
}

// kept returns the end that is kept, which begins with a character.
func (o *output) kept() []byte {
	end := o.tail[max(0, len(o.tail)-o.tailMax):]
	for len(end) > 0 && !utf8.RuneStart(end[0]) {
		end = end[1:]
	}
	return end
}

// text returns what is kept.
func (o *output) text() (text string, written int64, truncated bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	end := o.kept()
	lost := o.total - int64(len(o.head)+len(end))
	if lost == 0 {
		return string(o.head) + string(end), o.written, false
	}
	return string(o.head) + gap(lost) + string(end), o.written, true
}

// read copies what is kept from position *pos on, and moves it. What is not kept
// any more is lost. Without anything to read it returns what to wait for; nil
// at the end.
func (o *output) read(p []byte, pos *int64) (n int, lost int64, wait <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	end := o.kept()
	first := o.total - int64(len(end))
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
	piece := make([]byte, min(pieceSize, max(utf8.UTFMax, o.headMax+o.tailMax)))
	o.mu.Lock()
	end := o.total
	o.mu.Unlock()
	for pos := int64(0); follow || pos < end; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
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
	return nil
}

// whole returns the length of b without a character that is cut at its end.
func whole(b []byte) int {
	for n := len(b) - 1; n >= 0 && n >= len(b)-utf8.UTFMax; n-- {
		if utf8.RuneStart(b[n]) {
			if !utf8.FullRune(b[n:]) {
				return n
			}
			break
		}
	}
	return len(b)
}

// runeStart returns the last position up to n at which a character of b begins.
func runeStart(b []byte, n int) int {
	for n > 0 && !utf8.RuneStart(b[n]) {
		n--
	}
	return n
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
		value := metadata[name]
		switch {
		case value == "":
		case private(name):
			value = redact.Mask
		default:
			value = public(value, secrets)
		}
		name = redact.String(cut(name, shortMax), secrets...)
		if size += len(name) + len(value); size > metadataMax {
			break
		}
		kept[name] = value
	}
	return kept
}

// private reports whether the value of a key is a secret, by its name: a
// reference to one, such as apiKeyPath, is none.
func private(name string) bool {
	name = strings.ToLower(name)
	for _, reference := range []string{"path", "file", "from"} {
		if strings.HasSuffix(name, reference) {
			return false
		}
	}
	return strings.HasSuffix(name, "key") || slices.ContainsFunc([]string{"passw", "secret", "token", "apikey", "credential"}, func(part string) bool { return strings.Contains(name, part) })
}

// public masks a value, line by line: scripts have several. Of an object of
// texts, as env_vars is, the secret ones are masked too.
func public(value string, secrets []string) string {
	value = redact.Tail(cut(redact.Secrets(value, secrets...), 4*valueMax), secrets...)
	var object map[string]string
	if strings.HasPrefix(strings.TrimSpace(value), "{") && json.Unmarshal([]byte(value), &object) == nil {
		for name, inner := range object {
			if private(name) && inner != "" {
				object[name] = redact.Mask
			}
		}
		text, _ := json.Marshal(object) // of texts, which always marshal
		value = string(text)
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
