package chart

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
	if n := len(c.Metadata.Dependencies); n > maxListed {
		return nil, fmt.Errorf("chart %q has %d dependencies: %d are the limit", c.Metadata.Name, n, maxListed)
	}
	var missing []int
	for i, d := range c.Metadata.Dependencies {
		if err := checkDependency(d); err != nil {
			return nil, fmt.Errorf("%s: %w", subject(c, d), err)
		}
		if slices.ContainsFunc(vendored, func(v *chart.Metadata) bool { return meets(d, v) }) {
			continue
		}
		missing = append(missing, i)
	}
	if len(missing) == 0 {
		return nil, nil
	}
	if err := checkVendored(c, vendored); err != nil {
		return nil, err
	}
	list := c.Metadata.Dependencies
	if c.Lock != nil {
		if err := checkLock(c); err != nil {
			return nil, err
		}
		list = c.Lock.Dependencies
	}
	var wanted []*chart.Dependency
	for _, i := range missing {
		d := list[i]
		if d.Repository == "" {
			return nil, fmt.Errorf("%s: has no repository, so charts/%s must hold it, and does not", subject(c, d), d.Name)
		}
		if !slices.ContainsFunc(wanted, func(w *chart.Dependency) bool { return sameSource(w, d) }) {
			wanted = append(wanted, d)
		}
	}
	return wanted, nil
}

func sameSource(a, b *chart.Dependency) bool {
	return a.Name == b.Name && a.Version == b.Version && a.Repository == b.Repository
}

// meets reports whether v, a chart in charts/, is what d asks for.
func meets(d *chart.Dependency, v *chart.Metadata) bool {
	return v.Name == d.Name && admits(d.Version, v.Version)
}

// checkVendored returns an error when charts/ has a chart with the name of
// dependencies none of which admits it.
func checkVendored(c *bundle.Chart, vendored []*chart.Metadata) error {
	for _, v := range vendored {
		var refusing *chart.Dependency
		for _, d := range c.Metadata.Dependencies {
			if meets(d, v) {
				refusing = nil
				break
			}
			if d.Name == v.Name {
				refusing = d
			}
		}
		if refusing != nil {
			return fmt.Errorf("%s: charts/ holds version %q, which it does not admit: run helm dependency update, or remove it there", subject(c, refusing), v.Version)
		}
	}
	return nil
}

// admits reports whether a dependency on the version or range want is met by
// version. None is met by all.
func admits(want, version string) bool {
	if want == "" || want == version {
		return true
	}
	within, err := semver.NewConstraint(want)
	if err != nil {
		return false
	}
	v, err := semver.NewVersion(version)
	return err == nil && within.Check(v)
}

// checkDependency returns an error when nothing could meet d. Package bundle has
// checked that name and alias are no paths.
func checkDependency(d *chart.Dependency) error {
	if strings.HasPrefix(d.Name, ".") || strings.HasPrefix(d.Name, "_") || strings.HasSuffix(d.Name, ".tgz") {
		return fmt.Errorf("name %q: a chart whose name begins with . or _ or ends with .tgz is not read from charts/", d.Name)
	}
	if d.Version != "" {
		if _, err := semver.NewConstraint(d.Version); err != nil {
			return fmt.Errorf("version %q of %q is neither a version nor a range", d.Version, d.Name)
		}
	}
	return checkScheme(d.Repository)
}

// checkScheme returns an error when repository is none of the forms of [supply.complete].
func checkScheme(repository string) error {
	for _, prefix := range []string{"http://", "https://", "oci://", "file://", "@", "alias:"} {
		if rest, ok := strings.CutPrefix(repository, prefix); ok && (rest != "" || prefix == "file://") {
			return nil
		}
	}
	if repository == "" {
		return nil
	}
	return fmt.Errorf("repository %q: use a URL with http, https, oci or file, or @NAME for the PkgRepository NAME", repository)
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
