package source

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/redact"
)

// The supported API groups: headgate's own and that of the reference implementation.
const (
	Group          = "source.headgate.dev"
	ReferenceGroup = "source.toolkit.fluxcd.io"
)

// The versions of both groups (specification, "Versioning").
const (
	V1      = "v1"
	V1Beta2 = "v1beta2"
)

// DefaultNamespace is the namespace of objects without one.
const DefaultNamespace = "default"

// Header is the common beginning of all documents (specification, "Common envelope").
type Header struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"` // the specification's spelling: PkgChart, not HelmChart
	Metadata   Metadata `json:"metadata"`

	spelled string // kind as spelled in the document, "" for the spelling of its group
}

// Head returns h, so that kinds that embed Header implement [Object].
func (h *Header) Head() *Header { return h }

// Group returns the API group of apiVersion.
func (h *Header) Group() string {
	return h.APIVersion[:max(0, strings.IndexByte(h.APIVersion, '/'))]
}

// Version returns the version of apiVersion, for example v1.
func (h *Header) Version() string {
	return h.APIVersion[strings.IndexByte(h.APIVersion, '/')+1:]
}

// String returns KIND/NAMESPACE/NAME with the kind as spelled in the object's document, so that
// messages use the names that users wrote.
func (h *Header) String() string {
	return h.spelling() + "/" + h.Metadata.namespace() + "/" + h.Metadata.Name
}

// Spell returns KIND/NAMESPACE/NAME of an object that h's object refers to, with the kind in the
// spelling of h's document.
func (h *Header) Spell(ref Reference) string {
	ref.Kind = h.kindOf(ref.Kind)
	return ref.String()
}

// Metadata is the standard object metadata. Headgate uses name, namespace, generation, labels and
// annotations. It keeps the other fields, so that documents dumped from a cluster survive a round
// trip.
type Metadata struct {
	Name                       string            `json:"name,omitempty"` // required
	GenerateName               string            `json:"generateName,omitempty"`
	Namespace                  string            `json:"namespace,omitempty"`
	SelfLink                   string            `json:"selfLink,omitempty"`
	UID                        string            `json:"uid,omitempty"`
	ResourceVersion            string            `json:"resourceVersion,omitempty"`
	Generation                 int64             `json:"generation,omitempty"`
	CreationTimestamp          *time.Time        `json:"creationTimestamp,omitempty"`
	DeletionTimestamp          *time.Time        `json:"deletionTimestamp,omitempty"`
	DeletionGracePeriodSeconds *int64            `json:"deletionGracePeriodSeconds,omitempty"`
	Labels                     map[string]string `json:"labels,omitempty"`
	Annotations                map[string]string `json:"annotations,omitempty"`
	OwnerReferences            []OwnerReference  `json:"ownerReferences,omitempty"`
	Finalizers                 []string          `json:"finalizers,omitempty"`
	ManagedFields              json.RawMessage   `json:"managedFields,omitempty"`
}

// namespace returns the namespace, or the default one if it is empty.
func (m *Metadata) namespace() string {
	return cmp.Or(m.Namespace, DefaultNamespace)
}

// An OwnerReference names the owner of an object.
type OwnerReference struct {
	APIVersion         string `json:"apiVersion"`
	Kind               string `json:"kind"`
	Name               string `json:"name"`
	UID                string `json:"uid"`
	Controller         *bool  `json:"controller,omitempty"`
	BlockOwnerDeletion *bool  `json:"blockOwnerDeletion,omitempty"`
}

// Status is the part of the status that every kind has.
type Status struct {
	ObservedGeneration     int64              `json:"observedGeneration,omitempty"`
	Conditions             []Condition        `json:"conditions,omitempty"`
	URL                    string             `json:"url,omitempty"`
	Artifact               *artifact.Artifact `json:"artifact,omitempty"`
	LastHandledReconcileAt string             `json:"lastHandledReconcileAt,omitempty"` // the reconcile-request block
}

// A Condition is one observation about an object (reference A2).
type Condition struct {
	Type               string    `json:"type"`
	Status             string    `json:"status"` // True, False or Unknown
	ObservedGeneration int64     `json:"observedGeneration,omitempty"`
	LastTransitionTime time.Time `json:"lastTransitionTime"`
	Reason             string    `json:"reason"`
	Message            string    `json:"message"`
}

// A LocalReference names an object in the same namespace.
type LocalReference struct {
	Name string `json:"name"`
}

// A Duration is a time span written as an unsigned sequence of decimal
// numbers with the units ms, s, m and h, for example 1m30s. A timeout is
// written without h (reference, section 0).
type Duration time.Duration

// ParseDuration parses a duration as an API server does.
func ParseDuration(text string) (Duration, error) {
	d, err := document.ParseDuration(text)
	return Duration(d), err
}

// String returns d in a form that [ParseDuration] accepts when d is not negative.
func (d Duration) String() string { return document.FormatDuration(time.Duration(d)) }

// timeout returns d without the unit h.
func (d Duration) timeout() string {
	if d < Duration(time.Hour) {
		return d.String()
	}
	minutes := int64(d / Duration(time.Minute))
	return strconv.FormatInt(minutes, 10) + "m" + (d % Duration(time.Minute)).String()
}

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDuration(string(text))
	return err
}

// A difference is a property that affects an artifact. is reports whether it differs from that of
// the published artifact.
type difference struct {
	what    string
	differs bool
}

