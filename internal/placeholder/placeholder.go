// Package placeholder fills in the placeholders of texts in documents and flags, in the
// syntax of text/template. Every text ends, and its length bounds the time and memory that
// it takes: it has if and else, but no loops, variables or further templates, and only
// functions whose results are bounded.
package placeholder

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
)

// Max is the maximum length of a text in bytes, before and after its placeholders are
// filled in.
const Max = 64 << 10

// A Language defines what placeholders may contain.
type Language struct {
	Name      string   // of the texts, for errors, such as "queries"
	Hint      string   // what placeholders may contain, for errors
	Builtin   []string // allowed functions of text/template
	Functions template.FuncMap
	Maps      []string // those of Functions that return maps: {{ f.key }} and {{ index f "key" }}
	Fields    bool     // fields of the data are allowed
}

// ErrTooLong is the error for a text that is longer than [Max].
var ErrTooLong = fmt.Errorf("is longer than %d KiB", Max>>10)

// Parse parses a text. It returns an error if the text contains anything that the language
// does not allow.
func (l *Language) Parse(text string) (*template.Template, error) {
	if len(text) > Max {
		return nil, ErrTooLong
	}
	t, err := template.New("line").Option("missingkey=error").Funcs(l.Functions).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", strings.TrimPrefix(err.Error(), "template: "), l.Hint)
	}
	if len(t.Templates()) > 1 {
		return nil, fmt.Errorf("define and block are not for %s: %s", l.Name, l.Hint)
	}
	if t.Tree == nil { // nothing but space and comments
		return t, nil
	}
	return t, (&grammar{l, t.Tree}).node(t.Root)
}

// Expand fills in the placeholders of a text. functions replace those of the language; nil
// for none.
func (l *Language) Expand(text string, data any, functions template.FuncMap) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	t, err := l.Parse(text)
	if err != nil || t.Tree == nil {
		return "", err
	}
	var out boundedBuilder
	if err := t.Funcs(functions).Execute(&out, data); err != nil {
		return "", errors.New(strings.TrimPrefix(err.Error(), "template: "))
	}
	return out.String(), nil
}

// boundedBuilder keeps at most Max bytes.
type boundedBuilder struct{ strings.Builder }

func (b *boundedBuilder) Write(p []byte) (int, error) {
	if b.Len()+len(p) > Max {
		return 0, fmt.Errorf("the text becomes longer than %d KiB", Max>>10)
	}
	return b.Builder.Write(p)
}

// A grammar checks the parts of one text.
type grammar struct {
	*Language
	tree *parse.Tree
}

func (g *grammar) node(n parse.Node) error {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		return firstError(n.Nodes, g.node)
	case *parse.ActionNode:
		return g.node(n.Pipe)
	case *parse.IfNode:
		return errors.Join(g.node(n.Pipe), g.node(n.List), g.node(n.ElseList))
	case *parse.PipeNode:
		if len(n.Decl) > 0 {
			return g.refuse(n)
		}
		return firstError(n.Cmds, func(c *parse.CommandNode) error {
			if args := c.Args; len(args) > 2 && calls(args[0], "index") && calls(args[1], g.Maps...) {
				return firstError(args[2:], g.node)
			}
			return firstError(c.Args, g.node)
		})
	case *parse.ChainNode:
		if calls(n.Node, g.Maps...) {
			return nil
		}
		return g.node(n.Node)
	case *parse.IdentifierNode:
		if g.Functions[n.Ident] == nil && !slices.Contains(g.Builtin, n.Ident) || slices.Contains(g.Maps, n.Ident) {
			return g.refuse(n)
		}
		return nil
	case *parse.FieldNode:
		if g.Fields {
			return nil
		}
	case *parse.TextNode, *parse.CommentNode, *parse.StringNode, *parse.NumberNode, *parse.BoolNode:
		return nil
	}
	return g.refuse(n)
}

// calls reports whether n calls one of the functions without arguments.
func calls(n parse.Node, functions ...string) bool {
	name, ok := n.(*parse.IdentifierNode)
	return ok && slices.Contains(functions, name.Ident)
}

func (g *grammar) refuse(n parse.Node) error {
	at, what := g.tree.ErrorContext(n)
	return fmt.Errorf("%s: %s is not for %s: %s", at, what, g.Name, g.Hint)
}

// firstError returns the first error of f, or nil.
func firstError[T any](all []T, f func(T) error) error {
	for _, one := range all {
		if err := f(one); err != nil {
			return err
		}
	}
	return nil
}
