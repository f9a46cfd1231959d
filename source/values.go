package source

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/document"
)

// chartSources are the kinds that can hold a chart.
var chartSources = []string{"PkgRepository", "GitRepository", "Bucket", "OCIRepository"}

// valuesSources are the kinds whose artifacts can hold values files. A PkgChart
// is none: charts could then be made of each other.
var valuesSources = []string{"GitRepository", "Bucket", "OCIRepository", "ExternalArtifact"}

// A ValuesFile is one element of spec.valuesFiles, taken apart.
type ValuesFile struct {
	Text   string    // as the spec spells it
	Source Reference // whose artifact has the file; zero for the chart's own source
	Path   string    // as fs.ValidPath has it, of the file in there
}

// Values returns spec.valuesFiles, taken apart, in order. An element is a path
// or, headgate's extension, a file of the artifact of another source in the same
// namespace: source:NAME/PATH for a GitRepository, or source:KIND/NAME/PATH. A
// KIND begins with a capital, a name never does. Both are paths in an artifact: a
// leading slash of the former is the root of the chart's own source. One that
// begins with source: is written ./source:…
//
// The error names the first element that is none of these, and wraps [ErrInvalid].
func (c *PkgChart) Values() ([]ValuesFile, error) {
	files := make([]ValuesFile, len(c.Spec.ValuesFiles))
	for i, text := range c.Spec.ValuesFiles {
		var err error
		if files[i], err = c.valuesFile(text); err != nil {
			return nil, fmt.Errorf("%w: spec.valuesFiles[%d] %w", ErrInvalid, i, err)
		}
	}
	return files, nil
}

// valuesFile takes one element apart.
func (c *PkgChart) valuesFile(text string) (ValuesFile, error) {
	v := ValuesFile{Text: text}
	within, elsewhere := strings.CutPrefix(text, "source:")
	if elsewhere {
		var err error
		if v.Source, within, err = c.valuesSource(within); err != nil {
			return v, err
		}
	}
	if elsewhere && strings.HasPrefix(within, "/") {
		return v, errSourceForm
	}
	if err := insidePath(within); err != nil {
		return v, err
	}
	v.Path = strings.TrimPrefix(path.Clean("/"+within), "/")
	switch {
	case elsewhere && v.Path == "":
		return v, errSourceForm
	case v.Path == "":
		v.Path = "." // no file, as the build will tell
	case !fs.ValidPath(v.Path):
		return v, errors.New("must be UTF-8 text")
	}
	return v, nil
}

var errSourceForm = errors.New("must be source:NAME/PATH, the path of a file in a GitRepository, or source:KIND/NAME/PATH")

// valuesSource takes [KIND/]NAME/PATH apart.
func (c *PkgChart) valuesSource(text string) (ref Reference, within string, err error) {
	kind := "GitRepository"
	if text != "" && 'A' <= text[0] && text[0] <= 'Z' {
		kind, text, _ = strings.Cut(text, "/")
	}
	name, within, found := strings.Cut(text, "/")
	k := spelledKind(kind)
	switch {
	case k == nil || !slices.Contains(valuesSources, k.name):
		return ref, "", fmt.Errorf("names a source of kind %s: values come from %s", quote(kind), strings.Join(valuesSources, ", "))
	case !found:
		return ref, "", errSourceForm
	}
	if err := objectName(name); err != nil {
		return ref, "", fmt.Errorf("names a source of which %w", err)
	}
	return Reference{k.name, c.Metadata.space(), name}, within, nil
}

// Source returns the name of the source that holds the chart; ok is false when
// its kind is one that cannot.
func (c *PkgChart) Source() (ref Reference, ok bool) {
	k := spelledKind(c.Spec.SourceRef.Kind)
	if k == nil || !slices.Contains(chartSources, k.name) {
		return ref, false
	}
	return Reference{k.name, c.Metadata.space(), c.Spec.SourceRef.Name}, true
}

// needs returns the sources that the chart is made of, each once: the one that
// holds it, then those of its values. What is no reference is left out.
func (c *PkgChart) needs() []Reference {
	var refs []Reference
	if ref, ok := c.Source(); ok {
		refs = append(refs, ref)
	}
	for _, text := range c.Spec.ValuesFiles {
		if v, err := c.valuesFile(text); err == nil && v.Source != (Reference{}) && !slices.Contains(refs, v.Source) {
			refs = append(refs, v.Source)
		}
	}
	return refs
}

// checkValues checks spec.valuesFiles.
func (c *PkgChart) checkValues(found *document.Findings) {
	for i, text := range c.Spec.ValuesFiles {
		if _, err := c.valuesFile(text); err != nil {
			found.Add(fmt.Sprintf("spec.valuesFiles[%d]", i), "%w", err)
		}
	}
}
