package source

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/document"
)

// Directories returns the directories of SparseCheckout as paths in the form
// of [io/fs.ValidPath], in the order of the spec; nil stands for the whole
// repository. An entry is relative to the root of the repository, and . is the
// root; a leading ./, a trailing / and repeated slashes do not count, upper and
// lower case do. The error names the entry that is none: it is empty, absolute,
// or holds .., a backslash, a control character or what is no UTF-8.
func (s *GitRepositorySpec) Directories() ([]string, error) {
	dirs := make([]string, len(s.SparseCheckout))
	for i, entry := range s.SparseCheckout {
		dir, err := sparseDir(entry)
		if err != nil {
			return nil, fmt.Errorf("spec.sparseCheckout[%d]: %w", i, err)
		}
		dirs[i] = dir
	}
	if len(dirs) == 0 || slices.Contains(dirs, ".") {
		return nil, nil
	}
	return dirs, nil
}

// sparseDir cleans one entry of SparseCheckout.
func sparseDir(entry string) (string, error) {
	switch {
	case entry == "":
		return "", errors.New("must not be empty: write . for the whole repository, or remove it")
	case entry[0] == '/':
		return "", errors.New("must be relative to the root of the repository: remove the leading '/'")
	case slices.Contains(strings.Split(entry, "/"), ".."):
		return "", errors.New("must not lead out of a directory by '..'")
	case strings.Contains(entry, `\`):
		return "", errors.New(`must use '/', not '\'`)
	case !utf8.ValidString(entry):
		return "", errors.New("must be UTF-8 text")
	}
	return path.Clean(entry), printing(entry)
}

// checkSparse notes the entries that are no directories.
func (s *GitRepositorySpec) checkSparse(found *document.Findings) {
	for i, entry := range s.SparseCheckout {
		if _, err := sparseDir(entry); err != nil {
			found.Add(fmt.Sprintf("spec.sparseCheckout[%d]", i), "%w", err)
		}
	}
}
