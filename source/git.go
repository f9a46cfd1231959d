package source

import (
	"time"

	"github.com/headgate-io/headgate/artifact"
)

// GitRepository is a version-control repository (specification, "GitRepository").
type GitRepository struct {
	Header
	Spec   GitRepositorySpec   `json:"spec"`
	Status GitRepositoryStatus `json:"status,omitzero"`
}

// GitRepositorySpec is what a GitRepository asks for.
type GitRepositorySpec struct {
	URL                string                     `json:"url"`
	SecretRef          *LocalReference            `json:"secretRef,omitempty"`
	Provider           string                     `json:"provider,omitempty"`
	ServiceAccountName string                     `json:"serviceAccountName,omitempty"`
	Interval           Duration                   `json:"interval"`
	Timeout            Duration                   `json:"timeout,omitempty"`
	Ref                *GitRepositoryRef          `json:"ref,omitempty"`
	Verify             *GitRepositoryVerification `json:"verify,omitempty"`
	ProxySecretRef     *LocalReference            `json:"proxySecretRef,omitempty"`
	Ignore             *string                    `json:"ignore,omitempty"`
	Suspend            bool                       `json:"suspend,omitempty"`
	RecurseSubmodules  bool                       `json:"recurseSubmodules,omitempty"`
	Include            []GitRepositoryInclude     `json:"include,omitempty"`
	SparseCheckout     []string                   `json:"sparseCheckout,omitempty"`
}

// GitRepositoryRef selects a revision. Precedence: commit, name, semver, tag, branch.
type GitRepositoryRef struct {
	Branch string `json:"branch,omitempty"`
	Tag    string `json:"tag,omitempty"`
	SemVer string `json:"semver,omitempty"`
	Name   string `json:"name,omitempty"`
	Commit string `json:"commit,omitempty"`
}

// GitRepositoryVerification asks for signature verification.
type GitRepositoryVerification struct {
	Mode      string         `json:"mode,omitempty"`
	SecretRef LocalReference `json:"secretRef"`
}

// GitRepositoryInclude includes another source's artifact.
type GitRepositoryInclude struct {
	Repository IncludeReference `json:"repository"`
	FromPath   string           `json:"fromPath,omitempty"`
	ToPath     string           `json:"toPath,omitempty"`
}

// IncludeReference names the included source; Kind is headgate's extension, default GitRepository.
type IncludeReference struct {
	Kind string `json:"kind,omitempty"`
	Name string `json:"name"`
}

// GitRepositoryStatus is what was observed.
type GitRepositoryStatus struct {
	Status
	IncludedArtifacts         []artifact.Artifact    `json:"includedArtifacts,omitempty"`
	ObservedIgnore            *string                `json:"observedIgnore,omitempty"`
	ObservedRecurseSubmodules bool                   `json:"observedRecurseSubmodules,omitempty"`
	ObservedInclude           []GitRepositoryInclude `json:"observedInclude,omitempty"`
	ObservedSparseCheckout    []string               `json:"observedSparseCheckout,omitempty"`
	SourceVerificationMode    string                 `json:"sourceVerificationMode,omitempty"`
}

// Head implements [Object].
func (g *GitRepository) Head() *Header { return &g.Header }

// Common implements [Object].
func (g *GitRepository) Common() *Status { return &g.Status.Status }

// Artifact implements [Source].
func (g *GitRepository) Artifact() *artifact.Artifact { return g.Status.Artifact }

// Interval implements [Source].
func (g *GitRepository) Interval() time.Duration { return time.Duration(g.Spec.Interval) }

// Plan implements [Object].
func (g *GitRepository) Plan() Plan {
	return Plan{Timeout: time.Duration(g.Spec.Timeout), Suspend: g.Spec.Suspend}
}

// Drifted implements [Object].
func (g *GitRepository) Drifted(rev Revision) bool { return false }

// Observe implements [Object].
func (g *GitRepository) Observe(rev Revision) {}
