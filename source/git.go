package source

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/artifact"
)

// GitRepository is a version-control repository (specification, "GitRepository").
type GitRepository struct {
	Header
	Spec   GitRepositorySpec   `json:"spec"`
	Status GitRepositoryStatus `json:"status,omitzero"`
}

// GitRepositorySpec is the spec of a GitRepository.
type GitRepositorySpec struct {
	URL                string                     `json:"url"` // http, https or ssh
	SecretRef          *LocalReference            `json:"secretRef,omitempty"`
	Provider           string                     `json:"provider,omitempty"`           // generic (default), azure, github or aws
	ServiceAccountName string                     `json:"serviceAccountName,omitempty"` // with provider azure or aws
	Interval           Duration                   `json:"interval"`
	Timeout            Duration                   `json:"timeout,omitempty"` // default 60s
	Ref                *GitRepositoryRef          `json:"ref,omitempty"`     // default branch master
	Verify             *GitRepositoryVerification `json:"verify,omitempty"`
	ProxySecretRef     *LocalReference            `json:"proxySecretRef,omitempty"`
	Ignore             *string                    `json:"ignore,omitempty"`
	Suspend            bool                       `json:"suspend,omitempty"`
	RecurseSubmodules  bool                       `json:"recurseSubmodules,omitempty"`
	Include            []GitRepositoryInclude     `json:"include,omitempty"`
	SparseCheckout     []string                   `json:"sparseCheckout,omitempty"` // directories; default: all

	// LFS replaces Git LFS pointers by their content; headgate's extension.
	LFS bool `json:"lfs,omitempty"`

	// SubmoduleCredentials are the credentials of submodules by their origin. Without an entry,
	// submodules on the origin of URL use the credentials of URL, and submodules on other origins
	// use none; headgate's extension.
	SubmoduleCredentials []GitSubmoduleCredential `json:"submoduleCredentials,omitempty"`
}

// A GitSubmoduleCredential names the Secret for one origin of submodules.
type GitSubmoduleCredential struct {
	URL       string         `json:"url"`       // scheme://host[:port] of http, https or ssh
	SecretRef LocalReference `json:"secretRef"` // as spec.secretRef
}

// GitRepositoryRef selects a revision. Precedence: commit, name, semver, tag, branch.
type GitRepositoryRef struct {
	Branch string `json:"branch,omitempty"`
	Tag    string `json:"tag,omitempty"`
	SemVer string `json:"semver,omitempty"`
	Name   string `json:"name,omitempty"`
	Commit string `json:"commit,omitempty"`
}

// The modes of [GitRepositoryVerification] (reference A9). VerifyHead is the v1beta2 spelling of
// VerifyHEAD.
const (
	VerifyHead       = "head"
	VerifyHEAD       = "HEAD"
	VerifyTag        = "Tag"
	VerifyTagAndHEAD = "TagAndHEAD"
)

// GitRepositoryVerification asks for signature verification.
type GitRepositoryVerification struct {
	Mode      string         `json:"mode,omitempty"` // default HEAD
	SecretRef LocalReference `json:"secretRef"`
}

// GitRepositoryStatus is the observed state of a GitRepository.
type GitRepositoryStatus struct {
	Status
	IncludedArtifacts         []artifact.Artifact    `json:"includedArtifacts,omitempty"`
	ObservedIgnore            *string                `json:"observedIgnore,omitempty"`
	ObservedRecurseSubmodules bool                   `json:"observedRecurseSubmodules,omitempty"`
	ObservedLFS               bool                   `json:"observedLFS,omitempty"`
	ObservedInclude           []GitRepositoryInclude `json:"observedInclude,omitempty"`
	ObservedSparseCheckout    []string               `json:"observedSparseCheckout,omitempty"`
	SourceVerificationMode    string                 `json:"sourceVerificationMode,omitempty"`
}

// Common implements [Object].
func (g *GitRepository) Common() *Status { return &g.Status.Status }

// Artifact implements [Source].
func (g *GitRepository) Artifact() *artifact.Artifact { return g.Status.Artifact }

// Interval implements [Source].
func (g *GitRepository) Interval() time.Duration { return time.Duration(g.Spec.Interval) }

// Plan implements [Object]. Only v1beta2 has a status.url.
func (g *GitRepository) Plan() Plan {
	words := kindBySpelling("GitRepository").words
	if g.Version() == V1Beta2 {
		words.Latest = "latest.tar.gz"
	}
	return Plan{
		Timeout: time.Duration(g.Spec.Timeout),
		Suspend: g.Spec.Suspend,
		Verify:  g.Spec.Verify.mode(),
		Needs:   g.needs(),
		Words:   words,
	}
}

// needs returns the sources that are included.
func (g *GitRepository) needs() []Reference {
	refs := make([]Reference, len(g.Spec.Include))
	for i, include := range g.Spec.Include {
		refs[i] = include.reference(&g.Metadata)
	}
	return refs
}

// mode returns the mode in the v1 spelling, "" if no verification is requested.
func (v *GitRepositoryVerification) mode() string {
	switch {
	case v == nil:
		return ""
	case v.Mode == "" || v.Mode == VerifyHead:
		return VerifyHEAD
	}
	return v.Mode
}

// covers reports whether an artifact verified with the recorded mode also satisfies the requested
// mode.
func covers(recorded, requested string) bool {
	return requested == "" || recorded == requested ||
		recorded == VerifyTagAndHEAD && (requested == VerifyTag || requested == VerifyHEAD) ||
		recorded == VerifyHead && requested == VerifyHEAD
}