// drift returns the names of all that differ, for example "spec.ignore, spec.include".
func drift(all ...difference) string {
	var names []string
	for _, d := range all {
		if d.differs {
			names = append(names, d.what)
		}
	}
	return strings.Join(names, ", ")
}

// same reports whether two optional values are equal; a missing value and an empty one are not.
func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

func clone[T any](v *T) *T {
	if v == nil {
		return nil
	}
	return new(*v)
}

// sameContent reports whether two lists of artifacts have the same content in the same order.
func sameContent(a, b []artifact.Artifact) bool {
	return slices.EqualFunc(a, b, func(x, y artifact.Artifact) bool {
		return x.Revision == y.Revision && x.Digest == y.Digest
	})
}

// CanonicalSpec returns the spec of obj with defaults, as compact JSON with a stable order of
// fields: equal specs give equal bytes, however they were written. For an ExternalArtifact that a
// generator makes, it returns the [Composition]. It is nil if obj cannot be encoded as JSON.
func CanonicalSpec(obj Object) []byte {
	if e, ok := obj.(*ExternalArtifact); ok && e.Composed != nil {
		text, _ := json.Marshal(e.Composed)
		return text
	}
	full, err := deepCopy(obj)
	if err != nil {
		return nil
	}
	Default(full)
	spec, err := json.Marshal(structField(full, "Spec"))
	if err != nil {
		return nil
	}
	return spec
}

// newLike returns an empty object of the type of obj.
func newLike(obj Object) Object {
	return reflect.New(reflect.TypeOf(obj).Elem()).Interface().(Object)
}

// Clone returns a shallow copy of obj.
func Clone(obj Object) Object {
	copied := newLike(obj)
	reflect.ValueOf(copied).Elem().Set(reflect.ValueOf(obj).Elem())
	return copied
}

// SetStatus copies the status of from to obj. If from is nil or of another kind, it clears the
// status of obj.
func SetStatus(obj, from Object) {
	statusOf(obj).SetZero()
	if reflect.TypeOf(from) == reflect.TypeOf(obj) {
		statusOf(obj).Set(statusOf(from))
	}
}

// requestAnnotations request a reconciliation now; the first that is set counts.
var requestAnnotations = []string{"reconcile.headgate.dev/requestedAt", "reconcile.fluxcd.io/requestedAt"}

// RequestedAt returns the annotation of obj that requests a reconciliation now, "" if there is
// none.
func RequestedAt(obj Object) string {
	a := obj.Head().Metadata.Annotations
	return cmp.Or(a[requestAnnotations[0]], a[requestAnnotations[1]])
}

// structField returns the field with that name of the struct of a kind, nil if it has none.
func structField(obj Object, name string) any {
	field := reflect.ValueOf(obj).Elem().FieldByName(name)
	if !field.IsValid() {
		return nil
	}
	return field.Interface()
}

// specField returns a field of the spec of obj, or the zero Value if there is none.
func specField(obj Object, name string) reflect.Value {
	spec := reflect.ValueOf(obj).Elem().FieldByName("Spec")
	if spec.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return spec.FieldByName(name)
}

// AssignGeneration sets metadata.generation of an object whose document has none: to 1 for a new
// object, otherwise to that of saved, the object of the last run, plus 1 if the spec has changed
// since. saved may be nil.
func AssignGeneration(obj, saved Object) {
	m := &obj.Head().Metadata
	switch {
	case m.Generation != 0:
	case saved == nil || saved.Head().Metadata.Generation == 0:
		m.Generation = 1
	case reflect.DeepEqual(structField(obj, "Spec"), structField(saved, "Spec")) || bytes.Equal(CanonicalSpec(obj), CanonicalSpec(saved)):
		m.Generation = saved.Head().Metadata.Generation
	default:
		m.Generation = saved.Head().Metadata.Generation + 1
	}
}

// lastApplied is the annotation in which kubectl stores the applied document.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Masked returns a copy of obj for output, without the password and the parameter values in
// spec.url and spec.endpoint, and without credentials in the annotation in which kubectl stores the
// document. The saved status keeps the spec as written. Fields below the spec and the status are
// shared with obj.
func Masked(obj Object) Object {
	copied := Clone(obj)
	for _, name := range []string{"URL", "Endpoint"} {
		if url := specField(copied, name); url.Kind() == reflect.String {
			url.SetString(redact.RedactIfQuery(redact.WithoutPassword(url.String())))
		}
	}
	m := &copied.Head().Metadata
	if applied, ok := m.Annotations[lastApplied]; ok {
		m.Annotations = maps.Clone(m.Annotations)
		m.Annotations[lastApplied] = redact.String(applied)
	}
	return copied
}

// OriginOf returns the URL or the endpoint of obj without credentials. For a chart it returns the
// name and the source, for a generated artifact the generator, and for an object that another
// program publishes "".
func OriginOf(obj Object) string {
	switch o := obj.(type) {
	case *GitRepository, *OCIRepository, *PkgRepository:
		return redact.String(specField(o, "URL").String())
	case *Bucket:
		endpoint, _, _ := strings.Cut(o.Spec.Endpoint, "?") // a signature follows
		return redact.String(strings.TrimSuffix(endpoint, "/") + "/" + o.Spec.BucketName)
	case *PkgChart:
		return redact.String(o.Spec.Chart + " of " + o.kindOf(o.Spec.SourceRef.Kind) + "/" + o.Spec.SourceRef.Name)
	case *ExternalArtifact:
		if o.Composed != nil {
			return o.Spec.SourceRef.Kind + "/" + o.Spec.SourceRef.Name
		}
	}
	return ""
}
