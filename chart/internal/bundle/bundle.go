package bundle

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode"

	"helm.sh/helm/v3/pkg/chart"

	"github.com/headgate-io/headgate/artifact"
)

// ErrChart marks errors about content that is not a chart, or a chart that no tool can use.
var ErrChart = errors.New("not a valid chart")

// ErrVersion marks a Chart.yaml that cannot be given another version.
var ErrVersion = errors.New("set the version of the chart")

// Names of files at the root of a chart.
const (
	chartFile        = "Chart.yaml"
	lockFile         = "Chart.lock"
	valuesFile       = "values.yaml"
	requirementsFile = "requirements.yaml" // apiVersion v1
	requirementsLock = "requirements.lock" // apiVersion v1
	ignoreFile       = ".helmignore"
	chartsDir        = "charts"
)

// longestName is the maximum length of a name or a version, in bytes.
const longestName = 250

// A Chart is a chart as a tree of files. The caller must close it.
type Chart struct {
	Metadata *chart.Metadata // Chart.yaml, with the dependencies of requirements.yaml
	Lock     *chart.Lock     // Chart.lock, or requirements.lock; nil when there is none
	Files    fs.FS           // its root is that of the chart; .helmignore has been applied

	Digest string // sha256:HEX of the archive that it came in, "" for a directory
	Size   int64  // of the archive

	archive *os.File // nil for a directory
	tree    *artifact.Tree
}

// Limits returns l with the defaults of charts: 100 MiB unpacked, 5 MiB a file, 10,000
// entries (the limits of the package manager itself, and reference A17).
func Limits(l artifact.Limits) artifact.Limits {
	l.Bytes = cmp.Or(l.Bytes, 100<<20)
	l.FileBytes = cmp.Or(l.FileBytes, 5<<20)
	l.Entries = cmp.Or(l.Entries, 10_000)
	return l
}

// load reads the metadata of the chart at the root of files.
func load(files fs.FS) (*Chart, error) {
	c := &Chart{Files: files}
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, err
	}
	for _, e := range entries { // the package manager refuses an archive with such a name
		name := e.Name()
		drive := len(name) == 2 && name[1] == ':' && e.IsDir()
		if strings.HasPrefix(name, "..") || drive {
			return nil, fmt.Errorf("%w: %q begins with .. or is a drive: rename it", ErrChart, name)
		}
	}
	if c.Metadata, err = readMetadata(files); err != nil {
		return nil, err
	}
	locks := []string{lockFile, requirementsLock}
	if c.Metadata.APIVersion == chart.APIVersionV1 {
		locks = []string{requirementsLock, lockFile}
	}
	for _, name := range locks {
		if c.Lock, err = readLock(files, name); c.Lock != nil || err != nil {
			break
		}
	}
	return c, err
}

// readMetadata reads Chart.yaml and requirements.yaml.
func readMetadata(files fs.FS) (*chart.Metadata, error) {
	text, err := readFile(files, chartFile, textBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: it has no %s at its root, or %s excludes it", ErrChart, chartFile, ignoreFile)
	}
	if err != nil {
		return nil, err
	}
	m, err := parseMetadata(text)
	if err != nil {
		return nil, err
	}
	text, err = readFile(files, requirementsFile, textBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	var r chart.Metadata
	if err := decode(text, &r); err != nil {
		return nil, invalid(requirementsFile, err)
	}
	if r.Name != "" || r.Version != "" || r.APIVersion != "" || r.Type != "" {
		return nil, invalid(requirementsFile, errors.New("it must hold dependencies only: put name, version, apiVersion and type into "+chartFile))
	}
	if r.Dependencies != nil {
		m.Dependencies = r.Dependencies
	}
	return m, checkMetadata(m, requirementsFile)
}

// parseMetadata reads the text of a Chart.yaml.
func parseMetadata(text []byte) (*chart.Metadata, error) {
	m := &chart.Metadata{}
	if err := decode(text, m); err != nil {
		return nil, invalid(chartFile, err)
	}
	m.APIVersion = cmp.Or(m.APIVersion, chart.APIVersionV1) // the default of the package manager
	return m, checkMetadata(m, chartFile)
}

// checkMetadata rejects metadata that the package manager rejects, and names and versions that
// could be misleading.
func checkMetadata(m *chart.Metadata, file string) error {
	if err := checkName(m.Name); err != nil {
		return invalid(file, fmt.Errorf("field name: %w", err))
	}
	if m.Version == "" || len(m.Version) > longestName || strings.ContainsFunc(m.Version, unprintable) {
		return invalid(file, fmt.Errorf("field version: %.120q is no version of at most %d bytes", m.Version, longestName))
	}
	if err := m.Validate(); err != nil { // removes unprintable characters from most fields
		return invalid(file, errors.New(plain(strings.TrimPrefix(err.Error(), "validation: "))))
	}
	return checkDependencies(m.Dependencies, file)
}

// checkName rejects names that some system does not allow for a directory.
func checkName(name string) error {
	switch {
	case name == "", name == ".", name == "..", name == chartFile, strings.ContainsAny(name, `/\:`), strings.ContainsFunc(name, unprintable):
		return fmt.Errorf("%.120q cannot be the name of a directory", name)
	case len(name) > longestName:
		return fmt.Errorf("it has more than %d bytes", longestName)
	}
	return nil
}

// checkDependencies rejects dependencies that are null, have an invalid name, or contain
// control characters.
func checkDependencies(list []*chart.Dependency, file string) error {
	for i, d := range list {
		if d == nil {
			return invalid(file, fmt.Errorf("field dependencies: element %d is null", i))
		}
		if err := checkName(d.Name); err != nil {
			return invalid(file, fmt.Errorf("field dependencies: element %d: name: %w", i, err))
		}
		if strings.ContainsFunc(d.Version+d.Repository+d.Alias, unicode.IsControl) {
			return invalid(file, fmt.Errorf("field dependencies: element %d: version, repository or alias has control characters", i))
		}
	}
	return nil
}

// readLock reads a lock file. It returns nil if there is none.
func readLock(files fs.FS, name string) (*chart.Lock, error) {
	text, err := readFile(files, name, textBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lock := &chart.Lock{}
	if err := decode(text, lock); err != nil {
		return nil, invalid(name, err)
	}
	return lock, checkDependencies(lock.Dependencies, name)
}

// invalid is the error about one file of a chart.
func invalid(file string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrChart, plain(file), err)
}

// plain returns text of a chart in a form that errors may repeat: short, and quoted unless
// every character is printable.
func plain(text string) string {
	if strings.ContainsFunc(text, unprintable) || len(text) > 120 {
		return fmt.Sprintf("%.120q", text)
	}
	return text
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }
