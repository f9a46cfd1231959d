package index_test

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/chart/index"
	"github.com/headgate-io/headgate/internal/testenv/measure"
)

// endless repeats a text behind a beginning, as many bytes as it may.
type endless struct {
	begin, text string
	left        int
	at          int
}

func (e *endless) Read(p []byte) (n int, err error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(len(p), e.left)]
	for n < len(p) {
		from := e.begin
		at := e.at
		if at >= len(e.begin) {
			from, at = e.text, (e.at-len(e.begin))%len(e.text)
		}
		c := copy(p[n:], from[at:])
		n, e.at = n+c, e.at+c
	}
	e.left -= n
	return n, nil
}

// TestBombs reads what wants to be large or deep: an error or what there is, and
// little memory.
func TestBombs(t *testing.T) {
	lol := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'z'; c++ {
		p := string(c - 1)
		lol += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+p+",", 9) + "*" + p + "]\n"
	}
	const about = 3 << 20
	for _, c := range []struct {
		name        string
		begin, text string
		fails       bool
	}{
		{"one line", head + "  a:\n  - name: ", "x", true},
		{"one line of another chart", head + "  b:\n  - name: ", "x", true},
		{"one line of spaces", head + "  b:\n", " ", false},
		{"blank lines", head + "  b:\n", " \n", false},
		{"comments", head + "  b:\n", " # x\n", false},
		{"one quoted text", head + "  b:\n  - x: \"", "y\n  ", true},
		{"one literal text", head + "  b:\n  - x: |\n", "     yyyyyyyyyyyyyyyy\n", true}, // too long to be left out
		{"one literal text that is asked for", head + "  a:\n  - x: |\n", "     yyyyyyyyyyyyyyyy\n", true},
		{"one entry", head + "  b:\n  - x: y\n", "    y: |\n      z\n", false},
		{"one entry that is asked for", head + "  a:\n  - x: y\n", "    y: |\n      z\n", false}, // it is malformed
		{"versions", head + "  a:\n", "  - ~\n", true},
		{"versions of another chart", head + "  b:\n", "  - x: y\n", false},
		{"charts", head, "  b:\n  - x: y\n", false},
		{"charts without versions", head, "  b:\n", false},
		{"fields", "apiVersion: v1\n", "x: y\n", false},
		{"depth", head + "  a:\n  - ", "- ", true},
		{"depth of another chart", head + "  b:\n  - ", "- ", true},
		{"depth in JSON", `{"apiVersion":"v1","entries":{"b":[`, "[", true},
		{"depth of mappings", head + "  a: ", "{a: ", true},
		{"aliases", lol + head + "  a:\n  - *z\n", "  - *z\n", true},
		{"anchors", head + "  b:\n", "  - &a x\n", true},
		{"one line in JSON", `{"apiVersion":"v1","entries":{"b":[`, `{"x":"y"},`, true},
		{"one string in JSON", `{"apiVersion":"v1","entries":{"b":["`, "x", true},
		{"backslashes", `{"apiVersion":"v1","entries":{"b":["`, `\`, true},
		{"spaces", "", " ", true},
		{"zeros", "", "\x00", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			volume := about
			if !c.fails { // no limit is to be met
				volume /= thrift
			}
			size := len(c.begin) + volume/len(c.text)*len(c.text)
			var err error
			used := measure.Allocated(func() {
				_, err = all(index.Entries(&endless{begin: c.begin, text: c.text, left: size}, "a"))
			})
			if used > 32<<20 {
				t.Errorf("%d bytes were allocated", used)
			}
			if (err != nil) != c.fails {
				t.Errorf("%v", err)
			}
			if err != nil && len(err.Error()) > 600 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			used = measure.Allocated(func() { index.Check(&endless{begin: c.begin, text: c.text, left: size}) })
			if used > 32<<20 {
				t.Errorf("check: %d bytes were allocated", used)
			}
		})
	}
}

// TestMemoryDoesNotGrow compares an index with one of ten times its size whose
// other charts have ten times as many versions.
func TestMemoryDoesNotGrow(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			charts := []string{"alpine", "nginx", "redis", "postgresql"}
			asked := strings.TrimPrefix(s.write([]string{"podinfo"}, 20), s.begin)
			index1, index10 := s.write(charts, 300), s.write(charts, 3000)
			join := func(text string) string {
				text = strings.TrimSuffix(text, s.end)
				if s.newline != "" {
					text = strings.TrimSuffix(text, strings.ReplaceAll(s.end, "\n", s.newline))
				}
				return text + s.comma + strings.TrimPrefix(asked, strings.ReplaceAll(s.begin, "\n", s.newline))
			}
			small, large := cost(t, join(index1)), cost(t, join(index10))
			if large.mallocs > small.mallocs+20 || large.bytes > small.bytes+64<<10 {
				t.Errorf("%+v for the small one, %+v for the large one", small, large)
			}
			if large.bytes > 2<<20 {
				t.Errorf("%+v", large)
			}
		})
	}
}

type expense struct{ mallocs, bytes uint64 }

// cost returns the least that reading the versions of podinfo takes.
func cost(t *testing.T, text string) (least expense) {
	t.Helper()
	for n := range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		count := 0
		for _, err := range index.Entries(strings.NewReader(text), "podinfo") {
			if err != nil {
				t.Fatal(err)
			}
			count++
		}
		runtime.ReadMemStats(&after)
		if count != 20 {
			t.Fatalf("%d versions", count)
		}
		e := expense{after.Mallocs - before.Mallocs, after.TotalAlloc - before.TotalAlloc}
		if n == 0 || e.bytes < least.bytes {
			least = e
		}
	}
	return least
}

// TestStopsEarly leaves the loop at the first version.
func TestStopsEarly(t *testing.T) {
	text := shapes[0].write([]string{"podinfo"}, 3)
	for e, err := range index.Entries(io.MultiReader(strings.NewReader(text), failing{}), "podinfo") {
		if err != nil || e.Version != "0.3.0" {
			t.Errorf("%+v, %v", e, err)
		}
		break
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("read to the end") }
