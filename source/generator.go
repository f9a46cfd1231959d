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

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/document"
)

// The API group and version of ArtifactGenerator. It is in no other.
const (
	GeneratorGroup   = "source.extensions.fluxcd.io"
	GeneratorVersion = "v1beta1"
)

// ArtifactGenerator makes artifacts of parts of the artifacts of other sources. Each of
// them belongs to an ExternalArtifact, see [ArtifactGenerator.Outputs]; the generator
// itself has none, and sums up their state.
type ArtifactGenerator struct {
	Header
	Spec   ArtifactGeneratorSpec   `json:"spec"`
	Status ArtifactGeneratorStatus `json:"status,omitzero"`
}

// ArtifactGeneratorSpec says what is made of which sources.
type ArtifactGeneratorSpec struct {
	CommonMetadata *CommonMetadata   `json:"commonMetadata,omitempty"` // of each ExternalArtifact
	Sources        []GeneratorSource `json:"sources"`
	Artifacts      []OutputArtifact  `json:"artifacts"`
}

// CommonMetadata is added to the metadata of what a generator makes.
type CommonMetadata struct {
	Annotations map[string]string `json:"annotations,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
}

// A GeneratorSource names a source of a generator.
type GeneratorSource struct {
	Alias     string `json:"alias"` // unique in the generator
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"` // default that of the generator
}

// An OutputArtifact says how one artifact is made.
type OutputArtifact struct {
	Name           string          `json:"name"`                     // of the ExternalArtifact
	Revision       string          `json:"revision,omitempty"`       // @ALIAS of the source whose revision it has; default latest@ and its digest
	OriginRevision string          `json:"originRevision,omitempty"` // @ALIAS of the source whose revision its metadata have
	Copy           []CopyOperation `json:"copy"`                     // in order
}

// A CopyOperation copies files of a source. Package source/generator says how.
type CopyOperation struct {
	From     string   `json:"from"` // @ALIAS/PATTERN
	To       string   `json:"to"`   // @artifact/PATH
	Exclude  []string `json:"exclude,omitempty"`
	Strategy string   `json:"strategy,omitempty"`
	Optional bool     `json:"optional,omitempty"` // it is no error that nothing matches
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
	return alias, within(pattern)
}

// Target returns the path in the artifact, and whether it is that of a folder.
func (c *CopyOperation) Target() (name string, folder bool) {
	name = strings.TrimPrefix(c.To, "@artifact/")
	return within(name), name == "" || strings.HasSuffix(name, "/")
}

// within returns a path as fs.ValidPath has it.
func within(name string) string { return cmp.Or(path.Clean("/" + name)[1:], ".") }

// ArtifactGeneratorStatus is what was observed.
type ArtifactGeneratorStatus struct {
	Status
	Inventory             []InventoryEntry `json:"inventory,omitempty"`
	ObservedSourcesDigest string           `json:"observedSourcesDigest,omitempty"` // of the artifacts of the sources
}

// An InventoryEntry names an artifact that a generator made.
type InventoryEntry struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Digest    string `json:"digest"`
	Filename  string `json:"filename"`
}

// Common implements [Object].
func (g *ArtifactGenerator) Common() *Status { return &g.Status.Status }

// Artifact implements [Source]. There is none.
func (g *ArtifactGenerator) Artifact() *artifact.Artifact { return nil }

const generatorInterval = time.Hour

// Interval implements [Source]. Changes of sources do not wait for it.
func (g *ArtifactGenerator) Interval() time.Duration { return generatorInterval }

// suspension is the annotation that suspends a generator, with any spelling of disabled.
const suspension = GeneratorGroup + "/reconcile"

// Plan implements [Object]. A generator needs what it makes, whose state it sums up.
func (g *ArtifactGenerator) Plan() Plan {
	p := Plan{Suspend: strings.EqualFold(g.Metadata.Annotations[suspension], "disabled"), Words: spelledKind("ArtifactGenerator").words}
	for _, a := range g.Spec.Artifacts {
		p.Needs = append(p.Needs, Reference{"ExternalArtifact", g.Metadata.space(), a.Name})
	}
	return p
}

// Drift implements [Object].
func (g *ArtifactGenerator) Drift(Revision) string { return "" }

