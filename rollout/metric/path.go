package metric

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A path leads to a value in a JSON document: .key for a field of an object,
// ["key"] for one whose name has other characters than letters, digits, _ and
// -, [0] for an item of a list. The empty path is the document.
type path []any // string or int

// parsePath reads a path. The dot at its beginning may be left out; "." alone
// is the empty path.
func parsePath(text string) (path, error) {
	text = strings.TrimSpace(text)
	if text == "." || text == "" {
		return nil, nil
	}
	if text[0] != '.' && text[0] != '[' {
		text = "." + text
	}
	var p path
	for rest := text; rest != ""; {
		step, n, err := parseStep(rest)
		if err != nil {
			return nil, fmt.Errorf("is no path at %s: %w: write it as .data.items[0].value", strconv.Quote(rest), err)
		}
		p, rest = append(p, step), rest[n:]
	}
	return p, nil
}

// parseStep reads the first step of text and how long it is.
func parseStep(text string) (step any, n int, err error) {
	switch {
	case strings.HasPrefix(text, `["`):
		quoted, err := strconv.QuotedPrefix(text[1:])
		if err != nil || !strings.HasPrefix(text[1+len(quoted):], "]") {
			return nil, 0, errors.New(`a name in brackets ends with "]`)
		}
		name, err := strconv.Unquote(quoted)
		return name, len(quoted) + 2, err
	case text[0] == '[':
		digits, _, found := strings.Cut(text[1:], "]")
		i, err := strconv.ParseUint(digits, 10, 31)
		if err != nil || !found {
			return nil, 0, errors.New("an index is a number in brackets")
		}
		return int(i), len(digits) + 2, nil
	case text[0] == '.':
		name := text[1:]
		if end := strings.IndexFunc(name, notInName); end >= 0 {
			name = name[:end]
		}
		if name == "" {
			return nil, 0, errors.New("a name is missing")
		}
		return name, 1 + len(name), nil
	}
	return nil, 0, errors.New(`names of other characters stand in ["…"]`)
}

func notInName(r rune) bool {
	return !(r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z')
}

// String writes the path as [parsePath] reads it.
func (p path) String() string {
	if len(p) == 0 {
		return "."
	}
	var b strings.Builder
	for _, step := range p {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", step)
		case string:
			if step == "" || strings.ContainsFunc(step, notInName) {
				fmt.Fprintf(&b, "[%q]", step)
			} else {
				b.WriteString("." + step)
			}
		}
	}
	return b.String()
}

// in returns the value at p in a document: nil for null and for an item behind
// the end of its list. A field that is not there is an error.
func (p path) in(doc any) (any, error) {
	for i, step := range p {
		switch step := step.(type) {
		case int:
			list, ok := doc.([]any)
			switch {
			case !ok && doc != nil:
				return nil, fmt.Errorf("there is %s at %s, not a list", kindOf(doc), p[:i])
			case step >= len(list):
				return nil, nil
			}
			doc = list[step]
		case string:
			object, ok := doc.(map[string]any)
			if !ok && doc != nil {
				return nil, fmt.Errorf("there is %s at %s, not an object", kindOf(doc), p[:i])
			}
			if doc, ok = object[step]; !ok && object != nil {
				return nil, fmt.Errorf("there is no %s in the answer", p[:i+1])
			}
		}
		if doc == nil {
			return nil, nil
		}
	}
	return doc, nil
}

// checkPathQuery judges the query of a provider of type http. What stands for
// placeholders is not known yet.
func checkPathQuery(text string) error {
	if err := parseQuery(text); err != nil || strings.Contains(text, "{{") {
		return err
	}
	_, err := parsePath(text)
	return err
}
