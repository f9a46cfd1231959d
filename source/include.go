package source

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/artifact"
)

// GitRepositoryInclude includes another source's artifact (specification,
// "GitRepositoryInclude"). What it holds is merged with what the repository has
// at ToPath; "." and "/" are its root.
type GitRepositoryInclude struct {
	Repository IncludeReference `json:"repository"`
	FromPath   string           `json:"fromPath,omitempty"` // default the root of the artifact
	ToPath     string           `json:"toPath,omitempty"`   // default the name of the repository
}

// IncludeReference names the included source, in the same namespace. Kind is
// headgate's extension: GitRepository (default), Bucket, OCIRepository, PkgChart
// or ExternalArtifact.
type IncludeReference struct {
	Kind string `json:"kind,omitempty"`
	Name string `json:"name"`
}

// Paths returns FromPath and ToPath as [fs.ValidPath] has them, "." for a root.
// A leading slash stands for the root (reference A9). The error tells which of
// them leads out of its source or cannot be a path.
func (i GitRepositoryInclude) Paths() (from, to string, err error) {
	if from, err = cleanPath("fromPath", i.FromPath); err != nil {
		return "", "", err
	}
	to, err = cleanPath("toPath", fallback(i.ToPath, i.Repository.Name))
	return from, to, err
}

// cleanPath returns a slash-separated path inside a source without "." and "..".
func cleanPath(field, text string) (string, error) {
	err := insidePath(text)
	clean := strings.TrimPrefix(path.Clean("/"+text), "/")
	if clean == "" {
		clean = "."
	}
	if err == nil && !fs.ValidPath(clean) {
		err = errors.New("must be UTF-8 text")
	}
	if err != nil {
		return "", fmt.Errorf("%s %w", field, err)
	}
	return clean, nil
}

// reference returns the name of the included source of an object with metadata m.
func (i GitRepositoryInclude) reference(m *Metadata) Reference {
	name := i.Repository.Kind
	if k := spelledKind(name); k != nil {
		name = k.name
	}
	return Reference{fallback(name, "GitRepository"), m.space(), i.Repository.Name}
}

// includeDrift tells whether the list of includes is another, or else which of
// them have other content than the published artifact was made of.
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
		all[i].what, all[i].is = inputDrift(before[i], rev.Inputs[i])
		all[i].what = fmt.Sprintf("spec.include[%d] (%s: %s)", i, g.Spell(ref), all[i].what)
	}
	return all
}

// inputDrift says in which way an artifact became another.
func inputDrift(before, now artifact.Artifact) (what string, is bool) {
	if before.Revision != now.Revision {
		return before.Revision + " → " + now.Revision, true
	}
	return now.Revision + " with digest " + before.Digest + " → " + now.Digest, before.Digest != now.Digest
}
