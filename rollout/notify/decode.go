package notify

import (
	"errors"
	"io"
	"strings"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/rollout"
)

// kind is what the documents of providers say they are.
const kind = "AlertProvider"

// groups are whose AlertProvider manifests are read, with the version.
var groups = map[string]string{rollout.Group: "v1beta1", rollout.ReferenceGroup: "v1beta1"}

// Decode reads the AlertProvider manifests (flagger.app/v1beta1 or
// rollout.headgate.dev/v1beta1) of a stream of YAML documents or JSON
// values; documents of other kinds are skipped. It is strict: unknown fields and
// values of the wrong type are errors, and so is what [Provider.Check] finds. The
// error joins what is wrong; the providers are those in which nothing is.
// File is the name that errors have.
func Decode(file string, r io.Reader) ([]*Provider, error) {
	s, err := document.Open(file, r)
	if err != nil {
		return nil, err
	}
	var list []*Provider
	seen := make(map[string]bool)
	for o := range s.Objects(wanted) {
		if !wanted(o) {
			continue
		}
		name := o.Name(kind, rollout.DefaultNamespace)
		p, found := decode(s, o)
		switch {
		case len(found.Errors) > 0:
			s.Note(s.Place(found, o.Node, name)...)
		case seen[p.String()]:
			s.Fail(o.Node, name, "there is another of this name: rename one")
		default:
			seen[p.String()] = true
			list = append(list, p)
		}
	}
	return list, s.Err()
}

// wanted reports whether o is a provider, of whatever version.
func wanted(o document.Object) bool { return o.Type == kind && groups[o.Group] != "" }

// decode reads one provider; what is found is not placed yet.
func decode(s *document.Stream, o document.Object) (*Provider, *document.Findings) {
	p, d := &Provider{}, s.Decoder(exceptions)
	d.Decode(o.Node, p, "")
	found := &d.Findings
	if o.Version != groups[o.Group] {
		found.Add("apiVersion", "%s is not known: use %s/%s", document.Quote(o.Version), o.Group, groups[o.Group])
	}
	p.Metadata.Namespace = namespace(p.Metadata.Namespace)
	var names document.Findings
	if err := document.CheckName(p.Metadata.Name); err != nil {
		names.Add("metadata.name", "%w", err)
	}
	if err := document.CheckNamespace(p.Metadata.Namespace); err != nil {
		names.Add("metadata.namespace", "%w", err)
	}
	d.Adopt(&names)
	if len(found.Errors) > 0 {
		return p, found
	}
	for _, defect := range p.defects() {
		found.Note(&document.Error{Field: defect.field, Err: errors.New(defect.rule)})
	}
	return p, found
}

// exceptions: what an API server adds is skipped.
func exceptions(path string) document.Rule {
	return document.Rule{Ignored: path == "status" || strings.HasPrefix(path, "metadata.")}
}
