package metric

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"text/template"
	"text/template/parse"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

// maxQuery bounds a query before and after its placeholders are filled in, in bytes.
const maxQuery = 64 << 10

// values are what the placeholders of a query stand for.
type values struct {
	name, namespace, target, service, ingress, route, interval string
	variables                                                  map[string]string
}

// valuesOf returns those of a metric of a canary.
func valuesOf(c *rollout.Canary, m rollout.Metric) values {
	target := c.Spec.TargetRef.Name
	return values{
		name:      c.Metadata.Name,
		namespace: namespaceOf(c.Metadata),
		target:    target,
		service:   cmp.Or(c.Spec.Service.Name, target),
		ingress:   cmp.Or(c.Spec.IngressRef.Name, target),
		route:     cmp.Or(c.Spec.RouteRef.Name, target),
		interval:  span(time.Duration(m.Interval)),
		variables: m.TemplateVariables,
	}
}

func namespaceOf(m rollout.Metadata) string { return cmp.Or(m.Namespace, rollout.DefaultNamespace) }

// span writes a time span as Prometheus does, one minute when there is none.
func span(d time.Duration) string {
	if d <= 0 {
		d = time.Minute
	}
	var b strings.Builder
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if n := d / unit.of; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, unit.name)
			d %= unit.of
		}
	}
	return cmp.Or(b.String(), "1ms")
}

// functions returns what may stand in placeholders, beside [operators]. Each
// value goes through escape.
func (v values) functions(escape func(string) string) template.FuncMap {
	variables := make(map[string]string, len(v.variables))
	for key, value := range v.variables {
		variables[key] = escape(value)
	}
	value := func(s string) func() string { return func() string { return escape(s) } }
	return template.FuncMap{
		"name":      value(v.name),
		"namespace": value(v.namespace),
		"target":    value(v.target),
		"service":   value(v.service),
		"ingress":   value(v.ingress),
		"route":     value(v.route),
		"interval":  value(v.interval),
		"variables": func() map[string]string { return variables },
		"index": func(of map[string]string, key string) (string, error) {
			s, ok := of[key]
			if !ok {
				return "", fmt.Errorf("the metric has no templateVariables.%s", key)
			}
			return s, nil
		},
	}
}

// operators are the functions of text/template that a query may use: those
// whose results are not longer than what they are made of.
var operators = map[string]bool{"and": true, "or": true, "not": true, "eq": true, "ne": true}

func verbatim(s string) string { return s }

// checkQuery judges a query that must not be empty.
func checkQuery(text string) error {
	if strings.TrimSpace(text) == "" {
		return errors.New("is required")
	}
	_, err := parseQuery(text)
	return err
}

// parseQuery reads the template of a query.
func parseQuery(text string) (*template.Template, error) {
	if len(text) > maxQuery {
		return nil, fmt.Errorf("is longer than %d KiB", maxQuery>>10)
	}
	functions := values{}.functions(verbatim)
	t, err := template.New("line").Option("missingkey=error").Funcs(functions).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", strings.TrimPrefix(err.Error(), "template: "), hint)
	}
	if len(t.Templates()) > 1 || t.Tree == nil && strings.Contains(text, "{{") {
		return t, fmt.Errorf("define and block are not for queries: %s", hint)
	}
	if t.Tree == nil { // nothing but space
		return t, nil
	}
	return t, (&grammar{t.Tree, functions}).node(t.Root)
}

const hint = "placeholders are name, namespace, target, service, ingress, route, interval and variables"

// render fills in the placeholders of a query. Each value goes through escape.
func render(text string, v values, escape func(string) string) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	t, err := parseQuery(text)
	if err != nil {
		return "", err
	}
	var b bounded
	if err := t.Funcs(v.functions(escape)).Execute(&b, nil); err != nil {
		return "", errors.New(strings.TrimPrefix(err.Error(), "template: "))
	}
	return b.String(), nil
}

// bounded keeps at most maxQuery bytes.
type bounded struct{ strings.Builder }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxQuery {
		return 0, tooLong()
	}
	return b.Builder.Write(p)
}

func tooLong() error { return fmt.Errorf("the query becomes longer than %d KiB", maxQuery>>10) }

// A grammar says what a query may hold: nothing that repeats, and nothing that
// makes long texts of short ones.
type grammar struct {
	tree      *parse.Tree
	functions template.FuncMap
}

// node judges n and what is in it.
func (g *grammar) node(n parse.Node) error {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		return each(n.Nodes, g.node)
	case *parse.ActionNode:
		return g.pipe(n.Pipe)
	case *parse.IfNode:
		return errors.Join(g.pipe(n.Pipe), g.node(n.List), g.node(n.ElseList))
	case *parse.PipeNode:
		return g.pipe(n)
	case *parse.ChainNode:
		if isCall(n.Node, "variables") {
			return nil
		}
		return g.node(n.Node)
	case *parse.IdentifierNode:
		if g.functions[n.Ident] == nil && !operators[n.Ident] || n.Ident == "variables" { // all of them are no text
			return g.refuse(n)
		}
		return nil
	case *parse.TextNode, *parse.CommentNode, *parse.StringNode, *parse.NumberNode, *parse.BoolNode:
		return nil
	}
	return g.refuse(n)
}

func (g *grammar) pipe(p *parse.PipeNode) error {
	if len(p.Decl) > 0 {
		return g.refuse(p)
	}
	return each(p.Cmds, func(c *parse.CommandNode) error {
		if args := c.Args; len(args) > 2 && isCall(args[0], "index") && isCall(args[1], "variables") {
			return each(args[2:], g.node)
		}
		return each(c.Args, g.node)
	})
}

// isCall reports whether n calls a function without arguments.
func isCall(n parse.Node, function string) bool {
	name, ok := n.(*parse.IdentifierNode)
	return ok && name.Ident == function
}

func (g *grammar) refuse(n parse.Node) error {
	at, what := g.tree.ErrorContext(n)
	return fmt.Errorf("%s: %s is not for queries: %s", at, what, hint)
}

// each returns the first error of f.
func each[T any](all []T, f func(T) error) error {
	for _, one := range all {
		if err := f(one); err != nil {
			return err
		}
	}
	return nil
}
