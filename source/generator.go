package source

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/document"
)

// The API group and version of ArtifactGenerator, which exists in no other.
const (
	GeneratorGroup   = "source.extensions.fluxcd.io"
	GeneratorVersion = "v1beta1"
)

// ArtifactGenerator makes artifacts from parts of the artifacts of other sources. Each artifact
// belongs to an ExternalArtifact, see [ArtifactGenerator.Outputs]. The generator itself has no
// artifact; its status summarizes theirs.
type ArtifactGenerator struct {
	Header
	Spec   ArtifactGeneratorSpec   `json:"spec"`
	Status ArtifactGeneratorStatus `json:"status,omitzero"`
}

// ArtifactGeneratorSpec is the spec of an ArtifactGenerator.
type ArtifactGeneratorSpec struct {
	CommonMetadata CommonMetadata    `json:"commonMetadata,omitzero"` // of each ExternalArtifact
	Sources        []GeneratorSource `json:"sources"`
	Artifacts      []OutputArtifact  `json:"artifacts"`
}

// CommonMetadata is added to the metadata of the generated objects.
type CommonMetadata struct {
	Annotations map[string]string `json:"annotations,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
}

// A GeneratorSource names a source of a generator.
type GeneratorSource struct {
	Alias     string `json:"alias"` // unique in the generator
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"` // default: that of the generator
}

// An OutputArtifact specifies one artifact.
type OutputArtifact struct {
	Name           string          `json:"name"`                     // of the ExternalArtifact
	Revision       string          `json:"revision,omitempty"`       // @ALIAS of the source whose revision it gets; default latest@ and its digest
	OriginRevision string          `json:"originRevision,omitempty"` // @ALIAS of the source whose revision its metadata get
	Copy           []CopyOperation `json:"copy"`                     // in order
}

// A CopyOperation copies files of a source. Package source/generator specifies how.
type CopyOperation struct {
	From     string   `json:"from"` // @ALIAS/PATTERN
	To       string   `json:"to"`   // @artifact/PATH
	Exclude  []string `json:"exclude,omitempty"`
	Strategy string   `json:"strategy,omitempty"`
	Optional bool     `json:"optional,omitempty"` // it is no error if nothing matches
}

// The values of spec.artifacts[].copy[].strategy.
const (
	CopyOverwrite = "Overwrite" // the default
	CopyMerge     = "Merge"     // YAML files, as helm merges values
	CopyExtract   = "Extract"   // archives
)

// Source returns the alias of the source, and the path or pattern inside it.
func (c *CopyOperation) Source() (alias, pattern string) {
	alias, pattern, _ = strings.Cut(strings.TrimPrefix(c.From, "@"), "/")
	return alias, fsPath(pattern)
}

// Target returns the path in the artifact, and whether it is a folder.
func (c *CopyOperation) Target() (name string, folder bool) {
	name = strings.TrimPrefix(c.To, "@artifact/")
	return fsPath(name), name == "" || strings.HasSuffix(name, "/")
}

// fsPath returns a path as in [fs.ValidPath].
func fsPath(name string) string { return cmp.Or(path.Clean("/" + name)[1:], ".") }

// ArtifactGeneratorStatus is the observed state of an ArtifactGenerator.
type ArtifactGeneratorStatus struct {
	Status
	Inventory             []InventoryEntry `json:"inventory,omitempty"`
	ObservedSourcesDigest string           `json:"observedSourcesDigest,omitempty"` // of the artifacts of the sources
}

// An InventoryEntry describes an artifact that a generator made.
type InventoryEntry struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Digest    string `json:"digest"`
	Filename  string `json:"filename"`
}

// Common implements [Object].
func (g *ArtifactGenerator) Common() *Status { return &g.Status.Status }

// Artifact implements [Source]. It returns nil.
func (g *ArtifactGenerator) Artifact() *artifact.Artifact { return nil }

const generatorInterval = time.Hour

// Interval implements [Source]. Changes of sources are processed without waiting for it.
func (g *ArtifactGenerator) Interval() time.Duration { return generatorInterval }

// suspendAnnotation is the annotation that suspends a generator with the value "disabled", in upper or
// lower case.
const suspendAnnotation = GeneratorGroup + "/reconcile"

// Plan implements [Object]. A generator needs its outputs, whose state it summarizes.
func (g *ArtifactGenerator) Plan() Plan {
	p := Plan{Suspend: strings.EqualFold(g.Metadata.Annotations[suspendAnnotation], "disabled"), Words: kindBySpelling("ArtifactGenerator").words}
	for _, a := range g.Spec.Artifacts {
		p.Needs = append(p.Needs, Reference{"ExternalArtifact", g.Metadata.namespace(), a.Name})
	}
	return p
}

// Drift implements [Object].
func (g *ArtifactGenerator) Drift(Revision) string { return "" }

// Observe implements [Object].
func (g *ArtifactGenerator) Observe(Revision) {}

