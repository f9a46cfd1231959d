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

// lacking returns the dependencies of c that are not among the charts in its
// charts/, each name, version and repository once, as the lock has them if c has one.
func lacking(c *bundle.Chart, vendored []*chart.Metadata) ([]*chart.Dependency, error) {
	list := c.Metadata.Dependencies
	if n := max(len(list), len(vendored)); n > maxListed {
		return nil, fmt.Errorf("chart %q has %d dependencies, or charts in charts/: %d are the limit", c.Metadata.Name, n, maxListed)
	}
	ranges := make([]*semver.Constraints, len(list)) // each read once; nil admits all
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
	met, stray := compare(c, ranges, vendored)
	if !slices.Contains(met, false) {
		return nil, nil
	}
	if stray != nil {
		return nil, stray
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
		case met[i]:
		case d.Repository == "":
			return nil, fmt.Errorf("%s: has no repository, so charts/%s must hold it, and does not", subject(c, d), d.Name)
		case !slices.ContainsFunc(wanted, func(w *chart.Dependency) bool { return sameSource(w, d) }):
			wanted = append(wanted, d)
		}
	}
	return wanted, nil
}

// compare tells which of the dependencies of c the charts in charts/ meet. The
// error is about the first of these that has a name of dependencies none of which
// admits it.
func compare(c *bundle.Chart, ranges []*semver.Constraints, vendored []*chart.Metadata) (met []bool, stray error) {
	met = make([]bool, len(ranges))
	for _, v := range vendored {
		var refusing *chart.Dependency
		meets := false
		for i, d := range c.Metadata.Dependencies {
			switch {
			case d.Name != v.Name:
			case ranges[i] == nil || allows(ranges[i], d.Version, v.Version):
				met[i], meets = true, true
			default:
				refusing = d
			}
		}
		if refusing != nil && !meets && stray == nil {
			stray = fmt.Errorf("%s: charts/ holds version %q, which it does not admit: run helm dependency update, or remove it there", subject(c, refusing), v.Version)
		}
	}
	return met, stray
}

func sameSource(a, b *chart.Dependency) bool {
	return a.Name == b.Name && a.Version == b.Version && a.Repository == b.Repository
}

// admits reports whether a dependency on the version or range want is met by
// version. None is met by all.
func admits(want, version string) bool {
	if want == "" {
		return true
	}
	within, err := semver.NewConstraint(want)
	return want == version || err == nil && allows(within, want, version)
}

// allows reports whether within, which want says, admits version.
func allows(within *semver.Constraints, want, version string) bool {
	v, err := semver.NewVersion(version)
	return want == version || err == nil && within.Check(v)
}

// checkDependency returns an error when name or repository of d cannot be met.
// Package bundle has checked that name and alias are no paths.
func checkDependency(d *chart.Dependency) error {
	if strings.HasPrefix(d.Name, ".") || strings.HasPrefix(d.Name, "_") || strings.HasSuffix(d.Name, ".tgz") {
		return fmt.Errorf("name %q: a chart whose name begins with . or _ or ends with .tgz is not read from charts/", d.Name)
	}
	return checkScheme(d.Repository)
}

// checkScheme returns an error when repository is none of the forms of [opener.complete].
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

// checkLock returns an error when the lock of c was not made for its
// dependencies as they are now.
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

// lockDigests returns the digests that a lock for the dependencies of c may
// have. It covers the list in Chart.yaml and that in the lock, as JSON; with
// apiVersion v1 the one list alone, too, as older releases of helm had it.
//
// Aliases of repositories are covered as the URLs that they stood for, which are
// those in the lock.
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
