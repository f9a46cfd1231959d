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

// notServed is a version older than the supported ones.
const notServed = "v1beta1"

// A kind is one row of the table of kinds.
type kind struct {
	name      string       // the specification's spelling
	reference string       // the reference's spelling
	short     []string     // other names on command lines, in lower case: the first is the short name in a cluster, or the last if the reference names the kind differently
	group     string       // the only group of the kind; "" for [Group] and [ReferenceGroup]
	only      string       // the only version of the kind; "" for v1 and v1beta2
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

// kindBySpelling finds a kind by either of its exact spellings.
func kindBySpelling(name string) *kind {
	for i := range kinds {
		if kinds[i].name == name || kinds[i].reference == name {
			return &kinds[i]
		}
	}
	return nil
}

// objectKind returns the kind of obj, or nil if obj is of a type of another package.
func objectKind(obj Object) *kind {
	for i := range kinds {
		if reflect.TypeOf(obj) == reflect.PointerTo(kinds[i].object) {
			return &kinds[i]
		}
	}
	return nil
}

func (k *kind) make() Object { return reflect.New(k.object).Interface().(Object) }

// exists reports whether the kind exists in the version.
func (k *kind) exists(version string) bool {
	if k.only != "" {
		return version == k.only
	}
	return version == V1 || version == V1Beta2
}

// apiVersion returns the apiVersion of a document of the kind: in group, if the kind exists there.
func (k *kind) apiVersion(group string) string {
	return cmp.Or(k.group, group) + "/" + cmp.Or(k.only, V1)
}

// kindByName finds a kind by a name that people use: in any case, a short name or a plural.
func kindByName(name string) *kind {
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

// ParseKind returns the specification's spelling of the kind name, which may be in any form that
// [Set.Find] accepts: in any case, in the plural, in the reference's spelling or as a short name.
// known is false if there is no such kind.
func ParseKind(name string) (kind string, known bool) {
	k := kindByName(name)
	if k == nil {
		return "", false
	}
	return k.name, true
}

// Spellings returns the spellings of a kind in documents of both API groups, that of the
// specification first, or nil if there is no such kind.
func Spellings(name string) []string {
	k := kindBySpelling(name)
	if k == nil {
		return nil
	}
	return slices.Compact([]string{k.name, k.reference})
}

// A Kind has the names of a kind in a group.
type Kind struct {
	Name     string   // the specification's spelling, which this package uses
	Spelling string   // in documents of the group
	Plural   string   // in lower case
	Short    []string // other names
	Versions []string // newest first
}

// Kinds returns the kinds of a group.
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

// spell returns the spelling of the kind in documents of group.
func (k *kind) spell(group string) string {
	if group == ReferenceGroup || group == GeneratorGroup {
		return k.reference
	}
	return k.name
}

// kindOf returns the kind name, which the object of h refers to, in the spelling of the object's
// document. It returns an unknown kind unchanged.
func (h *Header) kindOf(name string) string {
	k, ownKind := kindBySpelling(name), kindBySpelling(h.Kind)
	switch {
	case k == nil:
		return name
	case ownKind != nil && ownKind.name != ownKind.reference && h.spelling() == ownKind.reference:
		return k.reference
	}
	return k.spell(h.Group())
}

// spelling returns the kind as spelled in the document of h, or else in its group.
func (h *Header) spelling() string {
	if k := kindBySpelling(h.Kind); h.spelled == "" && k != nil {
		return k.spell(h.Group())
	}
	return cmp.Or(h.spelled, h.Kind)
}

// New returns an empty object with the name of ref, or nil if there is no such kind.
func New(ref Reference) Object {
	k := kindBySpelling(ref.Kind)
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

// Default fills in the defaults of an API server: the namespace, timeout 60s, provider generic,
// verify.mode HEAD, verify.provider cosign, the chart's version "*" and strategy ChartVersion, the
// repository's type default, and the interval of a PkgRepository, 1m. An object without apiVersion
// gets v1 of [Group]. Kinds are changed to the specification's spelling. Default does not write to
// an object that already has its defaults.
func Default(obj Object) {
	head := obj.Head()
	setDefault(&head.Metadata.Namespace, DefaultNamespace)
	k := objectKind(obj)
	if k == nil {
		return
	}
	setDefault(&head.Kind, k.name)
	setDefault(&head.APIVersion, k.apiVersion(Group))
	canonicalizeKind(&head.Kind)
	switch obj := obj.(type) {
	case *GitRepository:
		for i := range obj.Spec.Include {
			canonicalizeKind(&obj.Spec.Include[i].Repository.Kind)
		}
	case *PkgChart:
		canonicalizeKind(&obj.Spec.SourceRef.Kind)
	case *ArtifactGenerator:
		for i := range obj.Spec.Sources {
			canonicalizeKind(&obj.Spec.Sources[i].Kind)
		}
	}
	for _, facts := range tables[k.name] {
		document.Fill(obj, facts)
	}
}

// Unsuspend clears spec.suspend of obj. It does not change an ArtifactGenerator, which an
// annotation suspends.
func Unsuspend(obj Object) {
	if e, is := obj.(*ExternalArtifact); is && e.Composed != nil {
		e.Composed = clone(e.Composed) // copies of obj share it
		e.Composed.Suspend = false
	} else if suspend := specField(obj, "Suspend"); suspend.Kind() == reflect.Bool {
		suspend.SetBool(false)
	}
}

// setDefault sets field to value if it is empty.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// canonicalizeKind changes a kind to the specification's spelling. If there is nothing to change, it
// writes nothing, because other goroutines may be reading the object.
func canonicalizeKind(kind *string) {
	if k := kindBySpelling(*kind); k != nil && k.name != *kind {
		*kind = k.name
	}
}

// Find returns the objects that match ref: KIND/NAMESPACE/NAME, or KIND/NAME in any namespace. The
// kind may be written in any case, in the plural, in the reference's spelling or as a short name:
// gitrepo, hc, ocirepo. The error wraps [fs.ErrNotExist] if there is no such object.
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

// ParseReference parses a reference as users write it: KIND, KIND/NAME or KIND/NAMESPACE/NAME, with
// the kind as in [Set.Find]. Missing parts are empty in the result.
func ParseReference(text string) (Reference, error) {
	parts := strings.Split(text, "/")
	if len(parts) > 3 || slices.Contains(parts, "") {
		return Reference{}, fmt.Errorf("%s names no object: write KIND/NAME or KIND/NAMESPACE/NAME", quote(text))
	}
	k := kindByName(parts[0])
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

// Selects reports whether other matches r; an empty part of r matches anything.
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