// observeInputs records the outputs and the digest of the sources. seen has the artifacts in the order of the
// spec, the zero Artifact for a missing one, followed by those of the sources.
func (g *ArtifactGenerator) observeInputs(seen []artifact.Artifact) {
	g.Status.Inventory = nil
	for i, out := range g.Spec.Artifacts {
		if a := seen[i]; a.Digest != "" {
			g.Status.Inventory = append(g.Status.Inventory, InventoryEntry{out.Name, g.Metadata.namespace(), a.Digest, path.Base(a.Path)})
		}
	}
	sum := sha256.New()
	for _, a := range seen[len(g.Spec.Artifacts):] {
		fmt.Fprintln(sum, a.Revision, a.Digest)
	}
	g.Status.ObservedSourcesDigest = fmt.Sprintf("sha256:%x", sum.Sum(nil))
}

// A Composition specifies how the artifact of an [ExternalArtifact] is made.
type Composition struct {
	Sources  []GeneratorSource `json:"sources"` // the sources that Artifact uses, with their namespaces
	Artifact OutputArtifact    `json:"artifact"`

	Field   string `json:"-"` // position of Artifact in the generator: spec.artifacts[0]
	Suspend bool   `json:"-"`
}

// Reference returns the reference to the source.
func (s GeneratorSource) Reference() Reference { return Reference{s.Kind, s.Namespace, s.Name} }

// Find returns the source with an alias, given as @ALIAS, or the zero Reference.
func (c *Composition) Find(alias string) (found Reference) {
	for _, s := range c.Sources {
		if "@"+s.Alias == alias {
			found = s.Reference()
		}
	}
	return found
}

// Outputs returns the ExternalArtifacts that g makes, in the order of spec.artifacts.
// [Set.Decode] adds them to its set. A program that makes a generator in Go must add them to the
// objects itself. They have the labels of g and of its spec.commonMetadata. Outputs fills in the
// defaults of g.
func (g *ArtifactGenerator) Outputs() []*ExternalArtifact {
	Default(g)
	space, suspended, outputs := g.Metadata.namespace(), g.Plan().Suspend, make([]*ExternalArtifact, len(g.Spec.Artifacts))
	labels, annotations := map[string]string{}, map[string]string{}
	maps.Copy(labels, g.Metadata.Labels)
	maps.Copy(labels, g.Spec.CommonMetadata.Labels)
	maps.Copy(annotations, g.Spec.CommonMetadata.Annotations)
	for _, key := range requestAnnotations {
		if at := g.Metadata.Annotations[key]; at != "" {
			annotations[key] = at
		}
	}
	for i, a := range g.Spec.Artifacts {
		c := &Composition{Artifact: a, Field: fmt.Sprintf("spec.artifacts[%d]", i), Suspend: suspended}
		used := map[string]bool{a.Revision: true, a.OriginRevision: true}
		for _, op := range a.Copy {
			alias, _ := op.Source()
			used["@"+alias] = true
		}
		for _, s := range g.Spec.Sources {
			setDefault(&s.Namespace, space)
			if used["@"+s.Alias] {
				c.Sources = append(c.Sources, s)
			}
		}
		outputs[i] = &ExternalArtifact{
			Header: Header{APIVersion: ReferenceGroup + "/" + V1, Kind: "ExternalArtifact", Metadata: Metadata{
				Name: a.Name, Namespace: space, Labels: labels, Annotations: annotations,
				Generation: 1, // its spec never changes
			}},
			Spec:     ExternalArtifactSpec{&ExternalSourceReference{g.APIVersion, g.Kind, g.Metadata.Name, space}},
			Composed: c,
		}
	}
	return outputs
}

// outputConflicts returns an error for each output of g that the set already has.
func (s *Set) outputConflicts(g *ArtifactGenerator, position DocumentError) (errs []error) {
	for i, output := range g.Plan().Needs {
		if err := s.duplicateError(output.String()); err != nil {
			at := position
			at.Field, at.Err = fmt.Sprintf("spec.artifacts[%d].name", i), fmt.Errorf("makes %s, which %w", output, err)
			errs = append(errs, &at)
		}
	}
	return errs
}

// addGenerator adds a generator and its outputs, or neither if the set already has one of the outputs.
func (d *streamDecoder) addGenerator(g *ArtifactGenerator) {
	position := d.set.At(g)
	if clashes := d.set.outputConflicts(g, position); clashes != nil {
		d.Note(clashes...)
		return
	}
	d.set.Objects = append(d.set.Objects, g)
	for _, output := range g.Outputs() {
		put(&d.set.positions, ReferenceTo(output).String(), position)
		d.set.Objects = append(d.set.Objects, output)
	}
}

// generatorSources are the kinds that a generator can copy from.
var generatorSources = []string{"GitRepository", "OCIRepository", "Bucket", "PkgChart", "ExternalArtifact"}

