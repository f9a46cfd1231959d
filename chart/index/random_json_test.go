package index_test

import (
	"fmt"
	"strconv"
	"strings"
)

// json writes an index in JSON, or in flow style with what only YAML has.
func (g *generator) json() string {
	g.compact = g.rarely(3)
	parts := []string{`"apiVersion":"v1"`, g.jsonEntries()}
	for i := range g.IntN(3) {
		parts = append(parts, g.space()+fmt.Sprintf(`"f%d":`, i)+g.jsonValue(0))
	}
	if g.rarely(8) {
		parts = append(parts, g.jsonEntries())
	}
	g.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	begin := g.one("", "", "", "\n ", "\ufeff", "---\n", "\t")
	if g.rarely(8) { // what looks like an entry in block style begins before, and ends behind
		parts = append([]string{"\"x\": 1, \"y\":\"\nentries:\n  b:\n  - x\n    \""}, append(parts, "\"z\":\"\n  - y\n\"")...)
		begin = g.one("", "\ufeff", "--- ", begin)
	}
	return begin + "{" + strings.Join(parts, ",") + g.space() + "}" +
		g.one("", "\n", "\n", "\n", "trailing", "\n---\n")
}

// jsonEntries writes the field entries.
func (g *generator) jsonEntries() string {
	charts := g.jsonList(1, 6, func(int) string {
		name := g.jsonName()
		list := "[" + g.jsonList(0, 3, func(int) string {
			if g.rarely(3) {
				return g.jsonUsable(name)
			}
			return g.jsonValue(0)
		}) + g.sometimes(8, ",") + "]"
		if g.rarely(10) {
			list = g.jsonValue(0)
		}
		return name + g.space() + ":" + g.space() + list
	})
	return g.space() + `"entries"` + g.space() + ":" + g.space() + "{" + charts + "}"
}

// jsonName is the name of a chart, in other spellings too.
func (g *generator) jsonName() string {
	if g.rarely(40) {
		return g.one("podinfo", "'podinfo'", "? podinfo", `? "podinfo"`, `&a "podinfo"`, "\"podinfo\n\"", "\"\npodinfo\"")
	}
	return g.one(`"podinfo"`, `"podinfo"`, `"a"`, `"b"`, `"podinfo-2"`, `"pod\u0069nfo"`, `"podinf"`, `"\""`, `"podinfo "`, `"é"`, `"pod info"`, "\"pod\n info\"")
}

// jsonUsable writes a version that has all it needs, and more.
func (g *generator) jsonUsable(name string) string {
	fields := []string{`"name":` + name, fmt.Sprintf(`"version":"%d.0.0"`, g.IntN(3)), `"urls":["a"]`}
	for i := range g.IntN(3) {
		fields = append(fields, fmt.Sprintf(`"f%d":`, i)+g.jsonValue(2))
	}
	for i := range fields {
		fields[i] = g.space() + fields[i] + g.space()
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// jsonList writes from least to most elements with commas between them.
func (g *generator) jsonList(least, most int, element func(i int) string) string {
	var list []string
	for i := range least + g.IntN(most-least+1) {
		list = append(list, g.space()+element(i)+g.space())
	}
	return strings.Join(list, ",")
}

func (g *generator) jsonValue(depth int) string {
	switch kind := g.IntN(8); {
	case depth > 3 || kind < 3:
		return g.one(g.jsonString(), "1", "-2.5e+3", "null", "true", "[]", "{}", g.jsonString(), g.jsonString())
	case kind < 5:
		return "[" + g.jsonList(0, 3, func(int) string { return g.jsonValue(depth + 1) }) + "]"
	case g.rarely(60):
		return g.flow(0)
	}
	return "{" + g.jsonList(0, 3, func(i int) string {
		return `"` + g.one("k", "entries", "podinfo", `\"`, "name") + strconv.Itoa(i) + `"` + g.space() + ":" + g.space() + g.jsonValue(depth+1)
	}) + "}"
}

func (g *generator) jsonString() string {
	s := escapes.Replace(g.text())
	switch g.IntN(12) {
	case 0:
		s += `\\`
	case 1:
		s += `\"` + `]}`
	case 2:
		s = `\u0041` + s + `\\\"`
	case 3:
		s += strings.Repeat(`\\`, g.IntN(20)) + strings.Repeat("x", g.IntN(40))
	case 4:
		s += g.sometimes(10, "\n x")
	}
	return `"` + s + `"`
}

// space is what may stand between the parts of a document in JSON, or rarely in
// YAML alone.
func (g *generator) space() string {
	switch {
	case g.compact:
		return ""
	case g.rarely(200):
		return g.one("\r", "\t", " # c\n", "\r\n", "\u2028", "\n\n")
	}
	return g.one("", "", " ", "\n", "\n   ", "  ", "\n          ")
}
