package metric

import (
	"io"
	"strings"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/rollout"
)

// Decode reads the MetricTemplate documents of a stream of YAML documents or
// JSON values, of the groups [rollout.Group] and [rollout.ReferenceGroup], version v1beta1.
// Documents of other kinds are skipped. The error joins what is wrong, each
// with its place, templates with providers that are not supported and others of the
// same name among that; good templates are returned all the same.
func Decode(file string, r io.Reader) ([]*Template, error) {
	stream, err := document.Open(file, r)
	if err != nil {
		return nil, err
	}
	var templates []*Template
	seen := make(map[string]bool)
	ours := func(o document.Object) bool {
		return o.Type == kind && (o.Group == rollout.Group || o.Group == rollout.ReferenceGroup)
	}
	for o := range stream.Objects(ours) {
		if !ours(o) {
			continue
		}
		if name := o.Name(kind, rollout.DefaultNamespace); o.Version != version {
			stream.Fail(o.Node, name, "version %s is not read: set apiVersion to %s/%s", document.Quote(o.Version), o.Group, version)
		} else if t, found := decode(stream, o); len(found.Errors) > 0 {
			stream.Note(stream.Place(found, o.Node, name)...)
		} else if seen[t.name()] {
			stream.Fail(o.Node, name, "there is another of this name: rename one")
		} else {
			seen[t.name()] = true
			templates = append(templates, t)
		}
	}
	return templates, stream.Err()
}

// decode reads one template.
func decode(stream *document.Stream, o document.Object) (*Template, *document.Findings) {
	t := new(Template)
	d := stream.Decoder(rules)
	d.Decode(o.Node, t, "")
	var broken document.Findings
	for _, f := range t.findings() {
		broken.Add(f.field, "%w", f.err)
	}
	d.Adopt(&broken)
	return t, &d.Findings
}

// rules are the fields that the owner of a cluster adds.
func rules(path string) document.Rule {
	return document.Rule{Ignored: path == "status" || strings.HasPrefix(path, "metadata.")}
}
