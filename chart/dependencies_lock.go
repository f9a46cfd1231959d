package chart

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"helm.sh/helm/v3/pkg/chart"

	"github.com/headgate-io/headgate/chart/internal/bundle"
)

// missingDependencies returns the dependencies of c that no chart in charts/ satisfies, each name,
// version and repository once. If c has a lock, the dependencies are those of the lock.
func missingDependencies(c *bundle.Chart, vendored []*chart.Metadata) ([]*chart.Dependency, error) {
	list := c.Metadata.Dependencies
	if n := max(len(list), len(vendored)); n > maxListed {
		return nil, fmt.Errorf("chart %q has %d dependencies, or charts in charts/: %d are the limit", c.Metadata.Name, n, maxListed)
	}
	ranges := make([]*semver.Constraints, len(list)) // parsed once; nil admits every version
	for i, d := range list {
		err := checkDependency(d)
		if err == nil && d.Version != "" {
			if ranges[i], err = semver.NewConstraint(d.Version); err != nil {
				err = errors.New("its version is neither a version nor a range")
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", subject(c, d), err)
		}
	}
	satisfied, mismatch := matchVendored(c, ranges, vendored)
	if !slices.Contains(satisfied, false) {
		return nil, nil
	}
	if mismatch != nil {
		return nil, mismatch
	}
	if c.Lock != nil {
		if err := checkLock(c); err != nil {
			return nil, err
		}
		list = c.Lock.Dependencies
	}
	var wanted []*chart.Dependency
	for i, d := range list {
		switch {
		case satisfied[i]:
		case d.Repository == "":
			return nil, fmt.Errorf("%s: has no repository, so charts/%s must hold it, and does not", subject(c, d), d.Name)
		case !slices.ContainsFunc(wanted, func(w *chart.Dependency) bool { return sameSource(w, d) }):
			wanted = append(wanted, d)
		}
	}
	return wanted, nil
}

// matchVendored reports which dependencies of c the charts in charts/ satisfy. mismatch is about the
// first of these charts that has the name of a dependency but is admitted by none.
func matchVendored(c *bundle.Chart, ranges []*semver.Constraints, vendored []*chart.Metadata) (satisfied []bool, mismatch error) {
	satisfied = make([]bool, len(ranges))
	for _, v := range vendored {
		var refusing *chart.Dependency
		meets := false
		for i, d := range c.Metadata.Dependencies {
			switch {
			case d.Name != v.Name:
			case ranges[i] == nil || allows(ranges[i], d.Version, v.Version):
				satisfied[i], meets = true, true
			default:
				refusing = d
			}
		}
		if refusing != nil && !meets && mismatch == nil {
			mismatch = fmt.Errorf("%s: charts/ holds version %q, which it does not admit: run helm dependency update, or remove it there", subject(c, refusing), v.Version)
		}
	}
	return satisfied, mismatch
}

func sameSource(a, b *chart.Dependency) bool {
	return a.Name == b.Name && a.Version == b.Version && a.Repository == b.Repository
}

// admits reports whether version satisfies want, a version or a range. An empty want admits
// every version.
func admits(want, version string) bool {
	if want == "" {
		return true
	}
	within, err := semver.NewConstraint(want)
	return want == version || err == nil && allows(within, want, version)
}

// allows reports whether version equals want or satisfies within, the range parsed from
// want.
func allows(within *semver.Constraints, want, version string) bool {
	v, err := semver.NewVersion(version)
	return want == version || err == nil && within.Check(v)
}

// checkDependency returns an error if the name or the repository of d cannot be used.
// Package bundle has already checked that name and alias are not paths.
func checkDependency(d *chart.Dependency) error {
	if strings.HasPrefix(d.Name, ".") || strings.HasPrefix(d.Name, "_") || strings.HasSuffix(d.Name, ".tgz") {
		return fmt.Errorf("name %q: a chart whose name begins with . or _ or ends with .tgz is not read from charts/", d.Name)
	}
	return checkScheme(d.Repository)
}

// checkScheme returns an error unless repository has one of the forms that
// [opener.complete] accepts.
func checkScheme(repository string) error {
	for _, prefix := range []string{"http://", "https://", "oci://", "file://", "@", "alias:"} {
		if rest, ok := strings.CutPrefix(repository, prefix); ok && (rest != "" || prefix == "file://") {
			return nil
		}
	}
	if repository == "" {
		return nil
	}
	return fmt.Errorf("repository %.200q: use a URL with http, https, oci or file, or @NAME for the PkgRepository NAME", repository)
}

// checkLock returns an error if the lock of c does not match its current dependencies.
func checkLock(c *bundle.Chart) error {
	wanted, locked := c.Metadata.Dependencies, c.Lock.Dependencies
	same := len(wanted) == len(locked)
	for i := 0; same && i < len(wanted); i++ {
		same = locked[i] != nil && locked[i].Name == wanted[i].Name &&
			admits(wanted[i].Version, locked[i].Version) && checkScheme(locked[i].Repository) == nil
	}
	if same && c.Lock.Digest != "" && slices.Contains(lockDigests(c), c.Lock.Digest) {
		return nil
	}
	lock, list := "Chart.lock", "Chart.yaml"
	if c.Metadata.APIVersion == chart.APIVersionV1 {
		lock, list = "requirements.lock", "requirements.yaml"
	}
	return fmt.Errorf("dependencies of %q: %s is out of sync with %s: run helm dependency update", c.Metadata.Name, lock, list)
}

// lockDigests returns the digests that a matching lock of c may have. A digest covers the
// list in Chart.yaml and that in the lock, as JSON. With apiVersion v1 it may also cover
// the first list alone, as older releases of helm wrote it.
//
// For an alias of a repository the digest covers the URL that the alias stood for, which is
// in the lock.
func lockDigests(c *bundle.Chart) []string {
	wanted, locked := c.Metadata.Dependencies, c.Lock.Dependencies
	resolved := slices.Clone(wanted)
	for i, d := range wanted {
		if _, ok := aliasOf(d.Repository); ok {
			at := *d
			at.Repository = locked[i].Repository
			resolved[i] = &at
		}
	}
	digests := []string{sumJSON([2][]*chart.Dependency{resolved, locked})}
	if c.Metadata.APIVersion == chart.APIVersionV1 {
		digests = append(digests, sumJSON(map[string][]*chart.Dependency{"dependencies": wanted}))
	}
	return digests
}

func sumJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// aliasOf returns the NAME in @NAME and alias:NAME.
func aliasOf(repository string) (name string, ok bool) {
	if name, ok = strings.CutPrefix(repository, "@"); ok {
		return name, true
	}
	return strings.CutPrefix(repository, "alias:")
}
