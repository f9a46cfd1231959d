package git

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/headgate-io/headgate/git/internal/config"
)

// modulesFile describes the submodules of a repository, in its root.
const modulesFile = ".gitmodules"

// maxModulesFile bounds it, in bytes.
const maxModulesFile = 1 << 20

// A mapping is what .gitmodules says about one submodule (gitmodules(5)). The
// path is a key only: a submodule is mounted where the tree has it.
type mapping struct {
	name    string
	path    string
	url     string
	skipped bool  // update = none: git leaves the submodule out
	defect  error // why the submodule cannot be used
}

// readMappings returns the mappings of tree, the root of a commit, by path.
// Without the file there are none.
func readMappings(tree fs.FS) (map[string]*mapping, error) {
	f, err := tree.Open(modulesFile)
	if isAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no regular file")
	case info.Size() > maxModulesFile:
		return nil, fmt.Errorf("it has %d bytes: more than the limit of %d", info.Size(), maxModulesFile)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxModulesFile))
	if err != nil {
		return nil, err
	}
	return parseMappings(string(text))
}

// parseMappings reads the text of .gitmodules. What is wrong with one submodule
// is noted there and does not concern the others.
func parseMappings(text string) (map[string]*mapping, error) {
	byName := map[string]*mapping{}
	var all []*mapping
	for e, err := range config.Parse(text) {
		if err != nil {
			return nil, err
		}
		if e.Section != "submodule" {
			continue
		}
		m := byName[e.Subsection]
		if m == nil {
			m = &mapping{name: e.Subsection, defect: checkModuleName(e.Subsection)}
			byName[e.Subsection], all = m, append(all, m)
		}
		m.set(e)
	}
	byPath := map[string]*mapping{}
	for _, m := range all {
		if other := byPath[m.path]; other != nil {
			other.flaw("the submodules %.80q and %.80q have the same path", other.name, m.name)
		} else if m.path != "" {
			byPath[m.path] = m
		}
	}
	return byPath, nil
}

// set takes one variable. Those that only matter to a clone with a worktree
// and a history (branch, shallow, ignore, fetchRecurseSubmodules) do not here.
func (m *mapping) set(e config.Entry) {
	switch e.Key {
	case "path":
		m.once(&m.path, e)
	case "url":
		m.once(&m.url, e)
	case "update":
		m.skipped = e.Value == "none"
		if strings.HasPrefix(e.Value, "!") {
			m.flaw("line %d: update is a command, which is never run: remove it", e.Line)
		}
	}
}

// once takes a variable that may be set only once: two readers could take two
// different values.
func (m *mapping) once(field *string, e config.Entry) {
	switch {
	case e.Value == "":
		m.flaw("line %d: %s is empty", e.Line, e.Key)
	case *field != "":
		m.flaw("line %d: %s is set a second time", e.Line, e.Key)
	default:
		*field = e.Value
	}
}

// flaw notes the first thing that is wrong.
func (m *mapping) flaw(format string, args ...any) {
	if m.defect == nil {
		m.defect = fmt.Errorf(format, args...)
	}
}

// checkModuleName refuses the names that git does: it makes paths of them.
func checkModuleName(name string) error {
	if name == "" {
		return errors.New("its name in .gitmodules is empty")
	}
	for part := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '/' || r == '\\' }) {
		if part == ".." {
			return fmt.Errorf("its name in .gitmodules, %.80q, leads out of a directory", name)
		}
	}
	return nil
}
