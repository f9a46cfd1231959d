package index_test

import (
	"fmt"
	"strconv"
	"strings"
)

// chartNames are what may stand for podinfo, and what is nearly that.
var chartNames = []string{
	"podinfo", "podinfo-2", "podinf", "a", "b", "podinfo.x", `"podinfo"`, "'podinfo'", `"pod\u0069nfo"`, "1", "é", "entries", "<<x",
	"podinfo ", "podinfo\t", `"podinfo" `, "~", "apiVersion", "- x", "? podinfo", "\"a: b\"", "'podinfo '", "!!str podinfo", "&z podinfo",
	"podinfo #x", "po:dinfo", "Podinfo", "pod info", `"pod info"`,
}

// yaml writes an index in block style.
func (g *generator) yaml() string {
	parts := []string{"apiVersion: v1\n", g.entries()}
	for i := range g.IntN(3) {
		parts = append(parts, g.key(i+10)+":"+g.value(0, 2))
	}
	if g.rarely(8) {
		parts = append(parts, g.entries())
	}
	g.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	if !g.rarely(3) {
		parts = append(parts, "generated: x\n")
	}
	begin := g.one("", "---\n", "# c\n", "\ufeff", "\n\n")
	if g.tame {
		return begin + strings.Join(parts, "")
	}
	return g.one(begin, begin, "%YAML 1.1\n---\n", "--- # c\n") + strings.Join(parts, "") +
		g.sometimes(12, "...\n", "---\nentries:\n  podinfo:\n  - 1\n", "... # c\n")
}

// entries writes the field of that name.
func (g *generator) entries() string {
	column := 1 + g.IntN(3)
	switch g.IntN(10) {
	case 0:
		column = 7
	case 1:
		column = 0
	}
	return g.one("entries:", "entries:", "entries:", "entries: ", `"entries":`, "entries: # c", "entries :", "entries\t:", "'entries':") + "\n" +
		g.repeat(1, 6, func() string { return g.chart(column) })
}

// chart writes a chart whose name is at column n.
func (g *generator) chart(n int) string {
	name := "podinfo"
	switch g.IntN(4) {
	case 0, 1:
		if name = g.one(chartNames...); g.tame {
			name = g.one("a", "b", "c-d", `"podinfo"`, "podinfo-2")
		}
	case 2:
		name = g.one("a", "b", "c-d")
	}
	s := g.noise() + spaces(n) + name + ":"
	if g.rarely(25) {
		return s + g.value(n, 0)
	}
	column := n + []int{0, 0, 2, 1, 4}[g.IntN(5)]
	return s + g.one("", "", "", " # c", " ") + "\n" + g.repeat(1, 3, func() string {
		s := g.noise() + spaces(column) + "-"
		if g.rarely(3) {
			return s + g.usable(name, column)
		}
		return s + g.element(column, 0)
	})
}

// usable writes a version that has all it needs, and more.
func (g *generator) usable(name string, n int) string {
	urls := "urls:\n" + spaces(n+2) + "- a\n"
	if !g.tame {
		urls = g.one("urls: [a]\n", urls, "urls: ['a', \"b\"]\n")
	}
	return fmt.Sprintf(" name: %s\n%sversion: %d.0.0\n", name, spaces(n+2), g.IntN(3)) + spaces(n+2) + urls +
		g.mapping(n+2, 1, spaces(n+2))
}

// noise is a line that says nothing, or mostly none.
func (g *generator) noise() string {
	return g.sometimes(12, "\n", "   \n", "# c\n", "     # \"podinfo:\n", "  # '\n", "\t\n", "# {\n")
}

// mapping writes a mapping at column n, behind what stands before its first key.
func (g *generator) mapping(n, depth int, before string) string {
	s := ""
	for i := range 1 + g.IntN(4) {
		s += before
		if g.rarely(60) {
			s += "? " + g.key(i) + "\n" + spaces(n)
		} else {
			s += g.key(i)
		}
		s += ":" + g.value(n, depth)
		before = g.noise() + spaces(n)
	}
	return s
}

// sequence writes a list at column n, behind what stands before its first dash.
func (g *generator) sequence(n, depth int, before string) string {
	s := ""
	for range 1 + g.IntN(3) {
		s += before + "-" + g.element(n, depth)
		before = g.noise() + spaces(n)
	}
	return s
}

// key writes a key, which differs from those with another number.
func (g *generator) key(i int) string {
	k := g.one("k", "name", "version", "urls", "podinfo", "entries", "x y", "a-b", "é") + strconv.Itoa(i)
	switch g.IntN(12) {
	case 0:
		k = `"` + k + `"`
	case 1:
		k = `'` + k + `'`
	case 2:
		k = `"x: \"` + k + `"`
	case 3:
		k = g.one(`"#`, `"- `, `"podinfo: `) + k + `"`
	}
	return k + g.one("", "", "", "", " ", "\t")
}

// element writes what is behind a dash at column n.
func (g *generator) element(n, depth int) string {
	kind := g.IntN(10)
	switch {
	case depth > 3 || kind > 5:
		return g.value(n, 9)
	case kind == 5:
		gap := 1 + g.IntN(2)
		return g.sequence(n+1+gap, depth+1, spaces(gap))
	case g.rarely(6):
		column := n + 1 + g.IntN(3)
		return g.one("", " # c '") + "\n" + g.mapping(column, depth+1, spaces(column))
	}
	gap := 1 + g.IntN(3)
	if p := g.properties(); p != "" {
		return spaces(gap) + p + "\n" + g.mapping(n+2, depth+1, spaces(n+2))
	}
	return g.mapping(n+1+gap, depth+1, spaces(gap))
}

// value writes what is behind a key or a dash at column n, with its line break.
func (g *generator) value(n, depth int) string {
	if len(g.anchors) > 0 && g.rarely(10) {
		return " *" + g.one(g.anchors...) + "\n"
	}
	switch kind := g.IntN(14); {
	case g.rarely(40): // a key behind a line break that only YAML has
		return " a" + g.one("\r", "\u0085", "\u2028", "\u2029") + spaces(n) + g.key(20) + ": " + g.quoted(n) + "\n"
	case kind < 4:
		return " " + g.properties() + g.plainLines(n) + g.one("", "", "", " # c", " # \"", " #'") + "\n"
	case kind < 6:
		return " " + g.properties() + g.quoted(n+1) + g.one("", "", " # it's", "  ") + "\n"
	case kind < 7:
		return " " + g.singleQuoted(n+1) + g.one("", "", " # it\"s") + "\n"
	case kind < 9:
		return " " + g.literal(n) + "\n"
	case kind < 10:
		return " " + g.properties() + g.flow(0) + g.one("", " # c") + "\n"
	case kind < 11:
		return g.one("", " # c") + "\n" + spaces(n+1+g.IntN(3)) +
			g.one("abc", g.quoted(n+1), g.singleQuoted(n+1), "a b\n"+spaces(n+1)+"\"c", "[a]", "-1") + "\n"
	}
	return g.nested(n, depth)
}

// nested is a value that is a collection on lines of its own, or nothing.
func (g *generator) nested(n, depth int) string {
	column := n + 1 + g.IntN(3)
	switch kind := g.IntN(3); {
	case depth > 3 || kind == 0:
		return g.one("", " ", " ~", " # c") + "\n"
	case kind == 1:
		return g.one("", " # \"c") + "\n" + g.mapping(column, depth+1, spaces(column))
	}
	column--
	return "\n" + g.sequence(column, depth+1, spaces(column))
}