// Observe implements [Object].
func (g *ArtifactGenerator) Observe(Revision) {}

// see records what was made, and of what: seen has the artifacts in the order of the
// spec, the zero Artifact for one that is missing, and behind them those of the sources.
func (g *ArtifactGenerator) see(seen []artifact.Artifact) {
	g.Status.Inventory = nil
	for i, out := range g.Spec.Artifacts {
		if a := seen[i]; a.Digest != "" {
			g.Status.Inventory = append(g.Status.Inventory, InventoryEntry{out.Name, g.Metadata.space(), a.Digest, path.Base(a.Path)})
		}
	}
	sum := sha256.New()
	for _, a := range seen[len(g.Spec.Artifacts):] {
		fmt.Fprintln(sum, a.Revision, a.Digest)
	}
	g.Status.ObservedSourcesDigest = fmt.Sprintf("sha256:%x", sum.Sum(nil))
}

// A Composition says how the artifact of an [ExternalArtifact] is made.
type Composition struct {
	Sources  []GeneratorSource `json:"sources"` // those that Artifact names, with their namespaces
	Artifact OutputArtifact    `json:"artifact"`

	Field   string `json:"-"` // that has Artifact in the generator: spec.artifacts[0]
	Suspend bool   `json:"-"`
}

// Reference names the source.
func (s GeneratorSource) Reference() Reference { return Reference{s.Kind, s.Namespace, s.Name} }

// Find returns the source with an alias, which may have an @ before it.
func (c *Composition) Find(alias string) (Reference, bool) {
	i := slices.IndexFunc(c.Sources, func(s GeneratorSource) bool { return s.Alias == strings.TrimPrefix(alias, "@") })
	if i < 0 {
		return Reference{}, false
	}
	return c.Sources[i].Reference(), true
}

// use adds the aliases of the sources that the artifact is made of.
func (a *OutputArtifact) use(aliases map[string]bool) {
	aliases[strings.TrimPrefix(a.Revision, "@")], aliases[strings.TrimPrefix(a.OriginRevision, "@")] = true, true
	for _, c := range a.Copy {
		alias, _ := c.Source()
		aliases[alias] = true
	}
}

// Outputs returns the ExternalArtifacts that g makes, in the order of spec.artifacts.
// [Set.Decode] adds them to its set; a program that makes a generator in Go adds them
// to the objects beside it. They have the labels of g, and those of its
// spec.commonMetadata. It fills in the defaults of g.
func (g *ArtifactGenerator) Outputs() []*ExternalArtifact {
	Default(g)
	head, space, suspended := g.Head(), g.Metadata.space(), g.Plan().Suspend
	labels, annotations := maps.Clone(g.Metadata.Labels), map[string]string{}
	for _, key := range requestAnnotations {
		if at := head.Metadata.Annotations[key]; at != "" {
			annotations[key] = at
		}
	}
	if c := g.Spec.CommonMetadata; c != nil {
		maps.Copy(annotations, c.Annotations)
		for key, value := range c.Labels {
			put(&labels, key, value)
		}
	}
	outputs := make([]*ExternalArtifact, len(g.Spec.Artifacts))
	for i, a := range g.Spec.Artifacts {
		c := &Composition{Artifact: a, Field: fmt.Sprintf("spec.artifacts[%d]", i), Suspend: suspended}
		c.Artifact.Copy = slices.Clone(a.Copy)
		for j := range c.Artifact.Copy {
			if op := &c.Artifact.Copy[j]; op.Strategy == CopyOverwrite {
				op.Strategy = "" // equal compositions are equal texts
			}
		}
		used := map[string]bool{}
		a.use(used)
		for _, s := range g.Spec.Sources {
			or(&s.Namespace, space)
			if used[s.Alias] {
				c.Sources = append(c.Sources, s)
			}
		}
		outputs[i] = &ExternalArtifact{
			Header: Header{APIVersion: ReferenceGroup + "/" + V1, Kind: "ExternalArtifact", Metadata: Metadata{
				Name: a.Name, Namespace: space, Labels: labels, Annotations: annotations,
				Generation: 1, // its spec stays as it is
			}},
			Spec:     ExternalArtifactSpec{&ExternalSourceReference{head.APIVersion, head.Kind, head.Metadata.Name, space}},
			Composed: c,
		}
	}
	return outputs
}

