package markup

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

// tokens writes what is in a text in one line.
func tokens(text string) (string, error) {
	var out []string
	for s, depth := (&Scanner{Text: text}), 0; ; {
		t, err := s.Next()
		if err != nil {
			return strings.Join(out, " "), err
		}
		out = append(out, fmt.Sprintf("%c%s%s", "<>.="[t.Kind], t.Text, strings.TrimRight("|"+t.Attributes, "|")))
		switch t.Kind {
		case Start:
			depth++
		case End:
			if depth--; depth == 0 {
				return strings.Join(out, " "), nil
			}
		}
	}
}

func TestScan(t *testing.T) {
	for text, want := range map[string]string{
		"<a/>":                          "<a >a",
		"\ufeff<?xml x?>\n<a></a > ...": "<a >a",
		`<p:a x='>/' y="'" >t</p:a>`:    `<a|x='>/' y="'" .t >a`,
		`<a Encoded="true"/>`:           `<a|Encoded="true" >a`,
		"<a>b&amp;<!-- <c> -->d<![CDATA[<e>&amp;]]></a>": "<a .b&amp; .d =<e>&amp; >a",
	} {
		if got, err := tokens(text); err != nil || got != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
	for text, want := range map[string]error{
		"": errCutShort, "<": errCutShort, "<a": errCutShort, "<a>": errCutShort, "<a b='>": errCutShort, "<a/": errCutShort,
		"<!--": errCutShort, "<a></": errCutShort, "<a>b": errCutShort,
		"x<a/>": errNoXML, "<a></b>": errNoXML, "</a>": errNoXML, "<>": errNoXML, "<!DOCTYPE a><a/>": errNoXML,
		strings.Repeat("<a>", maxDepth+1): errNoXML,
	} {
		if got, err := tokens(text); !errors.Is(err, want) {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}

func TestMeant(t *testing.T) {
	for text, want := range map[string]string{"a": "a", "&lt;&gt;&amp;&quot;&apos;": `<>&"'`, "&#65;&#x42;c&#x1F600;": "ABc😀", "a\r\nb\rc": "a\nb\nc", "&amp;lt;": "&lt;"} {
		if got, err := (Token{Text: text}).Meant(); err != nil || got != want {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"&", "&;", "&nbsp;", "&#;", "&#x;", "&#99999999999;", "&#-1;"} {
		if got, err := (Token{Text: text}).Meant(); err == nil {
			t.Errorf("%s: %q", text, got)
		}
	}
}

// FuzzScan checks that nothing panics, and that elements are those that
// encoding/xml finds where it can read the text.
func FuzzScan(f *testing.F) {
	for _, text := range []string{"<a/>", "<?x?><a b='c'>d<!-- e --><f/></a>", "<a><![CDATA[b]]></a>", "<a:b></a:b>", "<a", "<a/ >"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := tokens(text); err != nil || !utf8.ValidString(text) {
			return
		}
		var want, got []string
		d := xml.NewDecoder(strings.NewReader(text))
		for depth := 0; ; {
			x, err := d.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				return
			}
			switch x := x.(type) {
			case xml.StartElement:
				if strings.Contains(x.Name.Local, ":") { // no name of a name space
					return
				}
				depth++
				want = append(want, x.Name.Local)
			case xml.EndElement:
				depth--
			}
			if _, end := x.(xml.EndElement); end && depth == 0 {
				break
			}
		}
		for s, depth := (&Scanner{Text: text}), 0; ; {
			x, err := s.Next()
			if err != nil {
				t.Fatal(err)
			}
			if x.Kind == Start {
				depth++
				got = append(got, x.Text)
			}
			if x.Kind == End {
				if depth--; depth == 0 {
					break
				}
			}
		}
		if len(got) > len(want) || strings.Join(got, " ") != strings.Join(want[:len(got)], " ") {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
