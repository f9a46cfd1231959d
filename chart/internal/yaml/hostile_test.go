package yaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// bomb returns lists of aliases of lists of aliases …
func bomb(levels int) string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for n := range levels {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", n+1, n+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d , ", n), 10), ", "))
	}
	return b.String()
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name, doc string
		limits    Limits
		want      string
	}{
		{"deep flow", strings.Repeat("[", 1000), Limits{}, "line 1: too many collections within each other"},
		{"deep block", strings.Repeat("- ", 1000), Limits{}, "line 1: too many collections within each other"},
		{"deep pairs", strings.Repeat("[a: ", 1000), Limits{}, "line 1: too many collections within each other"},
		{"depth of one", "a:\n  b: c", Limits{Depth: 1}, "line 2: too many collections within each other"},
		{"deep by aliases", "- &a [[[]]]\n- [*a]\n- [[*a]]", Limits{Depth: 5}, "line 3: too many collections within each other"},

		{"long plain scalar", "a: " + strings.Repeat("b ", 50), Limits{Scalar: 64}, "line 1: a scalar is too long"},
		{"long plain scalar of lines", "a:\n  b" + strings.Repeat("\n  b", 50), Limits{Scalar: 64}, "line 2: a scalar is too long"},
		{"long quoted scalar", "a: '" + strings.Repeat("b", 65) + "'", Limits{Scalar: 64}, "line 1: a scalar is too long"},
		{"long quoted scalar of lines", "a:\n \"b" + strings.Repeat("\n\n", 65) + "\"", Limits{Scalar: 64}, "line 2: a scalar is too long"},
		{"long literal scalar", "a: |\n " + strings.Repeat("b", 65), Limits{Scalar: 64}, "line 1: a scalar is too long"},
		{"long empty literal scalar", "a: |+\n" + strings.Repeat("\n", 1000), Limits{Scalar: 64}, "line 1: a scalar is too long"},
		{"long key", strings.Repeat("a", 5000) + ": b\n", Limits{}, "line 1: ':' cannot be here"},
		{"long key of a mapping", "a: b\n" + strings.Repeat("a", 5000) + ": b\n", Limits{}, `line 2: ':' expected after "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"…`},
		{"long name of an anchor", "&" + strings.Repeat("a", 5000) + " b", Limits{}, "line 1: the name of an anchor is too long"},
		{"long tag", "!" + strings.Repeat("a", 5000) + " b", Limits{}, "line 1: a tag is too long"},

		{"bomb of aliases", bomb(9), Limits{}, "too much text has anchors"},
		{"many replays", "- &a [" + strings.Repeat("x,", 200) + "]\n" + strings.Repeat("- *a\n", 100), Limits{Anchors: 1000}, "aliases stand for too much text"},
		{"large anchor", "- &a |\n" + strings.Repeat("  text\n", 200), Limits{Anchors: 1000}, "line 1: too much text has anchors"},
		{"many anchors", strings.Repeat("- &a\n", 200), Limits{Anchors: 1000}, "too much text has anchors"},
		{"unknown anchor", "a: b\nc: *d", Limits{}, `line 2: unknown anchor "d"`},
		{"alias within its anchor", "a: &b\n  c: *b", Limits{}, `line 2: alias "b" is within what it stands for`},
		{"two anchors", "a: &b &c d", Limits{}, "line 1: a node has two anchors or two tags"},
		{"two tags", "a: !b\n  !c d", Limits{}, "line 2: a node has two anchors or two tags"},
		{"alias with a tag", "- &a b\n- !c *a", Limits{}, "line 2: an alias cannot have an anchor or a tag"},
		{"alias key with a tag", "&a b: c\n!d *a : e", Limits{}, "line 2: an alias cannot have an anchor or a tag"},
		{"anchor without a name", "a: & b", Limits{}, "line 1: the name of an anchor expected"},
		{"tag without a suffix", "a: !! b", Limits{}, "line 1: a tag expected"},
		{"tag not closed", "a: !<b c", Limits{}, "line 1: a tag expected"},

		{"collection as key", "[a]: b", Limits{}, "line 1: ':' cannot be here"},
		{"collection as explicit key", "a: b\n? - c\n: d", Limits{}, "line 2: a collection as key is not supported"},
		{"collection as key in flow", "[{[a]: b}]", Limits{}, "line 1: a collection as key is not supported"},
		{"alias of a collection as key", "a: &b [c]\n*b : d", Limits{}, "line 2: a collection as key is not supported"},
		{"mapping as key", "? a: b", Limits{}, "line 1: a collection as key is not supported"},

		{"tab in the indentation", "a:\n\tb: c", Limits{}, `line 2: tab in the indentation, found "\tb: c"`},
		{"tab in the indentation of text", "a: b\n\tc", Limits{}, `line 2: tab in the indentation, found "\tc"`},
		{"tab in the indentation of a literal", "a: |\n\tb", Limits{}, `line 2: tab in the indentation of a block scalar, found "\tb"`},
		{"double quote not closed", "a:\n  \"b\nc", Limits{}, "line 2: a quoted scalar is not closed"},
		{"single quote not closed", "a: 'b", Limits{}, "line 1: a quoted scalar is not closed"},
		{"marker within quotes", "a: 'b\n--- c'", Limits{}, "line 2: the document ends within a quoted scalar"},
		{"marker within a flow sequence", "a: [b,\n--- ]", Limits{}, "line 2: the document ends within a collection"},
		{"flow sequence not closed", "a: [b, c\n", Limits{}, "line 2: ',' or ']' expected, found the end of the document"},
		{"flow mapping not closed", "a: {b: c", Limits{}, "line 1: ',' or '}' expected, found the end of the document"},
		{"flow mapping closed as sequence", "a: {b: c]", Limits{}, `line 1: ',' or '}' expected, found "]"`},
		{"missing comma", `{"a": 1 "b": 2}`, Limits{}, `expected, found`},
		{"two commas", "[a,,b]", Limits{}, `line 1: a value expected, found ",b]"`},
		{"unknown escape", `a: "\q"`, Limits{}, `line 1: an escape expected, found "\\q\""`},
		{"escape of no digits", `a: "\u12x4"`, Limits{}, `line 1: an escape with hexadecimal digits expected`},
		{"escape of a lone surrogate", `a: "\ud800"`, Limits{}, `line 1: an escape of a character expected`},
		{"escape of no character", `a: "\UFFFFFFFF"`, Limits{}, `line 1: an escape of a character expected`},
		{"block scalar with text", "a: | b\n", Limits{}, "line 1: the end of the line expected after the beginning of a block scalar"},
		{"block scalar of indentation 0", "a: |0\n b\n", Limits{}, "line 1: the end of the line expected after the beginning of a block scalar"},

		{"NUL", "a: b\nc: d\x00", Limits{}, `line 2: control character '\x00'`},
		{"control character", "a: b\n# \x1b[2J\n", Limits{}, `line 2: control character '\x1b'`},
		{"control character after the root", "a\x18", Limits{}, `line 1: control character '\x18'`},
		{"DEL", "a: \x7f", Limits{}, `line 1: control character '\x7f'`},
		{"C1 control character", "a: \u0080", Limits{}, `line 1: control character '\u0080'`},
		{"no character", "a: \ufffe", Limits{}, `line 1: control character '\ufffe'`},
		{"control character in JSON", "{\"a\":\n\"\x01\"}", Limits{}, `line 2: control character '\x01'`},
		{"invalid UTF-8", "a: b\n\nc: \xff\n", Limits{}, "line 3: invalid UTF-8: byte 0xff"},
		{"overlong UTF-8", "a: \xc0\x80\n", Limits{}, "line 1: invalid UTF-8: byte 0xc0"},
		{"surrogate in UTF-8", "a: \xed\xa0\x80\n", Limits{}, "line 1: invalid UTF-8: byte 0xed"},
		{"end within a character", "a: é\n\xe2\x82", Limits{}, "line 2: invalid UTF-8: the document ends within a character"},
		{"UTF-16", "\xff\xfea\x00", Limits{}, "line 1: the document is in UTF-16: only UTF-8 is read"},

		{"mapping within a line", "a: b: c", Limits{}, "line 1: ':' cannot be here"},
		{"colon after a root of lines", "a\nb::", Limits{}, `line 2: ':' cannot be here`},
		{"sequence within a line", "a: - b", Limits{}, `line 1: a collection cannot begin here`},
		{"mapping after a marker", "--- a: b\nc: d", Limits{}, "line 1: ':' cannot be here"},
		{"text after a value", "a: 'b' c", Limits{}, `line 1: the next key expected, found "c"`},
		{"key without a colon", "a: b\nc\nd: e", Limits{}, `line 2: ':' expected after "c"`},
		{"text instead of a value", "a:\nb\n", Limits{}, `line 2: ':' expected after "b"`},
		{"sequence among keys", "a: b\n- c", Limits{}, `line 2: a value expected, found "- c"`},
		{"key among entries", "- a\nb: c", Limits{}, `line 2: '- ' expected, found "b: c"`},
		{"key at another indentation", "a:\n   b: c\n  d: e", Limits{}, `line 3: the next key expected, found "d: e"`},
		{"reserved indicator", "a: @b", Limits{}, `line 1: a value expected, found "@b"`},
		{"directive without a marker", "%YAML 1.1\na: b", Limits{}, `line 2: --- expected after a directive, found "a: b"`},
		{"remote text in an error", "a: @\u202e" + strings.Repeat("b", 100), Limits{}, `found "@\u202ebbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"…`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := trace(strings.NewReader(c.doc), c.limits)
			_, slow := trace(iotest.OneByteReader(strings.NewReader(c.doc)), c.limits)
			var e *Error
			if err == nil || !errors.As(err, &e) || e.Line == 0 || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %s", err, c.want)
			}
			if fmt.Sprint(slow) != err.Error() {
				t.Fatalf("byte by byte: %v, at once: %v", slow, err)
			}
		})
	}
}

