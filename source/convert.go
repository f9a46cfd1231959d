package source

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/document"
)

// Convert returns obj in another version and group; an empty one stays as it
// is. Fields that the version does not have are dropped; the warnings, each a
// *DocumentError, name those that mattered. The error says why there can be no
// such object. obj is not changed.
func Convert(obj Object, version, group string) (Object, []error, error) {
	head := obj.Head()
	k := spelledKind(head.Kind)
	if k == nil {
		return nil, nil, fmt.Errorf("convert %s: unknown kind", head)
	}
	or(&version, head.Version())
	or(&group, head.Group())
	switch in := versionSets[version]; {
	case group != Group && group != ReferenceGroup:
		return nil, nil, fmt.Errorf("convert %s: unknown group %s: use %s or %s", head, quote(group), Group, ReferenceGroup)
	case in == 0:
		return nil, nil, fmt.Errorf("convert %s: unknown version %s: use v1 or v1beta2", head, quote(version))
	case k.in&in == 0:
		return nil, nil, fmt.Errorf("convert %s: the kind does not exist in %s", head, version)
	}
	out, err := copyOf(obj)
	if err != nil {
		return nil, nil, fmt.Errorf("convert %s: %w", head, err)
	}
	var found document.Findings
	drop(out, k, versionSets[version], &found)
	head = out.Head()
	head.APIVersion, head.Kind, head.spelled = group+"/"+version, k.name, ""
	switch obj := out.(type) {
	case *PkgChart: // its reference to its source comes along
		ref := Header{APIVersion: obj.Spec.SourceRef.APIVersion}
		if g := ref.Group(); g == Group || g == ReferenceGroup {
			obj.Spec.SourceRef.APIVersion = obj.APIVersion
		}
	case *GitRepository:
		convertMode(obj, &found)
	}
	if group == ReferenceGroup {
		adviseExtensions(out, &found)
	}
	return out, found.Of(head.String()), nil
}

// drop removes the fields that a kind does not have in a version. Of the status,
// which is computed anew, it does not speak.
func drop(obj Object, k *kind, in versions, found *document.Findings) {
	for _, r := range fieldRows {
		if r.kind != "" && r.kind != k.name || r.in&in != 0 || r.shape != nil {
			continue
		}
		document.Each(reflect.ValueOf(obj), r.path, "", func(v reflect.Value, at string) {
			means := v.IsZero() || r.means != "" && v.String() == r.means
			found.AddIf(!means && strings.HasPrefix(at, "spec."), at, "does not exist in that version and was dropped")
			v.SetZero()
		})
	}
}

// convertMode spells the mode of verification as the version of g does: only
// v1 has more than head (specification, "GitRepositoryVerification").
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

// adviseExtensions names what only headgate understands.
func adviseExtensions(obj Object, found *document.Findings) {
	switch obj := obj.(type) {
	case *PkgChart:
		if obj.Spec.SourceRef.Kind == "OCIRepository" {
			found.Add("spec.sourceRef.kind", "OCIRepository is headgate's extension: the reference implementation refuses it")
		}
		for i, text := range obj.Spec.ValuesFiles {
			if strings.HasPrefix(text, "source:") {
				found.Add(fmt.Sprintf("spec.valuesFiles[%d]", i), "source: is headgate's extension: the reference implementation takes it for a file name")
			}
		}
	case *PkgRepository:
		if obj.Spec.Verify != nil {
			found.Add("spec.verify", "is headgate's extension: the reference implementation does not know it")
		}
	case *GitRepository:
		for i, inc := range obj.Spec.Include {
			if inc.Repository.Kind != "" && inc.Repository.Kind != "GitRepository" {
				found.Add(fmt.Sprintf("spec.include[%d].repository.kind", i),
					"is headgate's extension: the reference implementation does not know it")
			}
		}
	}
}

// renewRevisions writes the revisions in the status in today's spelling, without
// a change of what the status may share with that of another object. The
// revision of a chart's own artifact is its version, and an ExternalArtifact is
// younger than the old spellings: these stay.
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

// oldRevision is how revisions were spelled (reference A4): main/HEX, HEAD/HEX or HEX.
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
