package source

import (
	"fmt"
	"reflect"
	"strings"
)

// object files an object of the kind k, which the document spells as spelled.
func (d *decoding) object(n *node, k *kind, spelled string) {
	obj := k.make()
	version := n.str("apiVersion")
	dec := &strict{types: d.types, kind: k, in: versionSet(version[strings.IndexByte(version, '/')+1:])}
	dec.value(n, reflect.ValueOf(obj).Elem(), place{})
	for _, l := range dec.legacy {
		if l.row.read != nil {
			l.row.read(obj, l.at, l.text)
		}
	}
	head := obj.Head()
	head.spelled = spelled
	Default(obj)
	renewRevisions(obj)

	var rules findings
	check(obj, &rules)
	dec.adopt(&rules)
	name := documentName(n, k.name)
	d.errs = append(d.errs, d.place(dec.errs, n, name)...)
	if len(dec.errs) > 0 || !d.first(n, name) {
		return
	}
	advise(obj, &dec.warnings)
	d.set.Warnings = append(d.set.Warnings, d.place(dec.warnings.errs, n, name)...)
	d.set.Objects = append(d.set.Objects, obj)
}

// first notes where an object is and reports one that was there before.
func (d *decoding) first(n *node, name string) bool {
	here := fmt.Sprintf("%s:%d (document %d)", d.file, n.line, d.number)
	if there, found := d.set.places[name]; found {
		d.fail(n, name, "is in %s already: remove one of the two", there)
		return false
	}
	if d.set.places == nil {
		d.set.places = make(map[string]string)
	}
	d.set.places[name] = here
	return true
}

// lineAt returns the line of the field at path, or of the nearest one around it.
func (n *node) lineAt(path string) int {
	line := n.line
	for n != nil && path != "" {
		var found *field
		for i := range n.fields {
			if name := n.fields[i].name; path == name || below(path, name) {
				found = &n.fields[i]
				break
			}
		}
		if found == nil {
			break
		}
		line, n, path = found.line, found.value, path[len(found.name):]
		for strings.HasPrefix(path, "[") && n.kind == listNode {
			var i int
			if _, err := fmt.Sscanf(path, "[%d]", &i); err != nil || i >= len(n.items) {
				break
			}
			n, path = n.items[i], path[strings.IndexByte(path, ']')+1:]
			line = n.line
		}
		path = strings.TrimPrefix(path, ".")
		if strings.HasPrefix(path, "[") {
			path = strings.TrimSuffix(path[1:], "]")
		}
	}
	return line
}
