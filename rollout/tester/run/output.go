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

// pieceSize is how much is masked at a time, in bytes.
const pieceSize = 32 << 10

// An output is the writer of a task. It masks secrets and replaces invalid characters, and
// then keeps the beginning and the end. Readers never slow down the task.
type readOutput struct {
	limit int // bytes that are kept

	mu      sync.Mutex
	mask    *redact.Stream
	part    []byte // of a character that is incomplete
	written int64  // bytes that the task wrote
	closed  bool

	head, tail []byte
	full       bool          // nothing is added to head
	total      int64         // bytes of masked text
	wake       chan struct{} // closed by the next change
}

func (o *readOutput) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return 0, io.ErrClosedPipe
	}
	o.written += int64(len(b))
	for piece := range slices.Chunk(b, pieceSize) { // bounds what the mask copies
		o.put(o.mask.Next(piece), false)
	}
	return len(b), nil
}

// close ends the output. Later writes fail.
func (o *readOutput) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.put(o.mask.End(), true)
	o.mask = nil
}

// put adds masked text. It keeps a character that is incomplete at the end for the next call,
// unless last.
func (o *readOutput) put(b []byte, last bool) {
	b = append(o.part, b...)
	n := len(b)
	if !last {
		n = completeLen(b)
	}
	o.part = bytes.Clone(b[n:])
	b = bytes.ToValidUTF8(b[:n], []byte("\ufffd"))
	o.total += int64(len(b))
	if !o.full {
		n := completeLen(b[:min(len(b), o.limit/2-len(o.head))])
		o.full = n < len(b)
		o.head, b = append(o.head, b[:n]...), b[n:]
	}
	tailLimit := o.limit - len(o.head)
	o.tail = append(o.tail, b[max(0, len(b)-tailLimit):]...)
	if excess := len(o.tail) - tailLimit; excess > tailLimit+pieceSize {
		o.tail = o.tail[:copy(o.tail, o.tail[excess:])]
	}
	close(o.wake)
	o.wake = make(chan struct{})
}

// textFrom returns the kept text from a position on, with a line in place of bytes that were left
// out, and whether there is such a line. It is called with the lock held.
func (o *readOutput) textFrom(pos int64) (text string, truncated bool) {
	if pos < int64(len(o.head)) {
		text, pos = string(o.head[pos:]), int64(len(o.head))
	}
	tail := o.tail[max(0, len(o.tail)+len(o.head)-o.limit):]
	for len(tail) > 0 && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	lost := o.total - int64(len(tail)) - pos
	if lost > 0 {
		text += omissionLine(lost)
	}
	return text + string(tail[max(0, -lost):]), lost > 0
}

// text returns the kept text, and how many bytes the task wrote.
func (o *readOutput) text() (text string, written int64, truncated bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	text, truncated = o.textFrom(0)
	return text, o.written, truncated
}

// copy writes the output to w: what there is now, or with follow until it ends.
func (o *readOutput) copy(ctx context.Context, follow bool, w io.Writer) error {
	for pos := int64(0); ; {
		o.mu.Lock()
		text, _ := o.textFrom(pos)
		pos = o.total
		closed, wake := o.closed, o.wake
		o.mu.Unlock()
		if text != "" {
			if _, err := io.WriteString(w, text); err != nil {
				return err
			}
		}
		if closed || !follow {
			return nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// completeLen returns the length of b without an incomplete character at its end.
func completeLen(b []byte) int {
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

// omissionLine returns the line in place of bytes that were left out.
func omissionLine(lost int64) string { return fmt.Sprintf("\n[%d bytes left out]\n", lost) }

// Bounds of the texts in a record, in bytes.
const (
	fieldMax    = 512 // the most that a server accepts, since it checks scopes against the record
	valueMax    = 4 << 10
	metadataMax = 16 << 10
	reasonMax   = 4 << 10 // why a run did not succeed
)

// truncateField shortens a text of the request for the record.
func truncateField(text string) string {
	return strings.ToValidUTF8(truncate(text, fieldMax), "\ufffd")
}

func truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return text[:completeLen([]byte(text[:limit]))] + "…"
}

// recordedMetadata returns metadata for the record: secrets are masked, and long values are cut
// to their beginning. If the total exceeds metadataMax, the last keys in sorted order are
// left out.
func recordedMetadata(metadata map[string]string, secrets []string) map[string]string {
	recorded, size := map[string]string{}, 0
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		value := maskValue(name, metadata[name], secrets)
		name = redact.String(truncate(name, fieldMax), secrets...)
		if size += len(name) + len(value); size > metadataMax {
			break
		}
		recorded[name] = value
	}
	return recorded
}

// secretName; reference → referenceName matches the names of keys whose values are secrets. Names that reference matches
// too, such as apiKeyPath, only refer to a secret.
var secretName, referenceName = regexp.MustCompile(`(?i)key$|passw|secret|token|apikey|credential`), regexp.MustCompile(`(?i)(path|file|from)$`)

// maskValue masks a value line by line, since scripts have several lines. In a JSON object of
// strings, such as env_vars, it masks each value by its name.
func maskValue(name, value string, secrets []string) string {
	if value != "" && secretName.MatchString(name) && !referenceName.MatchString(name) {
		return redact.Mask
	}
	value = redact.MaskPartialEnd(truncate(redact.Secrets(value, secrets...), 4*valueMax), secrets...)
	var object map[string]string
	if strings.HasPrefix(strings.TrimSpace(value), "{") && json.Unmarshal([]byte(value), &object) == nil {
		for name, inner := range object {
			object[name] = maskValue(name, inner, secrets)
		}
		text, _ := json.Marshal(object) // texts always marshal
		return truncate(string(text), valueMax)
	}
	if strings.Contains(value, "PRIVATE KEY-----") { // a key spans lines
		return truncate(redact.String(value, secrets...), valueMax)
	}
	lines := strings.Split(value, "\n")
	for i, line := range lines {
		lines[i] = redact.String(line)
	}
	return truncate(redact.Secrets(strings.Join(lines, "\n"), secrets...), valueMax)
}
