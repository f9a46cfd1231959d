package traffic

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/template"
	"text/template/parse"
)

// maxText is how long what a template makes may be, in bytes.
const maxText = 64 << 10

var errTooLong = fmt.Errorf("more than %d bytes", maxText)

// expand executes the template text over v. Besides comparisons, which are
// those of [text/template], it has the functions json, js, html, urlquery and
// print. Nothing in v is to be gone through, so there are no loops, variables
// or templates in it: it ends, and takes no more memory than its length allows.
func expand(text string, v any) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	if len(text) > maxText {
		return "", errTooLong
	}
	t, err := template.New("template").Option("missingkey=error").Funcs(functions).Parse(text)
	if err != nil {
		return "", err
	}
	if len(t.Templates()) > 1 {
		return "", errCrooked
	}
	if t.Tree == nil { // it has nothing but a comment
		return "", nil
	}
	if err := straight(t.Root); err != nil {
		return "", err
	}
	var out bounded
	if err := t.Execute(&out, v); err != nil {
		return "", err
	}
	return out.String(), nil
}

// functions take the place of those whose results have no bound.
var functions = template.FuncMap{
	"json":     asJSON,
	"js":       bound(template.JSEscaper),
	"html":     bound(template.HTMLEscaper),
	"urlquery": bound(template.URLQueryEscaper),
	"print":    bound(fmt.Sprint),
	"println":  bound(fmt.Sprintln),
	"printf": func(...any) (string, error) {
		return "", errors.New("printf is not for these templates: use print")
	},
}

func bound(f func(...any) string) func(...any) (string, error) {
	return func(args ...any) (string, error) {
		s := f(args...)
		if len(s) > maxText {
			return "", errTooLong
		}
		return s, nil
	}
}

func asJSON(v any) (string, error) {
	b, err := json.Marshal(v)
	if len(b) > maxText {
		err = errTooLong
	}
	return string(b), err
}

var errCrooked = errors.New("range, with, define, template, block and variables are not for these templates")

// straight refuses what goes through something, or gives a name to it.
func straight(list *parse.ListNode) error {
	if list == nil {
		return nil
	}
	for _, node := range list.Nodes {
		switch n := node.(type) {
		case *parse.TextNode, *parse.CommentNode:
		case *parse.ActionNode:
			if len(n.Pipe.Decl) > 0 {
				return errCrooked
			}
		case *parse.IfNode:
			if len(n.Pipe.Decl) > 0 {
				return errCrooked
			}
			if err := errors.Join(straight(n.List), straight(n.ElseList)); err != nil {
				return errCrooked
			}
		default:
			return errCrooked
		}
	}
	return nil
}

// A bounded is text of at most maxText bytes.
type bounded struct{ strings.Builder }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxText {
		return 0, errTooLong
	}
	return b.Builder.Write(p)
}
