package source

import (
	"strings"

	"github.com/headgate-io/headgate/internal/document"
)

// versions is a set of API versions.
type versions uint8

const (
	inV1 versions = 1 << iota
	inV1Beta2

	inBoth     = inV1 | inV1Beta2
	inNone     = versions(0)
	notServed  = "v1beta1"
	listSuffix = "List"
)

// versionSet returns the set that holds the named version only.
func versionSet(name string) versions {
	switch name {
	case V1:
		return inV1
	case V1Beta2:
		return inV1Beta2
	}
	return inNone
}

// A kind is one row of the table of kinds.
type kind struct {
	name      string   // the specification's spelling
	reference string   // the reference's spelling
	short     []string // other names on command lines, in lower case; plurals need none
	in        versions
	make      func() admitted
	words     Words
}

// kinds is the table of kinds; it never changes.
var kinds = []kind{
	{
		name: "Bucket", reference: "Bucket", in: inBoth,
		make:  func() admitted { return new(Bucket) },
		words: Words{Latest: "latest.tar.gz", Stored: "stored artifact: revision '%s'", Failed: "BucketOperationFailed"},
	},
	{
		name: "GitRepository", reference: "GitRepository", short: []string{"gitrepo", "git"}, in: inBoth,
		make:  func() admitted { return new(GitRepository) },
		words: Words{Stored: "stored artifact for revision '%s'", Failed: "GitOperationFailed"},
	},
	{
		name: "OCIRepository", reference: "OCIRepository", short: []string{"ocirepo", "oci"}, in: inBoth,
		make:  func() admitted { return new(OCIRepository) },
		words: Words{Latest: "latest.tar.gz", Stored: "stored artifact for digest '%s'", Failed: "OCIArtifactPullFailed"},
	},
	{
		name: "PkgRepository", reference: "HelmRepository", short: []string{"pkgrepo", "helmrepo"}, in: inBoth,
		make:  func() admitted { return new(PkgRepository) },
		words: Words{Latest: "index.yaml", Stored: "stored artifact: revision '%s'", Failed: "Failed"},
	},
	{
		name: "PkgChart", reference: "HelmChart", short: []string{"chart", "hc"}, in: inBoth,
		make:  func() admitted { return new(PkgChart) },
		words: Words{Latest: "latest.tar.gz", Stored: "pulled chart with version '%s'", Failed: "ChartPullError", Newer: "NewChart"},
	},
	{
		name: "ExternalArtifact", reference: "ExternalArtifact", short: []string{"ea"}, in: inV1,
		make:  func() admitted { return new(ExternalArtifact) },
		words: Words{Stored: "artifact of revision '%s' is published elsewhere", Failed: "Failed"},
	},
}

// spelledKind finds a kind by either of its exact spellings.
func spelledKind(name string) *kind {
	for i := range kinds {
		if kinds[i].name == name || kinds[i].reference == name {
			return &kinds[i]
		}
	}
	return nil
}

// calledKind finds a kind as people call it: any case, short names, plurals.
func calledKind(name string) *kind {
	name = strings.ToLower(name)
	for i := range kinds {
		for _, call := range append([]string{kinds[i].name, kinds[i].reference}, kinds[i].short...) {
			call = strings.ToLower(call)
			if name == call || name == call+"s" || name == strings.TrimSuffix(call, "y")+"ies" {
				return &kinds[i]
			}
		}
	}
	return nil
}

// ParseKind returns the specification's spelling of the kind that people call
// name, as [Set.Find] reads it: in any case, in the plural, in the reference's
// spelling or as a short name. It is false when there is no such kind.
func ParseKind(name string) (kind string, known bool) {
	k := calledKind(name)
	if k == nil {
		return "", false
	}
	return k.name, true
}

// Spellings returns how documents of either API group spell a kind, that of the
// specification first; nothing when there is no such kind.
func Spellings(name string) []string {
	k := spelledKind(name)
	if k == nil {
		return nil
	}
	if k.reference == k.name {
		return []string{k.name}
	}
	return []string{k.name, k.reference}
}

// spell returns the name of the kind as documents of group write it.
func (k *kind) spell(group string) string {
	if group == ReferenceGroup {
		return k.reference
	}
	return k.name
}

// kindOf returns a kind that the object of h refers to in the spelling that its
// document uses; a kind that is not known stays as it is.
func (h *Header) kindOf(name string) string {
	k, own := spelledKind(name), spelledKind(h.Kind)
	switch {
	case k == nil:
		return name
	case own != nil && own.name != own.reference && h.spelling() == own.reference:
		return k.reference
	}
	return k.spell(h.Group())
}

// spelling returns the kind as the document of h spells it, or else as its group does.
func (h *Header) spelling() string {
	if k := spelledKind(h.Kind); h.spelled == "" && k != nil {
		return k.spell(h.Group())
	}
	return fallback(h.spelled, h.Kind)
}

// wordsOf returns the constants of the named kind.
func wordsOf(name string) Words {
	if k := spelledKind(name); k != nil {
		return k.words
	}
	return Words{}
}

// admitted is an [Object] that this package knows how to admit: to fill in,
// to check and to comment on, as an API server does.
type admitted interface {
	Object
	kind() string
	defaults()
	check(*document.Findings)
	advise(*document.Findings)
}

// New returns an object of that name in which nothing else is set, nil when
// there is no such kind.
func New(ref Reference) Object {
	k := spelledKind(ref.Kind)
	if k == nil {
		return nil
	}
	obj := k.make()
	*obj.Head() = Header{APIVersion: Group + "/" + V1, Kind: k.name, Metadata: Metadata{Name: ref.Name, Namespace: ref.Namespace}}
	return obj
}
