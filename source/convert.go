package source

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/document"
)

// Convert returns obj in another version and group; an empty version or group is not changed.
// Fields that the version does not have are dropped; each warning, a *DocumentError, names a
// dropped field that had an effect. The error says why no such object can exist. Convert does not
// change obj.
func Convert(obj Object, version, group string) (Object, []error, error) {
	head := obj.Head()
	k := kindBySpelling(head.Kind)
	if k == nil {
		return nil, nil, fmt.Errorf("convert %s: unknown kind", head)
	}
	if k.group != "" { // it exists in one version of one group only
		version, group = k.only, k.group
	}
	setDefault(&version, head.Version())
	setDefault(&group, head.Group())
	switch {
	case group != cmp.Or(k.group, Group) && group != cmp.Or(k.group, ReferenceGroup):
		return nil, nil, fmt.Errorf("convert %s: unknown group %s: use %s or %s", head, quote(group), Group, ReferenceGroup)
	case version != V1 && version != V1Beta2 && version != k.only:
		return nil, nil, fmt.Errorf("convert %s: unknown version %s: use v1 or v1beta2", head, quote(version))
	case !k.exists(version):
		return nil, nil, fmt.Errorf("convert %s: the kind does not exist in %s", head, version)
	}
	out, err := deepCopy(obj)
	if err != nil {
		return nil, nil, fmt.Errorf("convert %s: %w", head, err)
	}
	var found document.Findings
	removeFields(out, k, version, &found)
	head = out.Head()
	head.APIVersion, head.Kind, head.spelled = group+"/"+version, k.name, ""
	switch obj := out.(type) {
	case *PkgChart: // its reference to its source changes with it
		ref := Header{APIVersion: obj.Spec.SourceRef.APIVersion}
		if g := ref.Group(); g == Group || g == ReferenceGroup {
			obj.Spec.SourceRef.APIVersion = obj.APIVersion
		}
	case *GitRepository:
		convertMode(obj, &found)
	}
	if group == ReferenceGroup {
		found.Examine(out, extensions[k.name])
	}
	return out, found.ErrorsFor(head.String()), nil
}

// removeFields removes the fields that a kind does not have in a version. It does not warn about the
// status, which is computed again.
func removeFields(obj Object, k *kind, version string, found *document.Findings) {
	for _, fact := range slices.Concat(tables[k.name]...) {
		if cmp.Or(fact.Only, version) == version || fact.Shape != nil {
			continue
		}
		for _, v := range document.At(reflect.ValueOf(obj), fact.At) {
			means := !v.IsZero() && v.Interface() != fact.Default
			found.AddIf(means && strings.HasPrefix(v.Path, "spec."), v.Path, "does not exist in that version and was dropped")
			v.SetZero()
		}
	}
}

// convertMode spells the verification mode as in the version of g: only v1 has modes beside head
// (specification, "GitRepositoryVerification").
func convertMode(g *GitRepository, found *document.Findings) {
	mode := g.Spec.Verify.mode()
	switch {
	case mode == "":
	case g.Version() == V1:
		g.Spec.Verify.Mode = mode
	case mode == VerifyHEAD:
		g.Spec.Verify.Mode = VerifyHead
	default:
		found.Add("spec.verify.mode", "%s does not exist in that version, which has head only: it was kept", mode)
	}
}

// extensions are the features that only headgate supports, by kind.
var extensions = map[string][]document.Fact{
	"GitRepository": {
		{At: "spec.include[].repository.kind", Must: musts{matching("^(GitRepository)?$", "is headgate's extension: the reference implementation does not know it")}},
	},
	"PkgRepository": {
		{At: "spec.verify", Must: musts{refuse("is headgate's extension: the reference implementation does not know it")}},
	},
	"PkgChart": {
		{At: "spec.sourceRef.kind", Must: musts{without("^OCIRepository$", "OCIRepository is headgate's extension: the reference implementation refuses it")}},
		{At: "spec.valuesFiles[]", Must: musts{without("^source:", "source: is headgate's extension: the reference implementation takes it for a file name")}},
	},
}

// renewRevisions converts the revisions in the status to the current format, without changing
// memory that the status may share with another object. The revision of a chart's own artifact is
// its version, and ExternalArtifact is newer than the old format, so these are not converted.
func renewRevisions(obj Object) {
	switch obj := obj.(type) {
	case *PkgChart:
		obj.Status.ObservedSourceArtifactRevision = renewRevision(obj.Status.ObservedSourceArtifactRevision)
		return
	case *ExternalArtifact:
		return
	case *GitRepository:
		included := slices.Clone(obj.Status.IncludedArtifacts)
		for i := range included {
			included[i].Revision = renewRevision(included[i].Revision)
		}
		obj.Status.IncludedArtifacts = included
	}
	if a := clone(obj.Common().Artifact); a != nil {
		a.Revision = renewRevision(a.Revision)
		obj.Common().Artifact = a
	}
}

// oldRevision matches the old format of revisions (reference A4): main/HEX, HEAD/HEX or HEX.
var oldRevision = regexp.MustCompile(`^(?:(.+)/)?([0-9a-f]{40}|[0-9a-f]{64})$`)

// renewRevision returns main@sha1:HEX for main/HEX, and sha1:HEX for HEAD/HEX and HEX.
func renewRevision(rev string) string {
	m := oldRevision.FindStringSubmatch(rev)
	if m == nil {
		return rev
	}
	digest := map[int]string{40: "sha1:", 64: "sha256:"}[len(m[2])] + m[2]
	if m[1] == "" || m[1] == "HEAD" {
		return digest
	}
	return m[1] + "@" + digest
}
