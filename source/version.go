package source

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/headgate-io/headgate/internal/document"
)

// A fieldRow says where a field exists and what becomes of it. Fields without
// a row exist in both versions.
type fieldRow struct {
	kind     string       // "" for every kind
	path     string       // items of lists as []
	in       versions     // where documents may have it
	optional versions     // where it may be missing although its Go field is required
	shape    reflect.Type // of a deprecated field that has no Go field: it is checked, warned about and not written
	note     string       // the warning
	// read carries the value of a deprecated field over to what replaced it.
	read func(obj Object, at, text string)
	// means is the value that says no more than a missing field.
	means string
}

// gitImplementation is the shape of the name of a client library.
type gitImplementation string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (*gitImplementation) UnmarshalText(text []byte) error {
	if name := string(text); name != "go-git" && name != "libgit2" {
		return fmt.Errorf("must be go-git or libgit2, not %s; it has no effect: remove it", quote(name))
	}
	return nil
}

var (
	textShape           = reflect.TypeFor[string]()
	accessShape         = reflect.TypeFor[AccessFrom]()
	implementationShape = reflect.TypeFor[gitImplementation]()
)

const (
	accessNote   = "is deprecated and has no effect: no implementation honours it; remove it"
	configNote   = "is deprecated: the observed* fields replace it"
	checksumNote = "is deprecated: digest replaces it"
)

// fieldRows is the field-by-version table of the specification ("Versioning")
// and of reference section 0; it never changes.
var fieldRows = []fieldRow{
	{kind: "GitRepository", path: "spec.provider", in: inV1, means: "generic"},
	{kind: "GitRepository", path: "spec.proxySecretRef", in: inV1},
	{kind: "GitRepository", path: "spec.serviceAccountName", in: inV1},
	{kind: "GitRepository", path: "spec.sparseCheckout", in: inV1},
	{kind: "GitRepository", path: "spec.lfs", in: inV1},
	{kind: "GitRepository", path: "spec.submoduleCredentials", in: inV1},
	{kind: "GitRepository", path: "status.observedLFS", in: inV1},
	{kind: "GitRepository", path: "spec.gitImplementation", in: inV1Beta2, shape: implementationShape,
		note: "is deprecated and has no effect: there is one implementation; remove it"},
	{kind: "GitRepository", path: "spec.accessFrom", in: inV1Beta2, shape: accessShape, note: accessNote},
	{kind: "GitRepository", path: "status.observedSparseCheckout", in: inV1},
	{kind: "GitRepository", path: "status.sourceVerificationMode", in: inV1},
	{kind: "GitRepository", path: "status.url", in: inV1Beta2},
	{kind: "GitRepository", path: "status.contentConfigChecksum", in: inV1Beta2, shape: textShape, note: configNote},
	{kind: "GitRepository", path: "status.includedArtifacts[].revision", in: inBoth, optional: inV1Beta2},
	{kind: "GitRepository", path: "status.includedArtifacts[].checksum", in: inV1Beta2, shape: textShape,
		note: checksumNote, read: readIncludedChecksum},

	{kind: "Bucket", path: "spec.serviceAccountName", in: inV1},
	{kind: "Bucket", path: "spec.accessFrom", in: inV1Beta2, shape: accessShape, note: accessNote},

	{kind: "PkgChart", path: "spec.accessFrom", in: inV1Beta2, shape: accessShape, note: accessNote},
	{kind: "PkgChart", path: "spec.valuesFile", in: inV1Beta2, shape: textShape,
		note: "is deprecated: put it first in valuesFiles", read: readValuesFile},
	{kind: "PkgChart", path: "spec.verify.trustedRootSecretRef", in: 0},

	{kind: "OCIRepository", path: "spec.verify.trustedRootSecretRef", in: inV1},
	{kind: "OCIRepository", path: "status.contentConfigChecksum", in: inV1Beta2, shape: textShape, note: configNote},

	{path: "status.artifact.revision", in: inBoth, optional: inV1Beta2},
	{path: "status.artifact.checksum", in: inV1Beta2, shape: textShape, note: checksumNote, read: readChecksum},
}

// rowOf returns the row of the field of a kind, nil when it has none.
func rowOf(kind, path string) *fieldRow {
	for i := range fieldRows {
		if r := &fieldRows[i]; r.path == path && (r.kind == "" || r.kind == kind) {
			return r
		}
	}
	return nil
}

// rules returns what the table of fields says of documents of a kind in a version.
func (k *kind) rules(in versions) func(string) document.Rule {
	return func(path string) document.Rule {
		rule := document.Rule{}
		if strings.HasSuffix(path, ".timeout") {
			rule.Text = checkTimeout
		}
		row := rowOf(k.name, path)
		if row == nil {
			return rule
		}
		if row.in&in == 0 {
			rule.Refused = row.elsewhere(k)
		}
		rule.Optional = row.optional&in != 0
		rule.Shape, rule.Warning = row.shape, row.note
		return rule
	}
}

// checkTimeout refuses the unit h, which timeouts do not have.
func checkTimeout(text string) error {
	if _, err := ParseDuration(text); err == nil && strings.Contains(text, "h") {
		return fmt.Errorf("%s has the unit h: write a timeout with the units ms, s and m", quote(text))
	}
	return nil
}

// elsewhere says where a field that does not belong here exists.
func (r *fieldRow) elsewhere(k *kind) string {
	switch r.in {
	case inV1:
		return "exists in v1 only: set apiVersion to v1"
	case inV1Beta2:
		if r.note == "" {
			return "exists in v1beta2 only: remove it"
		}
		return "exists in v1beta2 only, where it " + r.note
	}
	return "does not exist for " + k.name + ": remove it"
}

func readValuesFile(obj Object, _, text string) {
	if c, ok := obj.(*PkgChart); ok && text != "" {
		c.Spec.ValuesFiles = append([]string{text}, c.Spec.ValuesFiles...)
	}
}

func readChecksum(obj Object, _, text string) {
	if a := obj.Common().Artifact; a != nil && a.Digest == "" && text != "" {
		a.Digest = "sha256:" + text
	}
}

func readIncludedChecksum(obj Object, at, text string) {
	g, ok := obj.(*GitRepository)
	if !ok || text == "" {
		return
	}
	i := 0
	_, err := fmt.Sscanf(at, "status.includedArtifacts[%d]", &i)
	if err == nil && i < len(g.Status.IncludedArtifacts) && g.Status.IncludedArtifacts[i].Digest == "" {
		g.Status.IncludedArtifacts[i].Digest = "sha256:" + text
	}
}
