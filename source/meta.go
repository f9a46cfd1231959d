package source

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/headgate-io/headgate/artifact"
)

// The API groups whose documents are read: headgate's own, and the one of the
// reference implementation.
const (
	Group          = "source.headgate.dev"
	ReferenceGroup = "source.toolkit.fluxcd.io"
)

// The versions of both groups (specification, "Versioning").
const (
	V1      = "v1"
	V1Beta2 = "v1beta2"
)

// DefaultNamespace is the namespace of objects that name none.
const DefaultNamespace = "default"

// Header is what every document begins with (specification, "Common envelope").
type Header struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"` // the specification's spelling: PkgChart, not HelmChart
	Metadata   Metadata `json:"metadata"`

	spelled string // the kind as the document spells it, "" for the spelling of its group
}

// Group returns the API group of apiVersion.
func (h *Header) Group() string {
	group, _, found := strings.Cut(h.APIVersion, "/")
	if !found {
		return ""
	}
	return group
}

// Version returns the version of apiVersion, for example v1.
func (h *Header) Version() string {
	return h.APIVersion[strings.IndexByte(h.APIVersion, '/')+1:]
}

// String returns KIND/NAMESPACE/NAME, with the kind as the object's document
// spells it: what users wrote is what messages say.
func (h *Header) String() string {
	return h.spelling() + "/" + h.Metadata.space() + "/" + h.Metadata.Name
}

// Spell returns KIND/NAMESPACE/NAME of an object that h's object refers to, with
// the kind as h's document spells kinds.
func (h *Header) Spell(ref Reference) string {
	ref.Kind = h.kindOf(ref.Kind)
	return ref.String()
}

// Metadata is the standard object metadata. Headgate uses name, namespace,
// generation, labels and annotations; it keeps the rest, so that documents
// dumped from a cluster survive a round trip.
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

// space returns the namespace, the default one when none is named.
func (m *Metadata) space() string {
	if m.Namespace == "" {
		return DefaultNamespace
	}
	return m.Namespace
}

// An OwnerReference names the object that another belongs to.
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
