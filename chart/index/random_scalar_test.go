package index_test

import (
	"fmt"
	"strconv"
	"strings"
)

// hostileWords look like structure, and are text.
var hostileWords = []string{
	"podinfo", "podinfo:", "- name", "#", "\"", "'", "a", "entries:", "it's", "x: y", "[", "]", "{", "}", "|", ">", "foo", "---", "...",
	"\\", "&a", "*a", "é", "1.0", "-", ":", ",", "?", "podinfo: \"", "\"podinfo\":", "b #c", "é:",
}

var (
	escapes       = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\t", `\t`)
	escapesButTab = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
)

// text is what is written within quotes.
func (g *generator) text() string {
	var words []string
	for range 1 + g.IntN(4) {
		words = append(words, g.one(hostileWords...))
	}
	return strings.Join(words, g.one(" ", " ", "", "  ", "\t"))
}

// line is one of a scalar that has several.
func (g *generator) line() string {
	return g.one(g.text(), "podinfo:", "- name: podinfo", "- x", "podinfo: [1]", "b:", "entries:", "]", "}", "", "# c", "-", "key: |")
}

// newline is a line break that is mostly alone.
func (g *generator) newline() string {
	if g.rarely(60) {
		return g.one("\r", "\u0085", "\u2028", "\n\n", "\n  \n", "\n\t\n", "\n# c\n", "\n   # \"\n", "\n \t# x\n")
	}
	return "\n"
}

// around are spaces about as many as n.
func (g *generator) around(n int) string {
	return spaces(n + g.IntN(5) - g.IntN(3)*g.IntN(3))
}

func spaces(n int) string { return strings.Repeat(" ", max(0, n)) }

// plain is a scalar without quotes.
func (g *generator) plain() string {
	if g.rarely(150) { // it is none
		return g.one("a:", "a 'b c: d", "a: \"b")
	}
	return g.one("abc", "1.2.3", "a b", "x:y", "a#b", "it's", "a \"b", "true", "http://x/y?z", "a ] b", "a, b", "a { b", "~", "null", "-1", "-a",
		"?a", ":a", "a - b", "é", "$x", "a]", "x #", "x # \"")
}

// plainLines is one that may go on over lines right of column n.
func (g *generator) plainLines(n int) string {
	s := g.plain()
	if g.rarely(4) {
		s += g.repeat(1, 2, func() string {
			return g.newline() + spaces(n+1+g.IntN(4)) + g.one("more", "\"x", "'y", "- z", "[ w", "| v", "a #b", "& c", "x:y", "#", "* d", "podinfo:z")
		})
	}
	return s
}

// quoted is a scalar in double quotes.
func (g *generator) quoted(n int) string {
	s := escapes.Replace(g.text())
	if g.rarely(3) {
		s += g.repeat(1, 3, func() string {
			return g.one("", "\\", " ", "\t") + g.newline() + g.around(n) + escapesButTab.Replace(g.line())
		})
	}
	return `"` + s + `"`
}

// singleQuoted is a scalar in single quotes.
func (g *generator) singleQuoted(n int) string {
	s := strings.ReplaceAll(g.text(), "'", "''")
	if g.rarely(3) {
		s += g.repeat(1, 3, func() string {
			return g.newline() + g.around(n) + strings.ReplaceAll(g.line(), "'", "''")
		})
	}
	return "'" + s + "'"
}

// literal is a literal or folded scalar right of column n.
func (g *generator) literal(n int) string {
	more := 1 + g.IntN(4)
	s := g.one("|", ">", "|-", ">+", "|+", ">-")
	if g.rarely(3) {
		s = g.one("|", ">") + strconv.Itoa(more) + g.one("", "-", "+")
	}
	s += g.one("", "", " # c", "  ")
	column := max(n, 0) + more
	s += "\n" + spaces(column) + g.line()
	s += g.repeat(0, 3, func() string {
		if g.rarely(5) {
			return "\n" + spaces(g.IntN(column+2))
		}
		return "\n" + spaces(column+g.IntN(3)) + g.line()
	})
	if g.rarely(4) {
		s += "\n" + spaces(g.IntN(max(n, 0)+2)) + "# c \" ' ["
	}
	return s
}

// flow is a scalar or a collection in flow style.
func (g *generator) flow(depth int) string {
	kind := g.IntN(7)
	if depth > 2 || kind < 2 || g.tame {
		return g.one("a", "b c", `"x]"`, `'y}'`, `"\""`, "1", "-1", "x:y", `"a: b"`, "'it''s'", "a#b", "~", "a 'b", "a \"b", "é", "x?y")
	}
	var elements []string
	for i := range g.IntN(4) {
		e := g.flow(depth + 1)
		if kind >= 4 {
			e = fmt.Sprintf(g.one("k%d", `"k%d"`, "'k%d'", "k %d "), i) + g.one(": ", ": ", " : ", ":") + e
		}
		elements = append(elements, e)
	}
	list := g.flowSpace() + strings.Join(elements, ","+g.flowSpace()) + g.flowSpace()
	if kind < 4 {
		return "[" + list + "]"
	}
	return "{" + list + "}"
}

func (g *generator) flowSpace() string {
	return g.one("", " ", "  ") + g.sometimes(40, "\n", "\n  ", " # c\n ", "\t")
}

// properties are an anchor, a tag, or mostly nothing.
func (g *generator) properties() string {
	switch kind := g.IntN(90); {
	case g.tame:
	case kind == 0:
		g.anchors = append(g.anchors, fmt.Sprintf("a%d", len(g.anchors)))
		return "&" + g.anchors[len(g.anchors)-1] + " "
	case kind == 1:
		return "!!str "
	}
	return ""
}
