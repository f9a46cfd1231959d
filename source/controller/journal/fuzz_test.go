package journal

import (
	"bytes"
	"testing"
)

// Whatever a segment holds, it reads the same forwards and backwards, and what is appended
// comes after it. It is done in memory: files are durable, and so too slow for many inputs.
func FuzzSegment(f *testing.F) {
	f.Add([]byte("{\"id\":5,\"severity\":\"info\",\"message\":\"a\"}\n{\"id\":6"))
	f.Add([]byte("{\"id\":1125899906842629,\"severity\":\"info\"}\n{\"id\":1125899906842628,\"severity\":\"info\"}\n"))
	f.Add([]byte("\x00\n\n\xff{\"timestamp\":\"x\"}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		const first = 5
		all, err := Query{Severity: trace}.filter()
		if err != nil {
			t.Fatal(err)
		}
		last, whole := lastIn(text, first)
		if whole > int64(len(text)) || last < first-1 || bytes.IndexByte(text[whole:], '\n') >= 0 {
			t.Fatalf("the last ID is %d, %d of %d bytes are whole", last, whole, len(text))
		}
		var forward []Entry
		lines(text, func(line []byte) bool {
			if e, ok := all.decode(line, first); ok {
				forward = append(forward, e)
			}
			return true
		})
		back := all.newest(nil, text, first)
		if len(back) != len(forward) {
			t.Fatalf("%d entries forwards, %d backwards", len(forward), len(back))
		}
		for i, e := range forward {
			if other := back[len(back)-1-i]; e.ID != other.ID || e.Message != other.Message || e.ID > last {
				t.Errorf("entry %d is %d, %q or %d, %q; the last is %d", i, e.ID, e.Message, other.ID, other.Message, last)
			}
		}
		one := *all
		one.Limit = 1
		if n := one.newest(nil, text, first); len(n) != min(1, len(back)) {
			t.Error(n)
		}
	})
}
