package source

import (
	"slices"
	"time"

	"github.com/headgate-io/headgate/artifact"
)

// PkgRepository is a chart repository: an index at a URL, or an OCI registry (specification,
// "PkgRepository").
type PkgRepository struct {
	Header
	Spec   PkgRepositorySpec `json:"spec"`
	Status Status            `json:"status,omitzero"`
}

// PkgRepositorySpec is the spec of a PkgRepository.
type PkgRepositorySpec struct {
	URL             string          `json:"url"` // http, https or oci
	SecretRef       *LocalReference `json:"secretRef,omitempty"`
	CertSecretRef   *LocalReference `json:"certSecretRef,omitempty"`
	PassCredentials bool            `json:"passCredentials,omitempty"`
	Interval        Duration        `json:"interval,omitempty"` // default 1m
	Insecure        bool            `json:"insecure,omitempty"` // type oci only
	Timeout         Duration        `json:"timeout,omitempty"`  // default 60s
	Suspend         bool            `json:"suspend,omitempty"`
	Type            string          `json:"type,omitempty"`     // default (default) or oci
	Provider        string          `json:"provider,omitempty"` // type oci only: generic (default), aws, azure or gcp
	AccessFrom      *AccessFrom     `json:"accessFrom,omitempty"`

	// Verify requires a provenance file for each chart; headgate's extension, not with type oci.
	Verify *PkgRepositoryVerification `json:"verify,omitempty"`
}

// AccessFrom lists namespaces whose objects may use a source. No implementation honors it; it is
// kept without effect for clusters that have it.
type AccessFrom struct {
	NamespaceSelectors []NamespaceSelector `json:"namespaceSelectors"`
}

// A NamespaceSelector selects namespaces by their labels.
type NamespaceSelector struct {
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

// PkgRepositoryVerification has the keys that may sign charts: they verify the provenance files
// (.prov) beside the charts of an HTTP repository. The index itself has no signature.
type PkgRepositoryVerification struct {
	SecretRef LocalReference `json:"secretRef"` // OpenPGP public keys, one or more in each value
}

// The types of [PkgRepositorySpec].
const (
	RepositoryIndex = "default"
	RepositoryOCI   = "oci"
)

// Common implements [Object].
func (p *PkgRepository) Common() *Status { return &p.Status }

// Artifact implements [Source]. A repository of type oci has none.
func (p *PkgRepository) Artifact() *artifact.Artifact { return p.Status.Artifact }

// Interval implements [Source]. The default is one minute.
func (p *PkgRepository) Interval() time.Duration {
	if p.Spec.Interval == 0 {
		return time.Duration(repositoryInterval)
	}
	return time.Duration(p.Spec.Interval)
}

// Plan implements [Object].
func (p *PkgRepository) Plan() Plan {
	return Plan{Timeout: time.Duration(p.Spec.Timeout), Suspend: p.Spec.Suspend, Words: kindBySpelling("PkgRepository").words}
}

// Drift implements [Object]. No field of the spec affects the index.
func (p *PkgRepository) Drift(Revision) string { return "" }

// Observe implements [Object].
func (p *PkgRepository) Observe(Revision) {}

// ExternalArtifact is an artifact that another program publishes (reference, section 0), which is
// read from its status and never fetched, or an artifact that an [ArtifactGenerator] makes.
type ExternalArtifact struct {
	Header
	Spec   ExternalArtifactSpec `json:"spec,omitzero"`
	Status Status               `json:"status,omitzero"` // written by the publisher

	Composed *Composition `json:"-"` // how a generator makes it; nil: another program publishes it
}

// External reports whether the artifact of obj is published by another program.
func External(obj Object) bool {
	e, is := obj.(*ExternalArtifact)
	return is && e.Composed == nil
}

// ExternalArtifactSpec names the origin of the artifact.
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

// Common implements [Object].
func (e *ExternalArtifact) Common() *Status { return &e.Status }

// Artifact implements [Source].
func (e *ExternalArtifact) Artifact() *artifact.Artifact { return e.Status.Artifact }

// Interval implements [Source]. It is 0 if another program publishes the artifact.
func (e *ExternalArtifact) Interval() time.Duration {
	if e.Composed == nil {
		return 0
	}
	return generatorInterval
}

// Plan implements [Object]. A generated artifact needs its sources.
func (e *ExternalArtifact) Plan() Plan {
	p := Plan{Words: kindBySpelling("ExternalArtifact").words}
	if c := e.Composed; c != nil {
		p.Suspend, p.Words = c.Suspend, Words{Stored: "stored artifact of revision '%s'", Failed: "ReconciliationFailed"}
		for _, s := range c.Sources {
			if ref := s.Reference(); !slices.Contains(p.Needs, ref) {
				p.Needs = append(p.Needs, ref)
			}
		}
	}
	return p
}

// Drift implements [Object].
func (e *ExternalArtifact) Drift(Revision) string { return "" }

// Observe implements [Object].
func (e *ExternalArtifact) Observe(Revision) {}