const aliasForm = `[a-z0-9]([a-z0-9_-]*[a-z0-9])?`

var generatorFacts = slices.Concat([]document.Fact{
	{At: "spec.sources", Must: musts{items(1, maxItems)}},
	{At: "spec.sources[].alias", Must: musts{matching("^"+aliasForm+"$", "must be lower-case letters, digits, '-' and '_', with a letter or digit at both ends, not %s"), atMost(63)}},
	{At: "spec.sources[].kind", Must: musts{filled, withAlternative(oneOf(generatorSources...), "HelmChart")}},
	{At: "spec.sources[].namespace", Must: musts{optionalName}},
	{At: "spec.artifacts", Must: musts{items(1, maxItems), distinct}},
	{At: "spec.artifacts[].name", Must: musts{objectName}},
	{At: "spec.artifacts[].revision", Must: musts{oneAlias, declared}},
	{At: "spec.artifacts[].originRevision", Must: musts{oneAlias, declared}},
	{At: "spec.artifacts[].copy", Must: musts{items(1, maxItems)}},
	{At: "spec.artifacts[].copy[].from", Must: musts{
		matching("^@"+aliasForm+"/", "must be @ALIAS/PATTERN, ALIAS one of spec.sources, not %s"), atMost(1024), declared, goOnly(checkPattern),
	}},
	{At: "spec.artifacts[].copy[].to", Must: musts{
		matching("^@artifact/", "must be @artifact/PATH, a path in the artifact, not %s"), atMost(1024), goOnly(checkNoParent), goOnly(insidePath),
	}},
	{At: "spec.artifacts[].copy[].exclude", Must: musts{items(0, 100)}},
	{At: "spec.artifacts[].copy[].exclude[]", Must: musts{filled, goOnly(checkPattern)}},
	{At: "spec.artifacts[].copy[].strategy", Default: CopyOverwrite, Must: musts{oneOf(CopyOverwrite, CopyMerge, CopyExtract)}},
	{At: "status.artifact", Only: noVersion},
	{At: "status.url", Only: noVersion},
}, references("spec.sources[]"))

// oneAlias requires @ALIAS.
var oneAlias = form("^@"+aliasForm+"$", "be @ALIAS, the alias of one of spec.sources")

// declared requires that the alias at the beginning of a text is that of exactly one source.
var declared = document.Requirement{Check: func(object, v reflect.Value) error {
	alias, _, _ := strings.Cut(strings.TrimPrefix(v.String(), "@"), "/")
	has, sources := 0, object.Interface().(*ArtifactGenerator).Spec.Sources
	for _, s := range sources[:min(len(sources), maxItems)] { // longer lists are refused elsewhere
		if s.Alias == alias {
			has++
		}
	}
	if has == 1 || alias == "" || len(sources) > maxItems {
		return nil
	}
	return fmt.Errorf("names @%s, which is the alias of %d of spec.sources: it must be that of one", alias, has)
}}

// distinct requires that the names of artifacts differ.
var distinct = goOnly(func(all []OutputArtifact) error {
	seen := map[string]bool{}
	for _, a := range all {
		if seen[a.Name] {
			return fmt.Errorf("must not have two entries with the name %s", quote(a.Name))
		}
		seen[a.Name] = true
	}
	return nil
})

const maxItems = 1000 // of a list

// items requires a list of least to most values.
func items(least, most int) document.Requirement {
	return document.Requirement{Schema: keywords{"minItems": least, "maxItems": most}, Check: func(_, v reflect.Value) error {
		return errorUnless(least <= v.Len() && v.Len() <= most, fmt.Sprintf("must have %d to %d entries", least, most), "")
	}}
}

// atMost requires a text of at most n characters.
func atMost(n int) document.Requirement {
	return withSchema(keywords{"maxLength": n}, func(text string) error {
		return errorUnless(utf8.RuneCountInString(text) <= n, fmt.Sprintf("must have at most %d characters", n), "")
	})
}

func checkNoParent(name string) error {
	return errorUnless(!slices.Contains(strings.Split(name, "/"), ".."), "must not have '..' as a part", "")
}

const maxAlternatives = 4096 // of a pattern; each alternative is matched separately

// checkPattern checks a pattern of paths. Each group in braces multiplies the number of
// alternatives.
func checkPattern(pattern string) error {
	alternatives := 1
	for _, group := range strings.Split(pattern, "{")[1:] {
		alternatives = min(alternatives*(1+strings.Count(group, ",")), maxAlternatives+1)
	}
	switch {
	case alternatives > maxAlternatives:
		return fmt.Errorf("must have at most %d alternatives, the product of those of each group in braces: write several operations", maxAlternatives)
	case !doublestar.ValidatePattern(pattern):
		return fmt.Errorf("%s is no pattern: a bracket or brace is not closed, or a backslash stands at the end", quote(pattern))
	}
	return errors.Join(checkNoParent(pattern), checkPrintable(pattern))
}
