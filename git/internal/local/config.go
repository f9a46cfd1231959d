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
// that this package understands or that do not matter to a reader. The function
// takes the value.
var extensions = map[string]func(value string) error{
	"noop":               nil,
	"noop-v1":            nil,
	"preciousobjects":    nil,
	"worktreeconfig":     nil,
	"relativeworktrees":  nil,
	"compatobjectformat": nil,
	"partialclone":       nil,
	"objectformat": func(value string) error {
		if value != "sha1" {
			return fmt.Errorf("object format %.80q is not supported in local repositories: fetch it from a server", value)
		}
		return nil
	},
	"refstorage": func(value string) error {
		if value != "files" {
			return fmt.Errorf("refs stored as %.80q are not supported: run git refs migrate --ref-format=files", value)
		}
		return nil
	},
}

// configure reads what the configuration says about the format of the repository.
func (r *Repo) configure() error {
	file := filepath.Join(r.common, "config")
	text, err := readFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	c, err := parseConfig(text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := extend(c); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	r.absent = r.absence()
	return nil
}

// extend heeds the version of the repository format and the extensions that a configuration names.
func extend(c map[string]string) error {
	version := c["core.repositoryformatversion"]
	if version != "" && version != "0" && version != "1" {
		return fmt.Errorf("repository format %.80q is not supported", version)
	}
	for key, value := range c {
		name, ok := strings.CutPrefix(key, "extensions.")
		if !ok {
			continue
		}
		use, known := extensions[name]
		if !known && version == "1" {
			return fmt.Errorf("the extension %.80q is not supported", name)
		}
		if use != nil {
			if err := use(value); err != nil {
				return err
			}
		}
	}
	return nil
}

// absence says why objects may be missing and what to do about it.
func (r *Repo) absence() string {
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

// parseConfig returns the variables that say how the repository is stored.
func parseConfig(text string) (map[string]string, error) {
	values := make(map[string]string)
	for e, err := range config.Parse(text) {
		if err != nil {
			return nil, err
		}
		if e.Section == "core" || e.Section == "extensions" {
			values[e.Name()] = e.Value
		}
	}
	return values, nil
}
