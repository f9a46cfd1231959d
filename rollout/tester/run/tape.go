package run

import (
	"context"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"
)

// pieceSize is how much is read or written at a time, in bytes.
const pieceSize = 32 << 10

// A tape keeps the beginning and the end of what a task writes, which is valid
// UTF-8 by then. Readers go at their own pace and cost it nothing.
type tape struct {
	mu    sync.Mutex
	half  [2]int // limits of head and ring
	full  bool   // nothing is added to head
	head  []byte
	ring  []byte // the end, from at to its end and then from its beginning
	at    int
	total int64 // bytes that were written
	ended bool
	wake  chan struct{} // closed by the next change; nil when nobody waits
}

func newTape(limit int) *tape { return &tape{half: [2]int{limit / 2, limit - limit/2}} }

// write adds whole characters.
func (t *tape) write(b []byte) {
	if len(b) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += int64(len(b))
	if !t.full {
		room := t.half[0] - len(t.head)
		if t.full = len(b) > room; t.full {
			for room > 0 && !utf8.RuneStart(b[room]) {
				room--
			}
		}
		n := min(len(b), room)
		t.head = append(t.head, b[:n]...)
		if b = b[n:]; t.full {
			t.half[1] += t.half[0] - len(t.head)
		}
	}
	t.turn(b)
	t.changed()
}

// turn adds b to the ring.
func (t *tape) turn(b []byte) {
	limit := t.half[1]
	b = b[max(0, len(b)-limit):]
	if room := limit - len(t.ring); room > 0 {
		n := min(room, len(b))
		if need := len(t.ring) + n; need > cap(t.ring) {
			t.ring = append(make([]byte, 0, min(limit, max(need, 2*cap(t.ring)))), t.ring...)
		}
		t.ring = append(t.ring, b[:n]...)
		b = b[n:]
	}
	for len(b) > 0 {
		n := copy(t.ring[t.at:], b)
		t.at = (t.at + n) % limit
		b = b[n:]
	}
}

// end says that nothing follows.
func (t *tape) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.changed()
}

func (t *tape) changed() {
	if t.wake != nil {
		close(t.wake)
		t.wake = nil
	}
}

// read copies what is kept from position *pos on, and moves it. What is not kept
// any more is lost. Without anything to read it returns what to wait for; nil
// when the tape has ended.
func (t *tape) read(p []byte, pos *int64) (n int, lost int64, wait <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if *pos < int64(len(t.head)) {
		n = copy(p, t.head[*pos:])
		n = whole(p[:n])
		*pos += int64(n)
		return n, 0, nil
	}
	from := t.total - int64(len(t.ring))
	if *pos < from {
		for from < t.total && !utf8.RuneStart(t.byteAt(from)) {
			from++
		}
		lost, *pos = from-*pos, from
	}
	if *pos < t.total {
		start := (t.at + int(*pos-(t.total-int64(len(t.ring))))) % len(t.ring)
		size := min(int64(len(p)), t.total-*pos)
		n = copy(p[:size], t.ring[start:])
		n += copy(p[n:size], t.ring)
		n = whole(p[:n])
		*pos += int64(n)
		return n, lost, nil
	}
	if t.ended {
		return 0, lost, nil
	}
	if t.wake == nil {
		t.wake = make(chan struct{})
	}
	return 0, lost, t.wake
}

// byteAt returns the byte at a position of the ring.
func (t *tape) byteAt(pos int64) byte {
	return t.ring[(t.at+int(pos-(t.total-int64(len(t.ring)))))%len(t.ring)]
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

// position is where the tape ends now.
func (t *tape) position() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}

// copy writes the tape to w: what there is now, or with follow until it ends.
func (t *tape) copy(ctx context.Context, follow bool, w io.Writer) error {
	piece, end := make([]byte, min(pieceSize, max(utf8.UTFMax, t.half[0]+t.half[1]))), t.position()
	for pos := int64(0); follow || pos < end; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, lost, wait := t.read(piece, &pos)
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
		case wait == nil:
			return nil
		default:
			select {
			case <-wait:
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// text returns what is kept.
func (t *tape) text() (text string, truncated bool) {
	t.mu.Lock()
	kept := make([]byte, 0, len(t.head)+len(t.ring))
	kept = append(kept, t.head...)
	kept = append(append(kept, t.ring[t.at:]...), t.ring[:t.at]...)
	head, lost := len(t.head), t.total-int64(len(kept))
	t.mu.Unlock()
	if lost == 0 {
		return string(kept), false
	}
	end := kept[head:]
	for len(end) > 0 && !utf8.RuneStart(end[0]) {
		end, lost = end[1:], lost+1
	}
	return string(kept[:head]) + gap(lost) + string(end), true
}

// gap is the line that stands for bytes which were left out.
func gap(lost int64) string { return fmt.Sprintf("\n[%d bytes left out]\n", lost) }
