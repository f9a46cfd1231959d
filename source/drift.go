package source

import (
	"slices"
	"strings"

	"github.com/headgate-io/headgate/artifact"
)

// A difference is something that shapes an artifact, and whether it is another
// than the published artifact was made of.
type difference struct {
	what string
	is   bool
}

// drift names the differences there are, for example "spec.ignore, spec.include".
func drift(all ...difference) string {
	var names []string
	for _, d := range all {
		if d.is {
			names = append(names, d.what)
		}
	}
	return strings.Join(names, ", ")
}

// sameText reports whether two optional strings are equal; none and empty are not.
func sameText(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func cloneText(s *string) *string {
	if s == nil {
		return nil
	}
	return new(*s)
}

// sameContent reports whether two lists of artifacts name the same content in the same order.
func sameContent(a, b []artifact.Artifact) bool {
	return slices.EqualFunc(a, b, func(x, y artifact.Artifact) bool {
		return x.Revision == y.Revision && x.Digest == y.Digest
	})
}
