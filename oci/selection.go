package oci

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/version"
	"github.com/headgate-io/headgate/source"
)

// A selection is what spec.ref comes to after its precedence: digest, semver,
// tag (specification, "OCIRepositoryRef").
type selection struct {
	digest digest.Digest       // pinned
	semver *semver.Constraints // range of tags
	span   string              // semver as the spec has it
	filter *regexp.Regexp      // what names of tags must match first; nil: nothing
	chart  bool                // _ in a tag stands for the + of a version
	tag    string              // with digest: what a lock found it by, "" if that was the digest
}

const (
	defaultTag = "latest"
	chartLayer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// selection returns what spec.ref comes to, or what a lock has in its place.
func (o *Origin) selection() (selection, error) {
	s, err := selectRef(&o.repo.Spec)
	if err == nil && o.env.Pin != nil {
		s.tag = o.env.Pin.Revision[:max(0, strings.LastIndexByte(o.env.Pin.Revision, '@'))]
		if s.digest, err = digestOf(source.Revision{ID: o.env.Pin.Revision}); err != nil {
			err = fmt.Errorf("the lock: %w", err)
		}
	}
	return s, err
}

func selectRef(spec *source.OCIRepositorySpec) (s selection, err error) {
	ref := cmp.Or(spec.Ref, &source.OCIRepositoryRef{})
	switch {
	case ref.Digest != "":
		s.digest = digest.Digest(ref.Digest)
		if err := checkDigest(s.digest); err != nil {
			return s, fmt.Errorf("spec.ref.digest: %w", err)
		}
	case ref.SemVer == "":
		if s.tag = cmp.Or(ref.Tag, defaultTag); !isTag(s.tag) {
			return s, fmt.Errorf("spec.ref.tag %.140q: want at most 128 letters, digits, '_', '.' and '-'", s.tag)
		}
	default:
		s.span = ref.SemVer
		s.chart = spec.LayerSelector != nil && spec.LayerSelector.MediaType == chartLayer
		if s.semver, err = semver.NewConstraint(ref.SemVer); err != nil {
			return s, fmt.Errorf("spec.ref.semver %q: %w", ref.SemVer, err)
		}
		if ref.SemVerFilter != "" {
			if s.filter, err = regexp.Compile(ref.SemVerFilter); err != nil {
				return s, fmt.Errorf("spec.ref.semverFilter: %w", err)
			}
		}
	}
	return s, nil
}

// highest returns the tag of repo with the highest version in the range of s.
func (s selection) highest(ctx context.Context, repo *Repository) (string, error) {
	h := version.Highest[string]{Range: s.semver}
	seen, passed := 0, 0
	for tag, err := range repo.Tags(ctx) {
		if err != nil {
			return "", err
		}
		seen++
		if s.filter == nil || s.filter.MatchString(tag) {
			passed++
			h.Add(tag, s.version(tag))
		}
	}
	if len(h.Found) == 0 {
		return "", s.none(seen, passed)
	}
	best := h.Found[0]
	for _, tag := range h.Found[1:] {
		if s.later(tag, best) {
			best = tag
		}
	}
	return best, nil
}

// version returns the version that tag is the name of.
func (s selection) version(tag string) string {
	if s.chart {
		return strings.ReplaceAll(tag, "_", "+")
	}
	return tag
}

// later reports whether of two tags of equal precedence a wins over b: build
// metadata are compared as semver compares pre-releases, with any before none,
// and equal ones by the bytes of the names.
func (s selection) later(a, b string) bool {
	_, left, _ := strings.Cut(s.version(a), "+")
	_, right, _ := strings.Cut(s.version(b), "+")
	if left == "" || right == "" {
		return cmp.Or(strings.Compare(left, right), strings.Compare(a, b)) > 0
	}
	order := semver.New(0, 0, 0, left, "").Compare(semver.New(0, 0, 0, right, ""))
	return cmp.Or(order, strings.Compare(a, b)) > 0
}

// none says that no tag is in the range: it tells a wrong filter from a wrong range.
func (s selection) none(seen, passed int) error {
	if s.filter == nil {
		return notFound(fmt.Sprintf("no tag of %d matches spec.ref.semver %q: check the range, or push a tag in it", seen, s.span))
	}
	return notFound(fmt.Sprintf("no tag of %d matches spec.ref.semver %q, %d of them match spec.ref.semverFilter %q: check both",
		seen, s.span, passed, s.filter))
}

// maxNesting is how many indexes may stand between a revision and its manifest.
const maxNesting = 4

// platform is what an index is asked for.
const platform = "linux/amd64"

// A resolved revision is what a descriptor leads to, with the connection that it came by.
type resolved struct {
	repo     *Repository
	subject  ocispec.Descriptor // what the revision names: a manifest or an index
	manifest ocispec.Manifest   // the subject, or what it leads to
}

// follow fetches what d names, and where that is an index what it leads to.
func follow(ctx context.Context, repo *Repository, d ocispec.Descriptor) (*resolved, error) {
	r := &resolved{repo: repo}
	for depth := 0; ; depth++ {
		got, raw, err := repo.Manifest(ctx, d)
		if err != nil {
			return nil, err
		}
		if depth == 0 {
			r.subject = got
		}
		doc, err := decode(raw, got.MediaType)
		if err != nil {
			return nil, fmt.Errorf("manifest %s: %w", d.Digest, err)
		}
		if forms[got.MediaType] == isManifest {
			r.manifest = ocispec.Manifest{MediaType: got.MediaType, Layers: doc.Layers, Annotations: doc.Annotations}
			return r, nil
		}
		if depth == maxNesting {
			return nil, fmt.Errorf("index %s: it is nested in more than %d others", d.Digest, maxNesting)
		}
		next, err := child(doc.Manifests)
		if err != nil {
			return nil, fmt.Errorf("index %s: %w", d.Digest, err)
		}
		d = next
	}
}

// child returns the first of the entries of an index that is for the platform.
// One that names none is for it.
func child(entries []ocispec.Descriptor) (ocispec.Descriptor, error) {
	var others []string
	for _, d := range entries {
		p := platform
		if d.Platform != nil {
			p = d.Platform.OS + "/" + d.Platform.Architecture
		}
		if p == platform {
			return ocispec.Descriptor{Digest: d.Digest, Size: d.Size, MediaType: d.MediaType}, checkDescriptor(d)
		}
		if d.Platform.Variant != "" {
			p += "/" + d.Platform.Variant
		}
		others = append(others, p)
	}
	return ocispec.Descriptor{}, fmt.Errorf("it has nothing for %s, only %s: push that, or pin the digest of one of its manifests", platform, listed(others))
}

// listed lists names that a registry made up, each once.
func listed(names []string) string {
	const most = 20
	slices.Sort(names)
	names = slices.Compact(names)
	var text []string
	for i, n := range names {
		if i == most {
			text = append(text, fmt.Sprintf("%d more", len(names)-most))
			break
		}
		text = append(text, fmt.Sprintf("%.60q", n))
	}
	if text == nil {
		return "no entries at all"
	}
	return strings.Join(text, ", ")
}
