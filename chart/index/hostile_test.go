package index_test

import (
	"errors"
	"io"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/chart/index"
	"github.com/headgate-io/headgate/internal/testenv/measure"
)

// endlessReader returns begin, and then text again and again until left bytes were read.
type endlessReader struct {
	begin, text string
	left        int
	at          int

	watch bool  // measure the live heap every 256 KiB and at the end
	live  int64 // the largest live heap, in bytes
	next  int   // offset of the next measurement
}

// Seek implements [io.Seeker] for the start.
func (e *endlessReader) Seek(int64, int) (int64, error) {
	e.left, e.at, e.next = e.left+e.at, 0, 0
	return 0, nil
}

func (e *endlessReader) Read(p []byte) (n int, err error) {
	if e.watch && (e.at >= e.next || e.left == 0) {
		e.live, e.next = max(e.live, measure.LiveBytes()), e.at+1<<18
	}
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

// TestBombs reads texts that try to become large or deep. The result is an error or the
// entries that exist, and takes little memory.
func TestBombs(t *testing.T) {
	measure.WithoutRace(t)
	lol := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'z'; c++ {
		p := string(c - 1)
		lol += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+p+",", 9) + "*" + p + "]\n"
	}
	const about = 1_300_000 // bytes: more than any limit
	for _, c := range []struct {
		name        string
		begin, text string
		fails       bool
		whole       bool // the YAML library reads the whole text
	}{
		{"one line", head + "  a:\n  - name: ", "x", true, false},
		{"one line of another chart", head + "  b:\n  - name: ", "x", true, false},
		{"one line of spaces", head + "  b:\n", " ", true, false},
		{"blank lines", head + "  b:\n", " \n", false, false},
		{"comments", head + "  b:\n", " # x\n", false, false},
		{"one quoted text", head + "  b:\n  - x: \"", "y\n  ", true, true},
		{"one literal text", head + "  b:\n  - x: |\n", "     yyyyyyyyyyyyyyyy\n", false, false},                   // it is not read
		{"one literal text that is asked for", head + "  a:\n  - x: |\n", "     yyyyyyyyyyyyyyyy\n", false, false}, // the entry is malformed
		{"one entry", head + "  b:\n  - x: y\n", "    y: |\n      z\n", false, false},
		{"one entry that is asked for", head + "  a:\n  - x: y\n", "    y: |\n      z\n", false, false}, // it is malformed
		{"versions", head + "  a:\n", "  - ~\n", true, false},
		{"versions of another chart", head + "  b:\n", "  - x: y\n", false, false},
		{"charts", head, "  b:\n  - x: y\n", false, false},
		{"charts without versions", head, "  b:\n", false, false},
		{"fields", "apiVersion: v1\n", "x: y\n", false, false},
		{"depth", head + "  a:\n  - ", "- ", true, false},
		{"depth of another chart", head + "  b:\n  - ", "- ", true, false},
		{"depth in JSON", `{"apiVersion":"v1","entries":{"b":[`, "[", true, true},
		{"depth of mappings", head + "  a: ", "{a: ", true, true},
		{"aliases", lol + head + "  a:\n  - *z\n", "  - *z\n", true, true},
		{"anchors", head + "  b:\n", "  - &a x\n", false, true},
		{"one line in JSON", `{"apiVersion":"v1","entries":{"b":[`, `{"x":"y"},`, true, true},
		{"one string in JSON", `{"apiVersion":"v1","entries":{"b":["`, "x", true, true},
		{"backslashes", `{"apiVersion":"v1","entries":{"b":["`, `\`, true, true},
		{"spaces", "", " ", true, true},
		{"zeros", "", "\x00", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			volume := about
			if c.text == "  - ~\n" {
				volume = 640_000 // more versions than the limit of 100,000
			} else if !c.fails { // no limit is to be reached
				volume = 300_000
			}
			size := len(c.begin) + volume/len(c.text)*len(c.text)
			for name, read := range map[string]func(io.ReadSeeker) error{
				"entries": func(r io.ReadSeeker) error { _, err := collect(index.Entries(r, "a")); return err },
				"check":   func(r io.ReadSeeker) error { _, err := index.Check(r); return err },
			} {
				r := &endlessReader{begin: c.begin, text: c.text, left: size, watch: !c.whole}
				if name == "check" && c.text == "  - ~\n" { // 100,000 versions, the limit, once
					r.left /= 5
				}
				before := measure.LiveBytes()
				var err error
				used := measure.AllocatedBytes(func() { err = read(r) })
				switch {
				case c.whole && used > 256<<20:
					t.Errorf("%s: %d bytes were allocated", name, used)
				case !c.whole && r.live-before > 8<<20:
					t.Errorf("%s: %d bytes were reachable", name, r.live-before)
				}
				if name == "entries" && (err != nil) != c.fails {
					t.Errorf("%v", err)
				}
				if err != nil && len(err.Error()) > 600 {
					t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
				}
			}
		})
	}
}

// TestHostileYAML reads text that is not YAML, or that must not be read.
func TestHostileYAML(t *testing.T) {
	for name, text := range map[string]string{
		"deep flow":                             "a: " + strings.Repeat("[", 20000),
		"deep block":                            "a: " + strings.Repeat("- ", 20000),
		"deep pairs":                            "a: " + strings.Repeat("[a: ", 20000),
		"harmless, deep, and closed":            "a: " + strings.Repeat("[", 200) + strings.Repeat("]", 200),
		"harmless, deep by aliases":             "a: &a " + strings.Repeat("[", 60) + strings.Repeat("]", 60) + "\nb: " + strings.Repeat("[", 60) + "*a" + strings.Repeat("]", 60),
		"harmless, long plain scalar":           "a: " + strings.Repeat("b ", 1<<19+1),
		"harmless, long plain scalar of lines":  "a:\n  b" + strings.Repeat("\n  b", 1<<19+1),
		"harmless, long quoted scalar of lines": "a:\n \"b" + strings.Repeat("\n b", 1<<19) + "\"",
		"harmless, long literal scalar":         "a: |\n" + strings.Repeat(" b\n", 1<<19),
		"unknown anchor":                        "a: b\nc: *d",
		"harmless, alias within its anchor":     "a: &b\n  c: *b",
		"harmless, many replays":                "a: &a [" + strings.Repeat("x,", 200) + "]\nb:\n" + strings.Repeat("- *a\n", 10000),
		"alias with a tag":                      "a: &a b\nd: !c *a",
		"many tags":                             "a: b\n---\n" + strings.Repeat("%TAG !a! tag:a,2000:\n", 2000),
		"anchor without a name":                 "a: & b",
		"collection as explicit key":            "a: b\n? - c\n: d",
		"mapping as key":                        "a: b\n? a: b\n: c",
		"tab in the indentation":                "a:\n\tb: c",
		"double quote not closed":               "a:\n  \"b\nc",
		"single quote not closed":               "a: 'b",
		"marker within quotes":                  "a: 'b\n--- c'",
		"marker within a flow sequence":         "a: [b,\n--- ]",
		"flow sequence not closed":              "a: [b, c\n",
		"flow mapping not closed":               "a: {b: c",
		"flow mapping closed as sequence":       "a: {b: c]",
		"missing comma":                         `a: {"a": 1 "b": 2}`,
		"unknown escape":                        `a: "\q"`,
		"escape of no digits":                   `a: "\u12x4"`,
		"escape of no character":                `a: "\UFFFFFFFF"`,
		"block scalar with text":                "a: | b\n",
		"NUL":                                   "a: b\x00c",
		"escape character":                      "a: b\x1bc",
		"no UTF-8":                              "a: b\xffc",
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := index.Check(strings.NewReader("apiVersion: v1\n" + text + "\nentries: {}\n")); err == nil {
				if !strings.HasPrefix(name, "harmless, ") {
					t.Errorf("%+v", s)
				}
			} else if len(err.Error()) > 600 || strings.ContainsAny(err.Error(), "\x00\x1b") {
				t.Errorf("%.1000q", err.Error())
			}
			// A requested entry.
			text := head + "  a:\n  - name: a\n    version:\n      " + strings.ReplaceAll(text, "\n", "\n      ") + "\n"
			if list, err := collect(index.Entries(strings.NewReader(text), "a")); len(list) > 0 {
				t.Errorf("%+v, %v", list, err)
			}
		})
	}
}

// TestAliasesAreBounded reads versions that merge a large mapping, or alias one, many
// times.
func TestAliasesAreBounded(t *testing.T) {
	measure.WithoutRace(t)
	large := "x: &x {" + strings.Repeat("y: z,", 50_000) + "name: a, version: 1.0.0, urls: [a]}\n"
	for name, entries := range map[string]string{
		"elements": strings.Repeat("  - *x\n", 1000),
		"merged":   strings.Repeat("  - {<<: *x}\n", 1000),
		"lists":    strings.Repeat("  - {<<: [*x, *x, *x, *x, *x, *x, *x, *x]}\n", 1000),
		"itself":   "  - &y {name: a" + strings.Repeat(", <<: *y", 3000) + "}\n",
	} {
		s, err := index.Check(strings.NewReader("apiVersion: v1\n" + large + "entries:\n  a:\n" + entries))
		if err != nil || s.Versions > 50 || s.SkippedTotal == 0 || name != "itself" && !strings.Contains(s.Skipped[99].Problem, "stand for too much") {
			t.Errorf("%s: %d versions, %d skipped, %v", name, s.Versions, s.SkippedTotal, err)
		}
	}
	many := "x: &x\n" + strings.Repeat("- {}\n", 5000) + "entries:\n"
	for i := range 2000 {
		many += "  c" + strconv.Itoa(i) + ": *x\n"
	}
	if s, err := index.Check(strings.NewReader("apiVersion: v1\n" + many)); err == nil {
		t.Errorf("aliases of a list: %d skipped", s.SkippedTotal)
	}
}

// TestMemoryDoesNotGrow compares an index with one of ten times its size whose
// other charts have ten times as many versions. Both may take 2 MiB at most.
func TestMemoryDoesNotGrow(t *testing.T) {
	measure.WithoutRace(t)
	for _, s := range shapes {
		if s.whole {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			charts := []string{"alpine", "nginx", "redis", "postgresql"}
			podinfo := strings.TrimPrefix(s.write([]string{"podinfo"}, 20), s.begin)
			index1, index10 := s.write(charts, 300), s.write(charts, 3000)
			join := func(text string) string {
				text = strings.TrimSuffix(text, s.end)
				if s.newline != "" {
					text = strings.TrimSuffix(text, strings.ReplaceAll(s.end, "\n", s.newline))
				}
				return text + s.comma + strings.TrimPrefix(podinfo, strings.ReplaceAll(s.begin, "\n", s.newline))
			}
			small := cost(t, join(index1), 5, allocations{})
			// The large index has 10,800 more versions; keeping the text of an eighth is too much.
			limit := allocations{small.mallocs + 500, min(small.bytes+uint64(len(index10)-len(index1))/8, 2<<20)}
			if large := cost(t, join(index10), 20, limit); large.mallocs > limit.mallocs || large.bytes > limit.bytes {
				t.Errorf("%+v for the small one, %+v for the large one", small, large)
			}
		})
	}
}

type allocations struct{ mallocs, bytes uint64 }

// cost returns the smallest cost of several readings of the versions of podinfo. It stops
// when the cost is at most enough. It repeats because pools drop one buffer in four under
// the race detector.
func cost(t *testing.T, text string, times int, enough allocations) (smallest allocations) {
	t.Helper()
	for n := range times {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		count := 0
		for _, err := range index.Entries(strings.NewReader(text), "podinfo") {
			must(t, err)
			count++
		}
		runtime.ReadMemStats(&after)
		if count != 20 {
			t.Fatalf("%d versions", count)
		}
		e := allocations{after.Mallocs - before.Mallocs, after.TotalAlloc - before.TotalAlloc}
		if n == 0 || e.bytes < smallest.bytes {
			smallest = e
		}
		if e.mallocs <= enough.mallocs && e.bytes <= enough.bytes {
			return e
		}
	}
	return smallest
}

// TestStopsEarly breaks out of the loop at the first version.
func TestStopsEarly(t *testing.T) {
	text := shapes[0].write([]string{"podinfo"}, 3)
	for e, err := range index.Entries(failingReader{strings.NewReader(text)}, "podinfo") {
		if err != nil || e.Version != "0.3.0" {
			t.Errorf("%+v, %v", e, err)
		}
		break
	}
}

// failingReader returns an error at the end of its text.
type failingReader struct{ *strings.Reader }

func (f failingReader) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err == io.EOF {
		err = errBroken
	}
	return n, err
}

var errBroken = errors.New("broken")
