package source

import "github.com/headgate-io/headgate/internal/document"

// object files an object of the kind k.
func (d *decoding) object(o document.Object, k *kind) {
	obj := k.make()
	dec := d.Decoder(k.rules(versionSet(o.Version)))
	dec.Decode(o.Node, obj, "")
	for _, r := range dec.Retired {
		if row := rowOf(k.name, r.Path); row.read != nil {
			row.read(obj, r.Field, r.Value.Text)
		}
	}
	head := obj.Head()
	head.spelled = o.Type
	Default(obj)
	renewRevisions(obj)

	var rules document.Findings
	check(obj, &rules)
	dec.Adopt(&rules)
	name := o.Name(o.Type, DefaultNamespace)
	d.Note(d.Place(&dec.Findings, o.Node, name)...)
	if len(dec.Errors) > 0 || !d.first(o.Node, o.Name(k.name, DefaultNamespace), name) {
		return
	}
	advise(obj, &dec.Warnings)
	d.set.Warnings = append(d.set.Warnings, d.Warn(&dec.Warnings, o.Node, name)...)
	d.set.Objects = append(d.set.Objects, obj)
}

// first notes where an object is and reports one that was there before. The error
// calls it shown.
func (d *decoding) first(n *document.Node, name, shown string) bool {
	if err := d.set.file(name, shown, spot{d.File(), n.Line, d.Number()}); err != nil {
		d.Note(err)
		return false
	}
	return true
}
