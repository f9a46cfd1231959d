package document

import (
	"io"
	"slices"
	"strings"
)

// A Manifest is a kind of objects that are read apart from those around them.
type Manifest struct {
	Kind      string
	Groups    []string
	Version   string
	Namespace string // of objects that have none
}

// DecodeAll reads the objects of a kind among the documents of a stream, those in lists among them. It is
// strict, but for the status and what an API server adds to the metadata. Check adds what
// else is wrong with an object. The error joins what is wrong, an object of a name that was
// there before among that; the other objects are returned all the same.
func DecodeAll[T any](file string, r io.Reader, k Manifest, check func(*T, *Findings)) ([]*T, error) {
	s, err := Open(file, r)
	if err != nil {
		return nil, err
	}
	ours := func(o Object) bool { return o.Type == k.Kind && slices.Contains(k.Groups, o.Group) }
	var all []*T
	seen := make(map[string]bool)
	for o := range s.Objects(ours) {
		if !ours(o) {
			continue
		}
		name := o.Name(k.Kind, k.Namespace)
		if o.Version != k.Version {
			s.Fail(o.Node, name, "version %s is not read: set apiVersion to %s/%s", Quote(o.Version), o.Group, k.Version)
			continue
		}
		v, d, broken := new(T), s.Decoder(fromServer), Findings{}
		d.Decode(o.Node, v, "")
		check(v, &broken)
		d.Adopt(&broken)
		switch {
		case len(d.Errors) > 0:
			s.Note(s.Place(&d.Findings, o.Node, name)...)
		case seen[name]:
			s.Fail(o.Node, name, "there is another of this name: rename one")
		default:
			seen[name] = true
			all = append(all, v)
		}
	}
	return all, s.Err()
}

// fromServer ignores what an API server adds.
func fromServer(path string) Rule {
	return Rule{Ignored: path == "status" || strings.HasPrefix(path, "metadata.")}
}
