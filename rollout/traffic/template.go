package traffic

import (
	"encoding/json"
	"fmt"
	"text/template"

	"github.com/headgate-io/headgate/internal/placeholder"
)

// maxText is how long what a template makes may be, in bytes.
const maxText = placeholder.Max

// templates are those of operations, over [Values]. Their functions take the place of those
// whose results have no bound.
var templates = placeholder.Language{
	Name: "these templates", Hint: "there are the fields of Values, if, comparisons, json, js, html, urlquery and print", Fields: true,
	Builtin: []string{"and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len", "index", "slice"},
	Functions: template.FuncMap{
		"json": func(v any) (string, error) {
			b, err := json.Marshal(v)
			return bound(string(b), err)
		},
		"js":       func(args ...any) (string, error) { return bound(template.JSEscaper(args...), nil) },
		"html":     func(args ...any) (string, error) { return bound(template.HTMLEscaper(args...), nil) },
		"urlquery": func(args ...any) (string, error) { return bound(template.URLQueryEscaper(args...), nil) },
		"print":    func(args ...any) (string, error) { return bound(fmt.Sprint(args...), nil) },
		"println":  func(args ...any) (string, error) { return bound(fmt.Sprintln(args...), nil) },
	},
}

func bound(s string, err error) (string, error) {
	if len(s) > maxText {
		return "", placeholder.ErrTooLong
	}
	return s, err
}

func expand(text string, v any) (string, error) { return templates.Expand(text, v, nil) }
