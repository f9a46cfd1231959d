package source

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/artifact"
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
	switch in := versionSet(version); {
	case group != Group && group != ReferenceGroup:
		return nil, nil, fmt.Errorf("convert %s: unknown group %s: use %s or %s", head, quote(group), Group, ReferenceGroup)
	case in == inNone:
		return nil, nil, fmt.Errorf("convert %s: unknown version %s: use v1 or v1beta2", head, quote(version))
	case k.in&in == 0:
		return nil, nil, fmt.Errorf("convert %s: the kind does not exist in %s", head, version)
	}
	out, err := copyOf(obj)
	if err != nil {
		return nil, nil, fmt.Errorf("convert %s: %w", head, err)
	}
	var found document.Findings
	drop(out, k, versionSet(version), &found)
	head = out.Head()
	head.APIVersion, head.Kind, head.spelled = group+"/"+version, k.name, ""
	convertReference(out)
	convertMode(out, &found)
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

// convertReference brings the reference of a chart to its source along.
func convertReference(obj Object) {
	c, ok := obj.(*PkgChart)
	if !ok {
		return
	}
	ref := Header{APIVersion: c.Spec.SourceRef.APIVersion}
	if g := ref.Group(); g == Group || g == ReferenceGroup {
		c.Spec.SourceRef.APIVersion = c.APIVersion
	}
}

// convertMode spells the mode of verification as the version of obj does: only
// v1 has more than head (specification, "GitRepositoryVerification").
func convertMode(obj Object, found *document.Findings) {
	g, ok := obj.(*GitRepository)
	if !ok || g.Spec.Verify == nil {
		return
	}
	mode := g.Spec.Verify.mode()
	switch {
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

// The old spellings of revisions (reference A4).
var (
	oldNamed = regexp.MustCompile(`^(.+)/([0-9a-f]{40}|[0-9a-f]{64})$`)
	oldBare  = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
)

// renewRevisions writes the revisions in the status in today's spelling, without
// a change of what the status may share with that of another object. The
// revision of a chart's own artifact is its version, and an ExternalArtifact is
// younger than the old spellings: these stay.
func renewRevisions(obj Object) {
	switch obj := obj.(type) {
	case *PkgChart:
		rev := &obj.Status.ObservedSourceArtifactRevision
		*rev = renewRevision(*rev)
		return
	case *ExternalArtifact:
		return
	case *GitRepository:
		all := &obj.Status.IncludedArtifacts
		if slices.ContainsFunc(*all, func(a artifact.Artifact) bool { return renewRevision(a.Revision) != a.Revision }) {
			*all = slices.Clone(*all)
			for i := range *all {
				(*all)[i].Revision = renewRevision((*all)[i].Revision)
			}
		}
	}
	status := obj.Common()
	if a := status.Artifact; a != nil && renewRevision(a.Revision) != a.Revision {
		status.Artifact = new(*a)
		status.Artifact.Revision = renewRevision(a.Revision)
	}
}

// renewRevision returns main@sha1:HEX for main/HEX, and sha1:HEX for HEAD/HEX and HEX.
func renewRevision(rev string) string {
	if oldBare.MatchString(rev) {
		return algorithmOf(rev) + rev
	}
	m := oldNamed.FindStringSubmatch(rev)
	switch {
	case m == nil:
		return rev
	case m[1] == "HEAD":
		return algorithmOf(m[2]) + m[2]
	}
	return m[1] + "@" + algorithmOf(m[2]) + m[2]
}

// algorithmOf returns the prefix of a hash whose length tells what it is.
func algorithmOf(hex string) string {
	if len(hex) == 40 {
		return "sha1:"
	}
	return "sha256:"
}
