package summary

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"
)

// unescape expands the five entities that XML predefines, and references to
// characters. Others stay as they are written.
func unescape(text string) string {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(text, "&")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		name, rest, ok := strings.Cut(after[:min(len(after), 10)], ";")
		if c, known := entity(name); ok && known {
			b.WriteRune(c)
			text = after[len(after[:min(len(after), 10)])-len(rest):]
			continue
		}
		b.WriteByte('&')
		text = after
	}
}

func entity(name string) (c rune, known bool) {
	switch name {
	case "amp":
		return '&', true
	case "lt":
		return '<', true
	case "gt":
		return '>', true
	case "quot":
		return '"', true
	case "apos":
		return '\'', true
	}
	number, ok := strings.CutPrefix(name, "#")
	if !ok {
		return 0, false
	}
	base := 10
	if hex, ok := strings.CutPrefix(number, "x"); ok {
		number, base = hex, 16
	}
	n, err := strconv.ParseUint(number, base, 31)
	return rune(n), err == nil && utf8.ValidRune(rune(n))
}

// element returns the name of a tag without its namespace, and its attributes.
func element(tag []byte) (name string, attributes []byte) {
	i := bytes.IndexAny(tag, " \t\r\n/")
	if i < 0 {
		i = len(tag)
	}
	name = string(tag[:min(i, 64)])
	return name[strings.IndexByte(name, ':')+1:], tag[i:]
}

// attribute returns the value of an attribute, with the entities expanded that
// every document has.
func attribute(attributes []byte, name string) string {
	for rest := string(attributes); ; {
		key, after, ok := strings.Cut(rest, "=")
		after = strings.TrimLeft(after, " \t\r\n")
		if !ok || after == "" || after[0] != '"' && after[0] != '\'' {
			return ""
		}
		value, next, _ := strings.Cut(after[1:], after[:1])
		if strings.TrimSpace(key) == name {
			return unescape(value)
		}
		rest = next
	}
}