// outputs files what a generator makes. One that would make what is there already is
// taken out of the set again.
func (d *decoding) outputs(o document.Object, g *ArtifactGenerator) {
	before, failed := len(d.set.Objects)-1, false
	for _, e := range g.Outputs() {
		name := ReferenceTo(e).String()
		err := d.set.place(name, DocumentError{File: d.File, Document: d.Number, Line: o.Line, Object: g.Head().String(), Field: e.Composed.Field + ".name"})
		if there, ok := errors.AsType[*DocumentError](err); ok {
			there.Err = fmt.Errorf("makes %s, which %w", name, there.Err)
			d.Note(there)
			failed = true
		}
		d.set.Objects = append(d.set.Objects, e)
	}
	if failed {
		d.set.Objects = d.set.Objects[:before]
	}
}

// generatorSources are the kinds that a generator copies from.
var generatorSources = []string{"GitRepository", "OCIRepository", "Bucket", "PkgChart", "ExternalArtifact"}

const aliasForm = `[a-z0-9]([a-z0-9_-]*[a-z0-9])?`

var generatorFacts = slices.Concat([]document.Fact{
	{At: "spec.commonMetadata.labels", Must: musts{goOnly(func(labels map[string]string) error {
		return checkPairs(labels, labelForm().MatchString)
	})}},
	{At: "spec.commonMetadata.annotations", Must: musts{goOnly(func(all map[string]string) error {
		return checkPairs(all, func(string) bool { return true })
	})}},
	{At: "spec.sources", Must: musts{items[GeneratorSource](), distinct("alias", func(s GeneratorSource) string { return s.Alias })}},
	{At: "spec.sources[].alias", Must: musts{
		matching("^"+aliasForm+"$", "must be lower-case letters, digits, '-' and '_', with a letter or digit at both ends, not %s"), atMost(63),
	}},
	{At: "spec.sources[].kind", Must: musts{filled, also(oneOf(generatorSources...), "HelmChart")}},
	{At: "spec.sources[].namespace", Must: musts{says(keywords{"pattern": "^(" + document.DNSLabel + ")?$", "maxLength": 63}, func(name string) error {
		if name == "" {
			return nil
		}
		return document.CheckNamespace(name)
	})}},
	{At: "spec.artifacts", Must: musts{items[OutputArtifact](), distinct("name", func(a OutputArtifact) string { return a.Name })}},
	{At: "spec.artifacts[].name", Must: musts{objectName}},
	{At: "spec.artifacts[].revision", Must: musts{oneAlias, declared}},
	{At: "spec.artifacts[].originRevision", Must: musts{oneAlias, declared}},
	{At: "spec.artifacts[].copy", Must: musts{says(keywords{"minItems": 1}, func(all []CopyOperation) error { return unless(len(all) > 0, "must have at least one operation", "") })}},
	{At: "spec.artifacts[].copy[].from", Must: musts{
		matching("^@"+aliasForm+"/", "must be @ALIAS/PATTERN, ALIAS one of spec.sources, not %s"), atMost(1024), declared,
		goOnly(func(from string) error { return checkPattern(from[strings.IndexByte(from, '/')+1:]) }),
	}},
	{At: "spec.artifacts[].copy[].to", Must: musts{
		matching("^@artifact/", "must be @artifact/PATH, a path in the artifact, not %s"), atMost(1024),
		goOnly(func(to string) error {
			if slices.Contains(strings.Split(to, "/"), "..") {
				return errors.New("must not lead out of the artifact by '..'")
			}
			return insidePath(to)
		}),
	}},
	{At: "spec.artifacts[].copy[].exclude", Must: musts{says(keywords{"maxItems": 100}, func(all []string) error {
		return unless(len(all) <= 100, "must have at most 100 patterns", "")
	})}},
	{At: "spec.artifacts[].copy[].exclude[]", Must: musts{filled, goOnly(checkPattern)}},
	{At: "spec.artifacts[].copy[].strategy", Default: CopyOverwrite, Must: musts{oneOf(CopyOverwrite, CopyMerge, CopyExtract)}},
	{At: "status.artifact", Only: nowhere},
	{At: "status.url", Only: nowhere},
}, references("spec.sources[]"))

