package version_test

import (
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/version"
)

func TestHighest(t *testing.T) {
	for _, c := range []struct{ within, versions, want string }{
		{">=1.0.0", "1.0.0 1.2.0 1.1.9", "1.2.0"},
		{">=1.0.0", "v1.0.0 v1.10.0 v1.9.0", "v1.10.0"},
		{"*", "1.0.0 v1.0.0 1.0.0+a 0.9.0", "1.0.0 v1.0.0 1.0.0+a"},
		{"*", "1.0.0-rc.1 0.1.0", "0.1.0"},
		{">=1.0.0-0", "1.0.0-rc.1 1.0.0-rc.2 0.1.0", "1.0.0-rc.2"},
		{"1.x", "2.0.0 0.9.0", ""},
		{"*", "latest 1 1.0 01.0.0 1.0.0.0 vv1.0.0 V1.0.0 1.0.0-01 1.0.0+ 1.0.0-é ..", ""},
		{"*", "", ""},
	} {
		within, err := semver.NewConstraint(c.within)
		testenv.Must(t, err)
		h := version.Highest[string]{Range: within}
		for _, v := range strings.Fields(c.versions) {
			h.Add(v, v)
		}
		testenv.Equal(t, h.Found, strings.Fields(c.want), "%s of %s", c.within, c.versions)
	}
}
