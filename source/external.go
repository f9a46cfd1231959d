package source

import (
	"time"

	"github.com/headgate-io/headgate/artifact"
)

// ExternalArtifact is an artifact that somebody else publishes (reference,
// section 0). It is resolved from its status and never fetched.
type ExternalArtifact struct {
	Header
	Spec   ExternalArtifactSpec   `json:"spec,omitzero"`
	Status ExternalArtifactStatus `json:"status,omitzero"`
}

// ExternalArtifactSpec says what the artifact is made of.
type ExternalArtifactSpec struct {
	SourceRef *ExternalSourceReference `json:"sourceRef,omitempty"`
}

// ExternalSourceReference names any object.
type ExternalSourceReference struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Namespace  string `json:"namespace,omitempty"`
}

// ExternalArtifactStatus is what its publisher wrote.
type ExternalArtifactStatus struct {
	Status
}

// Head implements [Object].
func (e *ExternalArtifact) Head() *Header { return &e.Header }

// Common implements [Object].
func (e *ExternalArtifact) Common() *Status { return &e.Status.Status }

// Artifact implements [Source].
func (e *ExternalArtifact) Artifact() *artifact.Artifact { return e.Status.Artifact }

// Interval implements [Source]. There is nothing to check.
func (e *ExternalArtifact) Interval() time.Duration { return 0 }

// Plan implements [Object].
func (e *ExternalArtifact) Plan() Plan { return Plan{Words: wordsOf(e.kind())} }

// Drift implements [Object].
func (e *ExternalArtifact) Drift(Revision) string { return "" }

// Observe implements [Object].
func (e *ExternalArtifact) Observe(Revision) {}
