package source

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
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
