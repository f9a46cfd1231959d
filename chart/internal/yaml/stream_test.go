package yaml

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv/measure"
)

// pieces is a reader that gives pieces of random lengths.
type pieces struct {
	r    io.Reader
	rand *rand.Rand
}

func (p pieces) Read(b []byte) (int, error) {
	return p.r.Read(b[:min(len(b), 1+p.rand.IntN(20000))])
}

// TestPieces reads documents larger than the buffer, moved byte by byte over its
// borders: scalars of all styles and lengths lie across them.
func TestPieces(t *testing.T) {
	var b strings.Builder
	for n := range 1000 {
		text := strings.Repeat("word é ", n%700/7) + "end"
		fmt.Fprintf(&b, "- plain: %s\n  'single': '%s''s'\n  \"double\": \"%s\\n\"\n  literal: |\n    %s\n    %s\n  lines: %s\n    %s\n\n  flow: {a: [%s], b: '%[1]s'} # %[1]s\n",
			text, text, text, text, text, text, text, text)
	}
	text := b.String()
	want, err := trace(strings.NewReader(text), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := reference([]byte(text[:200000]))
	if err == nil && !strings.HasPrefix(want, ref[:len(ref)-200]) {
		t.Error("other events than the other implementation")
	}
	for shift := range 12 {
		doc := strings.Repeat("#", shift) + "\n" + text
		got, err := trace(pieces{strings.NewReader(doc), rand.New(rand.NewPCG(1, uint64(shift)))}, Limits{})
		if err != nil || got != want {
			t.Fatalf("shifted by %d: %v, other events", shift, err)
		}
	}
}

// TestHuge reads tokens that are larger than the buffer.
func TestHuge(t *testing.T) {
	long := strings.Repeat("a b é ", 50000) + "z"
	spaces := strings.Repeat(" ", 100000)
	for _, c := range []struct{ name, doc, want string }{
		{"plain", "a: " + long, "{ =a =L }"},
		{"single", "a: '" + long + "'", "{ =a L }"},
		{"double", "a: \"" + long + "\" # b", "{ =a L }"},
		{"literal", "a: |-\n  " + long, "{ =a L }"},
		{"key of JSON", `{"` + long + `"` + spaces + ":" + spaces + "1}", "{ L =1 }"},
		{"key of many bytes", strings.Repeat("\U0001f600", 1000) + ": a", `{ ="` + strings.Repeat(`\U0001f600`, 1000) + `" =a }`},
		{"comment", "# " + long + "\na: #" + long + "\n  b", "{ =a =b }"},
		{"spaces", spaces + "\na:" + spaces + "b" + spaces + "\nc: d", "{ =a =b =c =d }"},
		{"lines", strings.Repeat("\n", 100000) + "a: b" + strings.Repeat("\n", 2000000) + "c: d", "{ =a =b =c =d }"},
		{"spaces after quotes", "- 'a'" + spaces + "\n- b", `[ "a" =b ]`},
		{"spaces before JSON", spaces + "{\"a\u2028\":\x20\"\x7f\"}", `{ "a\u2028" "\x7f" }`},
		{"folded blanks", "a: b" + spaces + "\n " + spaces + "c", `{ =a ="b c" }`},
	} {
		want := strings.ReplaceAll(c.want, "=L", "="+word(long))
		want = strings.ReplaceAll(want, " L ", " "+fmt.Sprintf("%+q", long)+" ")
		if got := events(t, c.doc); got != want {
			t.Errorf("%s: got %.200q", c.name, got)
		}
	}
}

// repeat gives head and then text again and again, n times.
type repeat struct {
	head, text string
	n, at      int
}

func (r *repeat) Read(b []byte) (int, error) {
	if r.head != "" {
		n := copy(b, r.head)
		r.head = r.head[n:]
		return n, nil
	}
	if r.n == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.text[r.at:])
	if r.at += n; r.at == len(r.text) {
		r.at = 0
		r.n--
	}
	return n, nil
}

func TestAllocations(t *testing.T) {
	entry := string(indexYAML(1))
	entry = entry[strings.Index(entry, "  - "):strings.Index(entry, "generated")] +
		"  - !!map\n    a: !t 'b''c'\n    \"d\": \"\\u00e9\"\n    e: {f: [g, h: i]}\n    j: >-\n      k\n\n      l\n"
	r := NewReader(&repeat{head: "entries:\n  a:\n", text: entry, n: 1 << 30}, Limits{})
	step := func() {
		for range 1000 {
			if _, err := r.Next(); err != nil {
				t.Fatal(err)
			}
		}
	}
	step()
	if n := testing.AllocsPerRun(100, step); n > 0 {
		t.Errorf("%v allocations in 1000 events", n)
	}
}

// TestMemory reads 64 MiB, of which 60 MiB are passed over.
func TestMemory(t *testing.T) {
	entry := string(indexYAML(20))
	entry = entry[strings.Index(entry, "  - "):strings.Index(entry, "generated")]
	used := measure.Allocated(func() { passOver(t, entry) })
	if used > 1<<20 {
		t.Errorf("%d bytes allocated", used)
	}
}

// passOver reads the first 50,000 events one by one, and skips what is left.
func passOver(t *testing.T, entry string) {
	r := NewReader(&repeat{head: "entries:\n  a:\n", text: entry, n: 64 << 20 / len(entry)}, Limits{})
	for range 50000 {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	for {
		e, err := r.Next()
		if err == nil && (e.Kind == MapStart || e.Kind == SeqStart) {
			err = r.Skip()
		}
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestSkip skips every collection once: what follows is the same.
func TestSkip(t *testing.T) {
	docs := []string{rich, string(indexJSON(200)), string(indexYAML(200))}
	for _, d := range documents {
		docs = append(docs, d.doc)
	}
	for _, doc := range docs {
		all, err := trace(strings.NewReader(doc), Limits{})
		if err != nil {
			continue
		}
		lines := strings.Split(all, "\n")
		step := 1 + len(lines)/200
		for n, line := range lines {
			if n > 20 && n%step > 2 || !strings.HasSuffix(line, "{") && !strings.HasSuffix(line, "[") {
				continue
			}
			end, depth := n+1, 1
			for ; depth > 0; end++ {
				switch {
				case strings.HasSuffix(lines[end], "{"), strings.HasSuffix(lines[end], "["):
					depth++
				case lines[end] == "}", lines[end] == "]":
					depth--
				}
			}
			want := strings.Join(lines[end:], "\n")
			if got, err := skipAt(doc, n); err != nil || got != want {
				t.Fatalf("%q: after skipping what event %d begins: %v\n%s\nwant\n%s", doc, n, err, got, want)
			}
		}
	}
}

// skipAt returns the events after the collection that event n begins.
func skipAt(doc string, n int) (string, error) {
	r := NewReader(bytes.NewReader([]byte(doc)), Limits{})
	for range n + 1 {
		if _, err := r.Next(); err != nil {
			return "", err
		}
	}
	if err := r.Skip(); err != nil {
		return "", err
	}
	var b strings.Builder
	for {
		e, err := r.Next()
		if err == io.EOF {
			return b.String(), nil
		}
		if err != nil {
			return "", err
		}
		b.WriteString(spell(e) + "\n")
	}
}