// Drift implements [Object].
func (g *GitRepository) Drift(rev Revision) string {
	spec, status := &g.Spec, &g.Status
	return drift(append(g.includeDrift(rev),
		difference{"spec.ignore", !same(spec.Ignore, status.ObservedIgnore)},
		difference{"spec.recurseSubmodules", spec.RecurseSubmodules != status.ObservedRecurseSubmodules},
		difference{"spec.lfs", spec.LFS != status.ObservedLFS},
		difference{"spec.sparseCheckout", !slices.Equal(trimDots(spec.SparseCheckout), trimDots(status.ObservedSparseCheckout))},
		difference{"spec.verify.mode", !covers(status.SourceVerificationMode, spec.Verify.mode())},
	)...)
}

// Observe implements [Object].
func (g *GitRepository) Observe(rev Revision) {
	spec, status := &g.Spec, &g.Status
	status.ObservedIgnore = clone(spec.Ignore)
	status.ObservedRecurseSubmodules = spec.RecurseSubmodules
	status.ObservedLFS = spec.LFS
	status.ObservedInclude = slices.Clone(spec.Include)
	status.IncludedArtifacts = slices.Clone(rev.Inputs)
	status.ObservedSparseCheckout = trimDots(spec.SparseCheckout)
	status.SourceVerificationMode = spec.Verify.mode()
}

// trimDots returns the directories without a leading "./".
func trimDots(dirs []string) []string {
	out := slices.Clone(dirs)
	for i := range out {
		out[i] = strings.TrimPrefix(out[i], "./")
	}
	return out
}

// GitRepositoryInclude includes another source's artifact (specification, "GitRepositoryInclude").
// Its content is merged with the content of the repository at ToPath; "." and "/" are its root.
type GitRepositoryInclude struct {
	Repository IncludeReference `json:"repository"`
	FromPath   string           `json:"fromPath,omitempty"` // default: the root of the artifact
	ToPath     string           `json:"toPath,omitempty"`   // default: the name of the repository
}

// IncludeReference names the included source, in the same namespace. Kind is
// headgate's extension: GitRepository (default), Bucket, OCIRepository, PkgChart
// or ExternalArtifact.
type IncludeReference struct {
	Kind string `json:"kind,omitempty"`
	Name string `json:"name"`
}

// Paths returns FromPath and ToPath as in [fs.ValidPath], "." for the root. A leading slash means
// the root (reference A9). The error names a path that leads out of its source or is invalid.
func (i GitRepositoryInclude) Paths() (from, to string, err error) {
	if from, err = cleanPath(i.FromPath); err != nil {
		return "", "", fmt.Errorf("fromPath %w", err)
	}
	if to, err = cleanPath(cmp.Or(i.ToPath, i.Repository.Name)); err != nil {
		return "", "", fmt.Errorf("toPath %w", err)
	}
	return from, to, nil
}

// cleanPath returns a slash-separated path inside a source as in [fs.ValidPath].
func cleanPath(text string) (string, error) {
	if err := insidePath(text); err != nil {
		return "", err
	}
	clean := cmp.Or(strings.TrimPrefix(path.Clean("/"+text), "/"), ".")
	if !fs.ValidPath(clean) {
		return "", errors.New("must be UTF-8 text")
	}
	return clean, nil
}

// reference returns the reference to the included source of an object with metadata m.
func (i GitRepositoryInclude) reference(m *Metadata) Reference {
	kind := cmp.Or(i.Repository.Kind, "GitRepository")
	canonicalizeKind(&kind)
	return Reference{kind, m.namespace(), i.Repository.Name}
}

// includeDrift reports that the list of includes has changed, or else which includes have other
// content than in the published artifact.
func (g *GitRepository) includeDrift(rev Revision) []difference {
	if !slices.Equal(g.Spec.Include, g.Status.ObservedInclude) {
		return []difference{{"spec.include", true}}
	}
	before, refs := g.Status.IncludedArtifacts, g.needs()
	if len(before) != len(rev.Inputs) || len(refs) != len(rev.Inputs) {
		return []difference{{"included artifacts", !sameContent(before, rev.Inputs)}}
	}
	all := make([]difference, len(refs))
	for i, ref := range refs {
		was, now := before[i], rev.Inputs[i]
		change := was.Revision + " → " + now.Revision
		if was.Revision == now.Revision {
			change = now.Revision + " with digest " + was.Digest + " → " + now.Digest
		}
		all[i] = difference{fmt.Sprintf("spec.include[%d] (%s: %s)", i, g.Spell(ref), change), was.Revision != now.Revision || was.Digest != now.Digest}
	}
	return all
}

// Directories returns the directories of SparseCheckout as paths in the form of [io/fs.ValidPath],
// in the order of the spec; nil means the whole repository. Entries are relative to the root of the
// repository, and . is the root. A leading ./, a trailing / and repeated slashes are ignored; case
// is significant. The error names an invalid entry: it is empty, absolute, or contains .., a
// backslash, a control character or invalid UTF-8.
func (s *GitRepositorySpec) Directories() ([]string, error) {
	dirs := make([]string, len(s.SparseCheckout))
	for i, entry := range s.SparseCheckout {
		if err := checkSparse(entry); err != nil {
			return nil, fmt.Errorf("spec.sparseCheckout[%d]: %w", i, err)
		}
		dirs[i] = path.Clean(entry)
	}
	if len(dirs) == 0 || slices.Contains(dirs, ".") {
		return nil, nil
	}
	return dirs, nil
}
