package source

import (
	"cmp"
	"io"
	"strings"

	"github.com/headgate-io/headgate/internal/document"
)

// A Set is what streams of documents hold. The zero value is an empty set.
// It is a [Secrets] as well: that of the Secret and ServiceAccount documents.
type Set struct {
	Objects  []Object          // in the order of the documents
	Secrets  map[string]Secret // Secret documents by NAMESPACE/NAME
	Skipped  int               // documents of other kinds
	Others   []Other           // the first 1000 of them, of each stream
	Warnings []error           // deprecated fields, conflicting refs: each a *DocumentError

	places    map[string]spot       // by KIND/NAMESPACE/NAME: where the document is
	accounts  map[string][]string   // by NAMESPACE/NAME: the pull secrets of a ServiceAccount
	defective map[string]*defective // by KIND/NAMESPACE/NAME: what is wrong with a Secret or ServiceAccount
}

// Decode reads the documents of file into s: YAML documents, JSON values, or
// lists (kind List) of either. Objects of the groups [Group] and
// [ReferenceGroup] and v1 Secret and ServiceAccount documents are kept;
// documents of other kinds, and those that are no objects at all, are counted
// in s.Skipped. A document whose apiVersion or kind differs from one of ours in
// two letters, or has no group, is an error: it would be lost without a word.
//
// Objects come out as an API server would hand them out: checked (see
// [Validate]), with defaults filled in (see [Default]) and kinds in the
// specification's spelling. The error joins one *DocumentError for each
// defect, up to 100 of an object and 1000 of the stream; good objects are in s
// all the same.
func (s *Set) Decode(file string, r io.Reader) error {
	stream, err := document.Open(file, r)
	if err != nil {
		return err
	}
	d := &decoding{Stream: stream, set: s}
	for o := range stream.Objects(listed) {
		if o.Group == Group || o.Group == ReferenceGroup {
			d.ours(o)
		} else {
			d.foreign(o)
		}
	}
	s.Skipped += stream.Skipped
	s.Others = append(s.Others, stream.Others...)
	return stream.Err()
}

// decoding is the reading of one stream.
type decoding struct {
	*document.Stream
	set *Set
}

// listed reports whether a list of objects of one kind is read.
func listed(item document.Object) bool {
	if item.Group == Group || item.Group == ReferenceGroup {
		k := spelledKind(item.Type)
		return k != nil && k.in&versionSet(item.Version) != 0
	}
	return item.APIVersion() == "v1" && (item.Type == "Secret" || item.Type == "ServiceAccount")
}

// foreign files an object of another group, if it is one that our objects need.
func (d *decoding) foreign(o document.Object) {
	switch {
	case o.APIVersion() == "v1" && o.Type == "Secret":
		d.secret(o)
	case o.APIVersion() == "v1" && o.Type == "ServiceAccount":
		d.account(o)
	case o.Group == "bitnami.com" && o.Type == "SealedSecret":
		d.sealedSecret(o)
	default:
		if meant := document.Near(o, known); meant != "" {
			d.Fail(o.Node, o.Name(o.Type, DefaultNamespace), "%s %s is not known: did you mean %s?", quote(o.APIVersion()), quote(o.Type), meant)
			return
		}
		d.Other(o)
	}
}

// known are the documents that [Set.Decode] reads.
var known = func() []document.Known {
	ours, theirs := document.Known{Group: Group, Version: V1}, document.Known{Group: ReferenceGroup, Version: V1}
	for _, k := range kinds {
		ours.Kinds, theirs.Kinds = append(ours.Kinds, k.name), append(theirs.Kinds, k.reference)
	}
	return []document.Known{{Version: "v1", Kinds: []string{"Secret", "ServiceAccount"}}, ours, theirs}
}()

// ours files an object of one of the groups of this package.
func (d *decoding) ours(o document.Object) {
	k := cmp.Or(spelledKind(o.Type), spelledKind(strings.TrimSuffix(o.Type, listSuffix)))
	object := o.Name(o.Type, DefaultNamespace)
	switch {
	case k == nil && calledKind(o.Type) != nil:
		d.Fail(o.Node, object, "unknown kind %s: did you mean %s?", quote(o.Type), calledKind(o.Type).spell(o.Group))
	case k == nil:
		d.Fail(o.Node, object, "unknown kind %s of group %s", quote(o.Type), o.Group)
	case o.Version == notServed:
		d.Fail(o.Node, object, "version v1beta1 is no longer read: set apiVersion to %s/v1 and see what validation says", o.Group)
	case k.in&versionSet(o.Version) == 0:
		d.Fail(o.Node, object, "%s does not exist in version %s: set apiVersion to %s/v1", k.spell(o.Group), quote(o.Version), o.Group)
	default:
		d.object(o, k)
	}
}
