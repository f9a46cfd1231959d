package oci_test

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

const chartLayer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

func TestSelection(t *testing.T) {
	for _, row := range []struct {
		name, tags string
		ref        *source.OCIRepositoryRef
		chart      bool
		want       string // the tag
		err        string
	}{
		{"default", "1.0.0 latest", nil, false, "latest", ""},
		{"tag", "1.0.0 latest", &source.OCIRepositoryRef{Tag: "1.0.0"}, false, "1.0.0", ""},
		{"absent tag", "1.0.0", &source.OCIRepositoryRef{Tag: "2.0.0"}, false, "", "2.0.0"},
		{"semver before tag", "1.0.0 1.1.0", &source.OCIRepositoryRef{SemVer: "*", Tag: "1.0.0"}, false, "1.1.0", ""},
		{"highest of many pages", "0.9.0 1.10.0 1.2.0 1.9.9 2.0.0 a b", &source.OCIRepositoryRef{SemVer: "1.x"}, false, "1.10.0", ""},
		{"no pre-release", "1.0.0 1.1.0-rc.1", &source.OCIRepositoryRef{SemVer: ">=1.0.0"}, false, "1.0.0", ""},
		{"a pre-release", "1.0.0 1.1.0-rc.1 1.1.0-rc.2", &source.OCIRepositoryRef{SemVer: ">=1.0.0-0"}, false, "1.1.0-rc.2", ""},
		{"filter", "1.0.0 1.1.0-rc.1 1.2.0-dev.1", &source.OCIRepositoryRef{SemVer: ">=1.0.0-0", SemVerFilter: ".*-rc.*"}, false, "1.1.0-rc.1", ""},
		{"a tie by a leading v", "1.0.0 v1.0.0", &source.OCIRepositoryRef{SemVer: "1.x"}, false, "v1.0.0", ""},
		{"no version with _", "1.0.0 1.1.0_debug", &source.OCIRepositoryRef{SemVer: "1.x"}, false, "1.0.0", ""},
		{"a chart's _", "1.0.0 1.1.0_debug", &source.OCIRepositoryRef{SemVer: "1.x"}, true, "1.1.0_debug", ""},
		{"a tie by build metadata", "1.0.0 1.0.0_build.10 1.0.0_build.9", &source.OCIRepositoryRef{SemVer: "1.x"}, true, "1.0.0_build.10", ""},
		{"a tie by both", "1.0.0_b v1.0.0_b v1.0.0_a", &source.OCIRepositoryRef{SemVer: "1.x"}, true, "v1.0.0_b", ""},
		{"nothing in the range", "1.0.0 2.0.0 x", &source.OCIRepositoryRef{SemVer: "3.x"}, false, "", `no tag of 3 matches spec.ref.semver "3.x"`},
		{"nothing through the filter", "1.0.0 2.0.0 x", &source.OCIRepositoryRef{SemVer: "1.x", SemVerFilter: "^2"}, false, "",
			`no tag of 3 matches spec.ref.semver "1.x", 1 of them match spec.ref.semverFilter "^2"`},
	} {
		for _, config := range []testenv.RegistryConfig{{}, {PageSize: 2}} {
			r := newRig(t, config)
			for _, tag := range strings.Fields(row.tags) {
				r.g.Push("team/app", tag, layer(tag))
			}
			o := r.origin(r.object("app", func(spec *source.OCIRepositorySpec) {
				spec.Ref = row.ref
				if row.chart {
					spec.LayerSelector = &source.OCILayerSelector{MediaType: chartLayer}
				}
			}))
			rev, _, err := o.Resolve(t.Context(), nil)
			tag, _, _ := strings.Cut(rev.ID, "@")
			switch {
			case row.err == "" && (err != nil || tag != row.want):
				t.Errorf("%s: %s %v", row.name, rev.ID, err)
			case row.err != "" && (!errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), row.err)):
				t.Errorf("%s: %v", row.name, err)
			}
			backwards := strings.Fields(row.tags)
			slices.Reverse(backwards)
			r.g.Break(tagged(backwards...))
			if again, _, _ := o.Resolve(t.Context(), nil); again.ID != rev.ID {
				t.Errorf("%s: %s in one order, %s in the other", row.name, rev.ID, again.ID)
			}
		}
	}
}

// TestHostileTags finds the one tag among names that no registry may have.
func TestHostileTags(t *testing.T) {
	r := newRig(t, testenv.RegistryConfig{})
	d := r.g.Push("team/app", "1.0.0", layer("x"))
	r.g.Break(tagged("../../1.9.0", "1.9.0/../x", "1.9.0\x00", "１.９.0", "1.9.0+x", "1.9.0@sha256:0", "", strings.Repeat("1", 200)+".0.0", "1.0.0"))
	rev, _, err := r.origin(r.follow(source.OCIRepositoryRef{SemVer: "*"})).Resolve(t.Context(), nil)
	if err != nil || rev.ID != "1.0.0@"+d.Digest.String() {
		t.Errorf("%s %v", rev.ID, err)
	}
}

func TestInvalidSelection(t *testing.T) {
	r := newRig(t, testenv.RegistryConfig{})
	for field, ref := range map[string]source.OCIRepositoryRef{
		"spec.ref.digest":       {Digest: "sha256:0123"},
		"spec.ref.digest: ":     {Digest: "../x"},
		"spec.ref.semver":       {SemVer: ">=a"},
		"spec.ref.semverFilter": {SemVer: "*", SemVerFilter: "("},
		"spec.ref.tag":          {Tag: "a/../b"},
	} {
		if result := r.refused(r.follow(ref), nil, listFailed, field); result.Outcome != source.Stalled {
			t.Errorf("%+v: %s", ref, result.Outcome)
		}
	}
	if n := r.g.Count(); n != 0 {
		t.Errorf("%d requests", n)
	}
}
