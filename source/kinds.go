package source

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/document"
)

// notServed is a version that is older than those that are read.
const notServed = "v1beta1"

// A kind is one row of the table of kinds.
type kind struct {
	name      string       // the specification's spelling
	reference string       // the reference's spelling
	short     []string     // other names on command lines, in lower case: the first is that in a cluster, the last where the reference's kind is another
	group     string       // the group that alone has it; "" for [Group] and [ReferenceGroup]
	only      string       // the version that alone has it; "" for v1 and v1beta2
	object    reflect.Type // a struct
	words     Words
}

// kinds is the table of kinds; it never changes.
var kinds = []kind{
	{
		name: "Bucket", reference: "Bucket",
		object: reflect.TypeFor[Bucket](),
		words:  Words{Latest: "latest.tar.gz", Stored: "stored artifact: revision '%s'", Failed: "BucketOperationFailed"},
	},
	{
		name: "GitRepository", reference: "GitRepository", short: []string{"gitrepo", "git"},
		object: reflect.TypeFor[GitRepository](),
		words:  Words{Stored: "stored artifact for revision '%s'", Failed: "GitOperationFailed"},
	},
	{
		name: "OCIRepository", reference: "OCIRepository", short: []string{"ocirepo", "oci"},
		object: reflect.TypeFor[OCIRepository](),
		words:  Words{Latest: "latest.tar.gz", Stored: "stored artifact for digest '%s'", Failed: "OCIArtifactPullFailed"},
	},
	{
		name: "PkgRepository", reference: "HelmRepository", short: []string{"pkgrepo", "helmrepo"},
		object: reflect.TypeFor[PkgRepository](),
		words:  Words{Latest: "index.yaml", Stored: "stored artifact: revision '%s'", Failed: "Failed"},
	},
	{
		name: "PkgChart", reference: "HelmChart", short: []string{"chart", "hc"},
		object: reflect.TypeFor[PkgChart](),
		words:  Words{Latest: "latest.tar.gz", Stored: "pulled chart with version '%s'", Failed: "ChartPullError", Newer: "NewChart"},
	},
	{
		name: "ExternalArtifact", reference: "ExternalArtifact", short: []string{"ea"}, only: V1,
		object: reflect.TypeFor[ExternalArtifact](),
		words:  Words{Stored: "artifact of revision '%s' is published elsewhere", Failed: "Failed"},
	},
	{
		name: "ArtifactGenerator", reference: "ArtifactGenerator", short: []string{"ag"}, group: GeneratorGroup, only: GeneratorVersion,
		object: reflect.TypeFor[ArtifactGenerator](),
		words:  Words{Failed: "ReconciliationFailed"},
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

// objectKind returns the kind of obj, nil if it is of another package.
func objectKind(obj Object) *kind {
	for i := range kinds {
		if reflect.TypeOf(obj) == reflect.PointerTo(kinds[i].object) {
			return &kinds[i]
		}
	}
	return nil
}

func (k *kind) make() Object { return reflect.New(k.object).Interface().(Object) }

// exists reports whether there is such a version of the kind.
func (k *kind) exists(version string) bool {
	if k.only != "" {
		return version == k.only
	}
	return version == V1 || version == V1Beta2
}

// apiVersion returns that of a document of the kind: of group, if the kind is in it.
func (k *kind) apiVersion(group string) string {
	return cmp.Or(k.group, group) + "/" + cmp.Or(k.only, V1)
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
	return slices.Compact([]string{k.name, k.reference})
}

// A Kind says what a kind is called in a group.
type Kind struct {
	Name     string   // the specification's spelling, by which this package knows it
	Spelling string   // that of the group
	Plural   string   // in lower case
	Short    []string // other names
	Versions []string // the newest first
}

// Kinds returns the kinds as a group has them.
func Kinds(group string) (all []Kind) {
	for i := range kinds {
		k := &kinds[i]
		if (k.group != "" || group == GeneratorGroup) && k.group != group {
			continue
		}
		info := Kind{Name: k.name, Spelling: k.spell(group), Versions: slices.DeleteFunc([]string{V1, V1Beta2, GeneratorVersion}, func(v string) bool { return !k.exists(v) })}
		if info.Plural = strings.ToLower(info.Spelling) + "s"; strings.HasSuffix(info.Plural, "ys") {
			info.Plural = strings.TrimSuffix(info.Plural, "ys") + "ies"
		}
		if last := len(k.short) - 1; info.Spelling != k.name {
			info.Short = k.short[last:]
		} else if last >= 0 {
			info.Short = k.short[:1]
		}
		all = append(all, info)
	}
	return all
}

// spell returns the name of the kind as documents of group write it.
func (k *kind) spell(group string) string {
	if group == ReferenceGroup || group == GeneratorGroup {
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
	return cmp.Or(h.spelled, h.Kind)
}

// New returns an object of that name in which nothing else is set, nil when
// there is no such kind.
func New(ref Reference) Object {
	k := spelledKind(ref.Kind)
	if k == nil {
		return nil
	}
	obj := k.make()
	*obj.Head() = Header{APIVersion: k.apiVersion(Group), Kind: k.name, Metadata: Metadata{Name: ref.Name, Namespace: ref.Namespace}}
	return obj
}

const (
	defaultTimeout     = Duration(60 * time.Second)
	repositoryInterval = Duration(time.Minute)
)

// Default fills in what an API server would: the namespace, timeout 60s,
// provider generic, verify.mode HEAD, verify.provider cosign, the chart's
// version "*" and strategy ChartVersion, the repository's type default; and
// the interval of a PkgRepository, 1m. An object without apiVersion gets v1 of
// [Group]. The kinds of the reference become the specification's. An object that
// has its defaults is not written to.
func Default(obj Object) {
	head := obj.Head()
	or(&head.Metadata.Namespace, DefaultNamespace)
	k := objectKind(obj)
	if k == nil {
		return
	}
	or(&head.Kind, k.name)
	or(&head.APIVersion, k.apiVersion(Group))
	canonical(&head.Kind)
	switch obj := obj.(type) {
	case *GitRepository:
		for i := range obj.Spec.Include {
			canonical(&obj.Spec.Include[i].Repository.Kind)
		}
	case *PkgChart:
		canonical(&obj.Spec.SourceRef.Kind)
	case *ArtifactGenerator:
		for i := range obj.Spec.Sources {
			canonical(&obj.Spec.Sources[i].Kind)
		}
	}
	for _, facts := range tables[k.name] {
		document.Fill(obj, facts)
	}
}

// Unsuspend clears spec.suspend of obj. An ArtifactGenerator stays as it is: an annotation suspends it.
func Unsuspend(obj Object) {
	if e, is := obj.(*ExternalArtifact); is && e.Composed != nil {
		e.Composed = clone(e.Composed) // copies of obj share it
		e.Composed.Suspend = false
	} else if suspend := specField(obj, "Suspend"); suspend.Kind() == reflect.Bool {
		suspend.SetBool(false)
	}
}

// or sets an empty field.
func or[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// canonical replaces a spelling of the reference. It writes nothing if there is
// nothing to replace: others may read the object.
func canonical(kind *string) {
	if k := spelledKind(*kind); k != nil && k.name != *kind {
		*kind = k.name
	}
}

// Find returns the objects that ref names: KIND/NAMESPACE/NAME, or KIND/NAME in
// any namespace. The kind may be written in any case, in the plural, in the
// reference's spelling or as a short name: gitrepo, hc, ocirepo. The error
// wraps [fs.ErrNotExist] when there is no such object.
func (s *Set) Find(ref string) ([]Object, error) {
	named, err := ParseReference(ref)
	if err != nil {
		return nil, err
	}
	if named.Name == "" {
		return nil, fmt.Errorf("%s names no object: write KIND/NAME or KIND/NAMESPACE/NAME", quote(ref))
	}
	var found []Object
	var alike []string // of its kind
	for _, obj := range s.Objects {
		at := ReferenceTo(obj)
		if named.Selects(at) {
			found = append(found, obj)
		}
		if at.Kind == named.Kind {
			alike = append(alike, obj.Head().String())
		}
	}
	switch {
	case len(found) > 0:
		return found, nil
	case len(alike) == 0:
		return nil, fmt.Errorf("%s: %w, nor any other of its kind", quote(ref), ErrNoObject)
	case len(alike) > 5:
		alike = append(alike[:5], "...")
	}
	return nil, fmt.Errorf("%s: %w among %s", quote(ref), ErrNoObject, strings.Join(alike, ", "))
}

// ParseReference reads how people call objects: KIND, KIND/NAME or
// KIND/NAMESPACE/NAME, the kind as in [Set.Find]. What the text does not say is
// empty in the reference.
func ParseReference(text string) (Reference, error) {
	parts := strings.Split(text, "/")
	if len(parts) > 3 || slices.Contains(parts, "") {
		return Reference{}, fmt.Errorf("%s names no object: write KIND/NAME or KIND/NAMESPACE/NAME", quote(text))
	}
	k := calledKind(parts[0])
	if k == nil {
		return Reference{}, fmt.Errorf("unknown kind %s: use one of %s", quote(parts[0]), kindNames())
	}
	r := Reference{Kind: k.name}
	if len(parts) > 1 {
		r.Name = parts[len(parts)-1]
	}
	if len(parts) == 3 {
		r.Namespace = parts[1]
	}
	return r, nil
}

// Selects reports whether what r says is true of other; an empty part of r says nothing.
func (r Reference) Selects(other Reference) bool {
	return (r.Kind == "" || r.Kind == other.Kind) && (r.Namespace == "" || r.Namespace == other.Namespace) && (r.Name == "" || r.Name == other.Name)
}

func kindNames() string {
	var names []string
	for i := range kinds {
		names = append(names, kinds[i].name)
	}
	return strings.Join(names, ", ")
}
