package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate-io/headgate/git/internal/config"
)

// extensions are the extensions of the repository format (gitrepository-layout)
// that this package understands or that do not matter to a reader, with the only
// value that is understood, "" for any.
var extensions = map[string]string{
	"noop": "", "noop-v1": "", "preciousobjects": "", "worktreeconfig": "", "relativeworktrees": "", "compatobjectformat": "", "partialclone": "",
	"objectformat": "sha1", "refstorage": "files",
}

// remedies tell what to do about the value of an extension.
var remedies = map[string]string{
	"objectformat": "object format %.80q is not supported in local repositories: fetch it from a server",
	"refstorage":   "refs stored as %.80q are not supported: run git refs migrate --ref-format=files",
}

// readConfig reads what the configuration says about the format of the repository.
func (r *Repo) readConfig() error {
	file := filepath.Join(r.common, "config")
	text, err := readFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := checkFormat(text); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	r.missingHint = r.describeClone()
	return nil
}

// checkFormat returns an error if a configuration names a version or an extension of
// the repository format that is not supported.
func checkFormat(text string) error {
	values := make(map[string]string)
	for e, err := range config.Parse(text) {
		if err != nil {
			return err
		}
		values[e.Name()] = e.Value
	}
	version := values["core.repositoryformatversion"]
	if version != "" && version != "0" && version != "1" {
		return fmt.Errorf("repository format %.80q is not supported", version)
	}
	for key, value := range values {
		name, ok := strings.CutPrefix(key, "extensions.")
		want, known := extensions[name]
		switch {
		case ok && !known && version == "1":
			return fmt.Errorf("the extension %.80q is not supported", name)
		case ok && want != "" && value != want:
			return fmt.Errorf(remedies[name], value)
		}
	}
	return nil
}

// describeClone says why objects may be missing and what to do about it.
func (r *Repo) describeClone() string {
	for _, clone := range []struct{ pattern, text string }{
		{"objects/pack/*.promisor", "; this is a partial clone: fetch the object there first"},
		{"shallow", "; this is a shallow clone: git fetch --unshallow there brings its whole history"},
	} {
		if found, _ := fs.Glob(os.DirFS(r.common), clone.pattern); len(found) > 0 {
			return clone.text
		}
	}
	return ""
}