// oneAlias wants @ALIAS.
var oneAlias = form("^@"+aliasForm+"$", "be @ALIAS, the alias of one of spec.sources")

// declared wants the alias, with which a text begins, of one of the sources.
var declared = document.Must{Check: func(object, v reflect.Value) error {
	alias, _, _ := strings.Cut(strings.TrimPrefix(v.String(), "@"), "/")
	g := object.Interface().(*ArtifactGenerator)
	if v.String() == "" || len(g.Spec.Sources) > maxItems || slices.ContainsFunc(g.Spec.Sources, func(s GeneratorSource) bool { return s.Alias == alias }) {
		return nil
	}
	return fmt.Errorf("names @%s, which is the alias of none of spec.sources", alias)
}}

const maxItems = 1000 // of a list

// items wants a list of 1 to 1000 values.
func items[T any]() document.Must {
	return says(keywords{"minItems": 1, "maxItems": maxItems}, func(all []T) error {
		if len(all) == 0 || len(all) > maxItems {
			return fmt.Errorf("must have 1 to %d entries", maxItems)
		}
		return nil
	})
}

// distinct wants values of which each has a name of its own.
func distinct[T any](field string, name func(T) string) document.Must {
	return goOnly(func(all []T) error {
		seen := map[string]int{}
		for i, item := range all {
			if first, twice := seen[name(item)]; twice {
				return fmt.Errorf("must not have two entries with the %s %s: these are %d and %d", field, quote(name(item)), first, i)
			}
			seen[name(item)] = i
		}
		return nil
	})
}

// atMost wants a text of at most n characters.
func atMost(n int) document.Must {
	return says(keywords{"maxLength": n}, func(text string) error {
		return unless(utf8.RuneCountInString(text) <= n, fmt.Sprintf("must have at most %d characters", n), "")
	})
}

// maxAlternatives bounds the patterns that one with braces stands for.
const maxAlternatives = 1000

// checkPattern checks a pattern of paths. Package path knows all of its syntax but braces.
func checkPattern(pattern string) error {
	if slices.Contains(strings.Split(pattern, "/"), "..") {
		return errors.New("must not lead out of the source by '..'")
	}
	if _, err := path.Match(pattern, ""); err != nil {
		return fmt.Errorf("%s is no pattern: a bracket is not closed, or a backslash stands at the end", quote(pattern))
	}
	alternatives := 1
	var open []int // how many alternatives each brace has
	for i := 0; i < len(pattern) && alternatives <= maxAlternatives; i++ {
		switch last := len(open) - 1; {
		case pattern[i] == '\\':
			i++
		case pattern[i] == '{':
			open = append(open, 1)
		case pattern[i] == ',' && last >= 0:
			open[last]++
		case pattern[i] == '}' && last >= 0:
			alternatives *= open[last]
			open = open[:last]
		case pattern[i] == '}':
			return fmt.Errorf("%s closes a brace that is not open", quote(pattern))
		}
	}
	switch {
	case alternatives > maxAlternatives:
		return fmt.Errorf("stands for more than %d patterns: write several operations", maxAlternatives)
	case len(open) > 0:
		return fmt.Errorf("%s has a brace that is not closed", quote(pattern))
	}
	return printing(pattern)
}

// checkPairs checks labels or annotations.
func checkPairs(all map[string]string, valid func(string) bool) error {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if err := checkKey(key); err != nil {
			return fmt.Errorf("%s: %w", quote(key), err)
		}
		if !valid(all[key]) {
			return fmt.Errorf("%s: %s is no label value: write at most 63 letters, digits, '-', '_' and '.'", quote(key), quote(all[key]))
		}
	}
	return nil
}

func (g *ArtifactGenerator) advise(found *document.Findings) {
	used := map[string]bool{}
	for _, a := range g.Spec.Artifacts {
		a.use(used)
	}
	for i, s := range g.Spec.Sources {
		found.AddIf(!used[s.Alias], fmt.Sprintf("spec.sources[%d]", i), "has no effect: no artifact uses @%s", s.Alias)
	}
}
