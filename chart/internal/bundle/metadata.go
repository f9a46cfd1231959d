package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode"

	"helm.sh/helm/v3/pkg/chart"
)

// longestName is how many bytes a name or a version may have.
const longestName = 250

// load returns the chart whose root is that of files.
func load(files fs.FS) (*Chart, error) {
	c := &Chart{Files: files}
	var err error
	if c.Metadata, err = readMetadata(files); err != nil {
		return nil, err
	}
	c.Lock, err = readLock(files, c.Metadata.APIVersion)
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
	text, err = readFile(files, requiresFile, textBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	return m, addRequirements(m, text)
}

// parseMetadata reads the text of a Chart.yaml.
func parseMetadata(text []byte) (*chart.Metadata, error) {
	m := &chart.Metadata{}
	if err := decode(text, m); err != nil {
		return nil, invalid(chartFile, "%w", err)
	}
	if m.APIVersion == "" {
		m.APIVersion = chart.APIVersionV1 // as the package manager takes it
	}
	return m, check(m, chartFile)
}

// addRequirements gives m the dependencies in the text of a requirements.yaml.
func addRequirements(m *chart.Metadata, text []byte) error {
	var r chart.Metadata
	if err := decode(text, &r); err != nil {
		return invalid(requiresFile, "%w", err)
	}
	if r.Name != "" || r.Version != "" || r.APIVersion != "" || r.Type != "" {
		return invalid(requiresFile, "it must hold dependencies only: put name, version, apiVersion and type into %s", chartFile)
	}
	if r.Dependencies != nil {
		m.Dependencies = r.Dependencies
	}
	return check(m, requiresFile)
}

// check refuses metadata that the package manager refuses, or that leads
// anywhere else than it seems to.
func check(m *chart.Metadata, file string) error {
	if err := checkName(m.Name); err != nil {
		return invalid(file, "field name: %w", err)
	}
	if err := checkVersion(m.Version); err != nil {
		return invalid(file, "field version: %w", err)
	}
	if err := m.Validate(); err != nil { // takes characters that cannot be printed out of most fields
		return invalid(file, "%s", plain(strings.TrimPrefix(err.Error(), "validation: ")))
	}
	if err := checkDependencies(m.Dependencies); err != nil {
		return invalid(file, "field dependencies: %w", err)
	}
	return nil
}

func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("it is required")
	case name == ".", name == "..", name == chartFile, strings.ContainsAny(name, `/\:`), strings.ContainsFunc(name, unprintable):
		return fmt.Errorf("%s cannot be the name of a directory", quoted(name))
	case len(name) > longestName:
		return fmt.Errorf("it has more than %d bytes", longestName)
	}
	return nil
}

// checkVersion refuses what could not be a part of a path; the package manager
// has its say about the rest.
func checkVersion(version string) error {
	switch {
	case version == "":
		return errors.New("it is required")
	case strings.ContainsAny(version, `/\`), strings.ContainsFunc(version, unprintable):
		return fmt.Errorf("%s is no version", quoted(version))
	case len(version) > longestName:
		return fmt.Errorf("it has more than %d bytes", longestName)
	}
	return nil
}

// checkDependencies refuses dependencies that are null or that hold control
// characters, or a name that cannot be one.
func checkDependencies(list []*chart.Dependency) error {
	for i, d := range list {
		if d == nil {
			return fmt.Errorf("element %d is null", i)
		}
		for _, field := range []struct{ name, text string }{
			{"name", d.Name}, {"version", d.Version}, {"repository", d.Repository}, {"alias", d.Alias},
		} {
			if strings.ContainsFunc(field.text, unicode.IsControl) {
				return fmt.Errorf("element %d: %s has control characters", i, field.name)
			}
		}
		if err := checkName(d.Name); err != nil {
			return fmt.Errorf("element %d: name: %w", i, err)
		}
	}
	return nil
}

// readLock reads the lock file of a chart: that of its apiVersion, or else the
// other one.
func readLock(files fs.FS, apiVersion string) (*chart.Lock, error) {
	names := []string{lockFile, requiredLock}
	if apiVersion == chart.APIVersionV1 {
		names = []string{requiredLock, lockFile}
	}
	for _, name := range names {
		text, err := readFile(files, name, textBytes)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var lock *chart.Lock
		if err := decode(text, &lock); err != nil {
			return nil, invalid(name, "%w", err)
		}
		if lock == nil {
			lock = &chart.Lock{}
		}
		if err := checkDependencies(lock.Dependencies); err != nil {
			return nil, invalid(name, "field dependencies: %w", err)
		}
		return lock, nil
	}
	return nil, nil
}
