package yaml

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// traceMax bounds the events of a document that is compared.
const traceMax = 20000

// trace returns the events of a document, one a line.
func trace(r io.Reader, l Limits) (string, error) {
	var b strings.Builder
	x := NewReader(r, l)
	for n := 0; ; n++ {
		e, err := x.Next()
		if err == io.EOF {
			return b.String(), nil
		}
		if err != nil {
			return b.String(), err
		}
		if n < traceMax {
			b.WriteString(spell(e) + "\n")
		}
	}
}

// spell returns an event in the notation of the tests: {, }, [, ], =plain, "text", ~.
func spell(e Event) string {
	s := e.Tag
	if s != "" {
		s += " "
	}
	switch e.Kind {
	case MapStart:
		return s + "{"
	case MapEnd:
		return "}"
	case SeqStart:
		return s + "["
	case SeqEnd:
		return "]"
	case Null:
		return s + "~"
	}
	if e.Plain {
		return s + "=" + word(string(e.Value))
	}
	return s + fmt.Sprintf("%+q", e.Value)
}

// word spells the text of a plain scalar.
func word(s string) string {
	if strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' || c == '"' }) {
		return fmt.Sprintf("%+q", s)
	}
	return s
}

// events is trace on one line.
func events(t *testing.T, doc string) string {
	t.Helper()
	s, err := trace(strings.NewReader(doc), Limits{})
	slow, serr := trace(iotest.OneByteReader(strings.NewReader(doc)), Limits{})
	if s != slow || fmt.Sprint(err) != fmt.Sprint(serr) {
		t.Errorf("%q: byte by byte %q %v, at once %q %v", doc, slow, serr, s, err)
	}
	if err != nil {
		return strings.TrimSpace(strings.ReplaceAll(s, "\n", " ") + "! " + err.Error())
	}
	return strings.TrimSpace(strings.ReplaceAll(s, "\n", " "))
}

// documents are texts and their events.
var documents = []struct{ name, doc, want string }{
	{"nothing", "", ""},
	{"only comments", "# a\n  # b", ""},
	{"only an end marker", "...\n", ""},
	{"empty document", "---\n", "~"},
	{"byte order mark", "\ufeffa: b", "{ =a =b }"},
	{"byte order mark within", "- \ufeffa", `[ ="\ufeffa" ]`},
	{"root scalar", "a", "=a"},
	{"root scalar of lines", "a\n b\n\nc # d\n", `="a b\nc"`},

	{"mapping", "a: b\nc: d\n", "{ =a =b =c =d }"},
	{"mapping, indented", "  a: b\n  c: d", "{ =a =b =c =d }"},
	{"mapping in mapping", "a:\n  b:\n    c: d\n  e: f\ng: h", "{ =a { =b { =c =d } =e =f } =g =h }"},
	{"empty values", "a:\nb: # c\nd:", "{ =a ~ =b ~ =d ~ }"},
	{"colons and numbers in text", "a: b:c\nd: x#y\n1.5: -2\n", "{ =a =b:c =d =x#y =1.5 =-2 }"},
	{"plain indicators", "- -a\n- ?b\n- :c\n- a, b]\n", `[ =-a =?b =:c ="a, b]" ]`},
	{"quoted keys", "\"a\": 1\n'b c' : 2\n\"d\\n\": 3", `{ "a" =1 "b c" =2 "d\n" =3 }`},
	{"merge key is a key", "<<: a", "{ =<< =a }"},
	{"value on the next line", "a:\n  b\nc:\n  'd'", `{ =a =b =c "d" }`},
	{"explicit key", "? a\n: b\n? c\n? |\n d\n: - e\n", `{ =a =b =c ~ "d\n" [ =e ] }`},
	{"explicit key of lines", "? a\n  b\n: c: d", `{ ="a b" { =c =d } }`},
	{"empty explicit key", "?\n: a", "{ ~ =a }"},
	{"key with properties only", "!t : a\n&b : c", "{ !t ~ =a ~ =c }"},

	{"sequence", "- a\n- b\n", "[ =a =b ]"},
	{"sequence of sequences", "- - a\n  - b\n-\n  - c\n- []", "[ [ =a =b ] [ =c ] [ ] ]"},
	{"sequence of mappings", "- a: b\n  c: d\n- e: f", "[ { =a =b =c =d } { =e =f } ]"},
	{"sequence as deep as its key", "a:\n- b\n- c: d\n  e: f\ng: h", "{ =a [ =b { =c =d =e =f } ] =g =h }"},
	{"sequence deeper than its key", "a:\n  - b\n  -\n  - c\nd: e", "{ =a [ =b ~ =c ] =d =e }"},
	{"empty entries", "-\n- # a\n-", "[ ~ ~ ~ ]"},
	{"sequence in a sequence of a key", "- a:\n  - b\n- c", "[ { =a [ =b ] } =c ]"},

	{"flow sequence", "[a, 'b', \"c\", [d], {e: f},]", `[ =a "b" "c" [ =d ] { =e =f } ]`},
	{"flow mapping", "{a: b, c, d: , 'e':f, ? g : h, ?, i: [j]}", `{ =a =b =c ~ =d ~ "e" =f =g =h ~ ~ =i [ =j ] }`},
	{"flow pairs", "[a: b, 'c': , ? d : e, ? , !t : f]", `[ { =a =b } { "c" ~ } { =d =e } { ~ ~ } { !t ~ =f } ]`},
	{"flow over lines", "a: [b,\nc # d\n,\n\te]\nf: {\n}\n", "{ =a [ =b =c =e ] =f { } }"},
	{"flow text", "[a:b, http://c/d, e f\n g, -1, -]", `[ =a:b =http://c/d ="e f g" =-1 =- ]`},
	{"key and colon on lines", "{\"a\"\n: 1, b\n  : 2}", `{ "a" =1 =b =2 }`},

	{"plain of lines", "a: b\n  c\n\n\n  d\n \te: f", `{ =a ="b c\n\nd e" ! line 6: ':' cannot be here: it follows a key on one line, of at most 4096 bytes, that is no collection and begins where a key may begin`},
	{"plain folded", "a: b\n  c \n\n \n   d # e\nf: g", `{ =a ="b c\n\nd" =f =g }`},
	{"plain ends at a comment", "a: b # c\n  # d\nf: g", "{ =a =b =f =g }"},
	{"plain with tabs", "a:\tb\tc\t\n \td\n", `{ =a ="b\tc d" }`},
	{"single quotes", "- 'a''b'\n- ''\n- 'c\n\n\n  d \t\n e'\n- 'f\\n'\n", `[ "a'b" "" "c\n\nd e" "f\\n" ]`},
	{"double quotes", `- "a\tb\\\"\x41\u00e9\U0001F600\/"` + "\n- \"b \\\n   c\n\n  \\ d  \n  e\"", `[ "a\tb\\\"A\u00e9\U0001f600/" "b c\n d e" ]`},
	{"quoted lines at any indentation", "a:\n  b: \"c\nd\n   e\"\n  f: 'g\nh'", `{ =a { =b "c d e" =f "g h" } }`},
	{"escapes by letter", `"\0\a\b\e\f\n\r\t\v\N\_\L\P\ "`, `"\x00\a\b\x1b\f\n\r\t\v\u0085\u00a0\u2028\u2029 "`},
	{"escaped surrogates", `["\ud83d\ude00"]`, `[ "\U0001f600" ]`},
	{"escaped lone surrogates in JSON", `["\ud83dx\udE00"]`, `[ "\ufffdx\ufffd" ]`},

	{"literal", "a: |\n  b\n   c\n\n  d\ne: f", `{ =a "b\n c\n\nd\n" =e =f }`},
	{"literal, chomped", "- |-\n a\n\n- |+\n b\n\n- |\n c\n\n- |+\n\n- d", `[ "a" "b\n\n" "c\n" "\n" =d ]`},
	{"literal, indented", "- |2\n   a\n  b\n- |1-\n  c\n- |-1\n  d", `[ " a\nb\n" " c" " d" ]`},
	{"literal as deep as its entry", "a:\n- |\n  b\n- c", `{ =a [ "b\n" =c ] }`},
	{"literal at the end", "a: |\n  b", `{ =a "b" }`},
	{"literal no deeper than its key", "a:\n|\n b\nc:\n- \n>\n", `{ =a "b\n" =c [ "" ] }`},
	{"literal with a comment", "a: | # b\n  # c\n # d\ne: f", `{ =a "# c\n" =e =f }`},
	{"literal of nothing", "a: |\nb: >\n\nc: d", `{ =a "" =b "" =c =d }`},
	{"folded", "a: >\n  b\n  c\n\n  d\n   e\n  f\n\n\n  g\n", `{ =a "b c\nd\n e\nf\n\ng\n" }`},
	{"folded, chomped", "- >-\n a\n b\n\n- >+\n c\n\n", `[ "a b" "c\n\n" ]`},

	{"comments everywhere", "# a\n--- # b\n# c\nd: # e\n  # f\n  - g # h\n# i\n  - j#k\n#l\n", "{ =d [ =g =j#k ] }"},
	{"comment after quotes", "a: 'b'#c\n", `{ =a "b" }`},
	{"line breaks", "a: b\r\nc: d\re: f\u0085g: h\u2028i: j\u2029", "{ =a =b =c =d =e =f =g =h =i =j }"},
	{"folds of line breaks", "- a\r\n b\r\n\r\n c\n- 'd\u2028e\r\rf'", `[ ="a b\nc" "d\u2028e\nf" ]`},
	{"line breaks of JSON", "[\"a\u2028b\u0085\x7f\"]", `[ "a\u2028b\u0085\x7f" ]`},
	{"blank lines with tabs", "a:\n\t\n  b: c\n\t# d\n  e: f", "{ =a { =b =c =e =f } }"},

	{"directives", "%YAML 1.2\n%TAG !e! tag:e,1: # a\n%OTHER\n---\n!e!f a: b", "{ !e!f =a =b }"},
	{"markers", "---\na: b\n...\nc: [", "{ =a =b }"},
	{"second document", "a\n--- {", "=a"},
	{"content after a marker", "--- |\n a\n--- b", `"a\n"`},
	{"marker at the beginning of a line only", "a: ---\nb:\n - ...\n", "{ =a =--- =b [ =... ] }"},
	{"text after the root is not read", "{a: b} c", "{ =a =b }"},
	{"text left of the root is not read", "  - a\n - b\n", "[ =a ]"},

	{"tags", "!a b: !!str c\nd: !<tag:e,1:f> [!g h]\ni: ! j\nk: !!null\n", "{ !a =b !!str =c =d !<tag:e,1:f> [ !g =h ] =i ! =j =k !!null ~ }"},
	{"tag of exclamation marks", "!!! a", "!!! =a"},
	{"tag of a mapping", "!a\n!b c: d", "!a { !b =c =d }"},
	{"binary is text", "!!binary aGk=", "!!binary =aGk="},
	{"anchors", "a: &x b\nc: *x\n*x : d", "{ =a =b =c =b =b =d }"},
	{"anchors of collections", "- &x {a: [b], c: !t }\n- *x\n- &y\n  d: *x\n- [*y]", "[ { =a [ =b ] =c !t ~ } { =a [ =b ] =c !t ~ } { =d { =a [ =b ] =c !t ~ } } [ { =d { =a [ =b ] =c !t ~ } } ] ]"},
	{"anchors of a mapping and its key", "&x !t\n&y a: b\nc: *y", "!t { =a =b =c =a }"},
	{"anchors within each other", "- &x [&y a, &x b]\n- *y\n- *x", "[ [ =a =b ] =a =b ]"},
	{"anchors again", "- &x a\n- *x\n- &x b\n- *x", "[ =a =a =b =b ]"},
	{"anchor of nothing", "a: &x\nb: *x", "{ =a ~ =b ~ }"},
	{"anchor of a flat sequence", "a: &x\n- b\nc: *x", "{ =a [ =b ] =c [ =b ] }"},
	{"aliases in flow", "[&x a, *x , {*x : *x}, *x : b]", "[ =a =a { =a =a } { =a =b } ]"},
	{"tag and anchor in any order", "- !t &x a\n- &y !t b\n- *x", "[ !t =a !t =b !t =a ]"},

	{"JSON", `{"a":{"b":[1,-2.5e+3,true,false,null,"",{}]},"c\/":"\u0000\"\\"}` + "\n", `{ "a" { "b" [ =1 =-2.5e+3 =true =false =null "" { } ] } "c/" "\x00\"\\" }`},
	{"JSON with white space", "\n\t[ 1\r\n\t,\t\"a\" ,\n{ \"b\"\t:\n1 } ]\n", `[ =1 "a" { "b" =1 } ]`},
}

func TestEvents(t *testing.T) {
	for _, c := range documents {
		t.Run(c.name, func(t *testing.T) {
			if got := events(t, c.doc); got != c.want {
				t.Errorf("%q:\n got %s\nwant %s", c.doc, got, c.want)
			}
		})
	}
}