// rich has every production.
const rich = "\ufeff%YAML 1.1\n%TAG !e! tag:e,1:\n--- # a\n!e!f\n&a b: 'c''d'\n\"e\": \"\\x41\\\n f\"\nff: [g, h: i, {j: k, ? l : m}, *a ]\r\n" +
	"? n\n: - o\n  -   - |2-\n        p\n      - >+\n        q\n        r\n\n-: s\n<<: {t: &u [v]}\nw: *u\nx:\n- y\n- z\té\u2028  aa\n\nbb: !!str\n...\n"

func TestTruncated(t *testing.T) {
	if s, err := trace(strings.NewReader(rich), Limits{}); err != nil {
		t.Fatalf("%v\n%s", err, s)
	}
	for _, doc := range []string{rich, string(indexYAML(1)), string(indexJSON(1))} {
		for n := range len(doc) {
			compare(t, []byte(doc[:n]))
			compare(t, []byte(doc[n:]))
			if doc != rich {
				continue
			}
			for _, c := range []byte("\x00\xff\t\n:-[]{}'\"#&*!|>%@?,\\ ") {
				changed := []byte(doc)
				changed[n] = c
				_, _ = trace(bytes.NewReader(changed), Limits{})
			}
		}
	}
}

func TestReadErrors(t *testing.T) {
	broken := errors.New("connection reset")
	for _, doc := range []string{"", "a: b\n", "a: [b", "a: 'b", "a: |\n b", "# a", "a: b\n  c"} {
		_, err := trace(io.MultiReader(strings.NewReader(doc), iotest.ErrReader(broken)), Limits{})
		if !errors.Is(err, broken) {
			t.Errorf("%q: %v", doc, err)
		}
	}
	_, err := trace(idle{}, Limits{})
	if !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a reader that gives nothing: %v", err)
	}
	r := NewReader(strings.NewReader("a: ["), Limits{})
	for range 3 {
		r.Next()
	}
	_, first := r.Next()
	if _, again := r.Next(); first == nil || first != again || r.Skip() != first {
		t.Errorf("%v, then %v", first, again)
	}
}

type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }
