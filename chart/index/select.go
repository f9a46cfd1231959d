package index

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// Select returns the version that want selects among entries (reference A13). Their order
// does not matter, and no more than a few of them are kept.
//
//   - An entry whose Version is spelled exactly like want is selected, before any range is
//     considered.
//   - Otherwise want is a range, and the highest version within it is selected; "" and *
//     match all versions. A range includes pre-releases only if it names one. Versions and
//     ranges are those of Masterminds semver, which reads v1.2 as 1.2.0; invalid versions
//     are skipped.
//   - Among equal versions, which differ only in build metadata or spelling, the one
//     created last is selected, then the one whose build metadata is later (numbers are
//     compared by value and come before text), then the first.
//
// An error among entries is returned unchanged. The error of Select satisfies
// [fs.ErrNotExist] if no entry fits, and names the newest versions that exist; it is an
// [ErrRange] if want can never fit.
func Select(entries iter.Seq2[Entry, error], want string) (Entry, error) {
	within, invalid := semver.NewConstraint(cmp.Or(want, "*"))
	s := selection{want: want, constraint: within}
	for e, err := range entries {
		if err != nil {
			return Entry{}, err
		}
		s.add(e)
	}
	switch {
	case s.exact.v != nil:
		return s.exact.Entry, nil
	case invalid != nil:
		return Entry{}, fmt.Errorf("version %q %w: %w", want, ErrRange, invalid)
	case s.best.v != nil:
		return s.best.Entry, nil
	}
	return Entry{}, s.noMatchError()
}

// ErrRange marks the error about a want that is neither a version nor a range.
var ErrRange = errors.New("is neither in the index nor a range")

// A candidate is an entry with its version.
type candidate struct {
	Entry
	v *semver.Version
}

// A selection tracks the best candidates while entries are added.
type selection struct {
	want       string
	constraint *semver.Constraints // nil when want is no range

	exact, best     candidate // the best of each; v is nil while there is none
	count           int
	newest          []candidate // at most listed, the highest first
	onlyPrereleases bool        // all so far are pre-releases
}

// maxListed is the number of versions that an error names.
const maxListed = 5

func (s *selection) add(e Entry) {
	v, err := parseVersion(e.Version)
	if err != nil {
		return
	}
	c := candidate{e, v}
	if e.Version == s.want && (s.exact.v == nil || compare(c, s.exact) > 0) {
		s.exact = c
	}
	s.onlyPrereleases = v.Prerelease() != "" && (s.count == 0 || s.onlyPrereleases)
	s.count++
	if s.constraint != nil && (s.best.v == nil || compare(c, s.best) > 0) && s.constraint.Check(v) {
		s.best = c
	}
	s.addNewest(c)
}

// addNewest keeps c when it is one of the newest versions.
func (s *selection) addNewest(c candidate) {
	at, _ := slices.BinarySearchFunc(s.newest, c, func(a, b candidate) int { return compare(b, a) })
	if at == maxListed || slices.ContainsFunc(s.newest, func(o candidate) bool { return o.Version == c.Version }) {
		return
	}
	s.newest = slices.Insert(s.newest[:min(len(s.newest), maxListed-1)], at, candidate{Entry{Version: c.Version, Created: c.Created}, c.v})
}

// noMatchError returns the error that no entry fits.
func (s *selection) noMatchError() error {
	if s.count == 0 {
		return notFound("there is no chart of this name: look at its spelling")
	}
	var names []string
	for _, c := range s.newest {
		names = append(names, quote(c.Version))
	}
	text := fmt.Sprintf("no version is within %q: of %d the newest are %s", cmp.Or(s.want, "*"), s.count, strings.Join(names, ", "))
	if s.onlyPrereleases {
		text += "; they are pre-releases, which a range has only when it names one, for example >=0.0.0-0"
	}
	return notFound(text)
}

// notFound is an error with its own text that satisfies fs.ErrNotExist.
type notFound string

func (e notFound) Error() string { return string(e) }

func (e notFound) Is(target error) bool { return target == fs.ErrNotExist }

// compare returns a positive number if a is preferred to b, a negative one if b is, and 0
// if their order in the index decides.
func compare(a, b candidate) int {
	return cmp.Or(a.v.Compare(b.v), a.Created.Compare(b.Created), compareBuilds(a.v.Metadata(), b.v.Metadata()))
}

// compareBuilds compares build metadata.
func compareBuilds(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(a, b string) int {
		n, errN := strconv.ParseUint(a, 10, 64)
		m, errM := strconv.ParseUint(b, 10, 64)
		switch {
		case errN == nil && errM == nil:
			return cmp.Compare(n, m)
		case errN == nil:
			return -1
		case errM == nil:
			return 1
		}
		return cmp.Compare(a, b)
	})
}

// parseVersion parses a version as Helm does: v, minor and patch are optional.
func parseVersion(text string) (*semver.Version, error) {
	v, err := semver.NewVersion(text)
	if err != nil {
		return nil, errors.New("is no version")
	}
	return v, nil
}
