package source

import (
	"time"

	"github.com/headgate-io/headgate/artifact"
)

// Header is what every document begins with.
type Header struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
}

// Metadata is the standard object metadata, as far as headgate uses it.
type Metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	Generation  int64             `json:"generation,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
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

// A Duration is a time span written as 1m30s.
type Duration time.Duration

// A LocalReference names an object in the same namespace.
type LocalReference struct {
	Name string `json:"name"`
}
