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

// A selection is the parsed spec.ref: the first of digest, semver and tag that is set
// (specification, "OCIRepositoryRef").
type selection struct {
	digest    digest.Digest       // pinned
	semver    *semver.Constraints // range of tags
	rangeText string              // the text of semver in the spec
	filter    *regexp.Regexp      // names of tags must match it; nil: no filter
	chart     bool                // _ in a tag represents + in a version
	tag       string              // with digest: the tag in the lock, "" if it has none
}

const (
	defaultTag = "latest"
	chartLayer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// selection returns the selection of spec.ref, or the digest in the lock if there is one.
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
		s.rangeText = ref.SemVer
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
		return "", s.noMatch(seen, passed)
	}
	best := h.Found[0]
	for _, tag := range h.Found[1:] {
		if s.later(tag, best) {
			best = tag
		}
	}
	return best, nil
}

// version returns the version for the name of a tag.
func (s selection) version(tag string) string {
	if s.chart {
		return strings.ReplaceAll(tag, "_", "+")
	}
	return tag
}

// later reports whether a wins over b, for two tags of equal precedence. It compares
// build metadata as semver compares pre-releases; any build metadata wins over none.
// If they are equal, it compares the bytes of the names.
func (s selection) later(a, b string) bool {
	_, left, _ := strings.Cut(s.version(a), "+")
	_, right, _ := strings.Cut(s.version(b), "+")
	if left == "" || right == "" {
		return cmp.Or(strings.Compare(left, right), strings.Compare(a, b)) > 0
	}
	order := semver.New(0, 0, 0, left, "").Compare(semver.New(0, 0, 0, right, ""))
	return cmp.Or(order, strings.Compare(a, b)) > 0
}

// noMatch returns the error if no tag is in the range. Its numbers show whether the filter or
// the range excludes the tags.
func (s selection) noMatch(seen, passed int) error {
	if s.filter == nil {
		return notFound(fmt.Sprintf("no tag of %d matches spec.ref.semver %q: check the range, or push a tag in it", seen, s.rangeText))
	}
	return notFound(fmt.Sprintf("no tag of %d matches spec.ref.semver %q, %d of them match spec.ref.semverFilter %q: check both",
		seen, s.rangeText, passed, s.filter))
}

// maxNesting is the maximum number of nested indexes between a revision and its manifest.
const maxNesting = 4

// platform is the platform that is selected from an index.
const platform = "linux/amd64"

// A resolvedRevision revision has the manifest of a revision, and the repository it comes from.
type resolvedRevision struct {
	repo     *Repository
	subject  ocispec.Descriptor // of the manifest or index that the revision names
	manifest ocispec.Manifest   // the subject, or the manifest that the index leads to
}

// follow fetches the manifest or index d, and for an index the manifest for the platform.
func follow(ctx context.Context, repo *Repository, d ocispec.Descriptor) (*resolvedRevision, error) {
	r := &resolvedRevision{repo: repo}
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

// child returns the first entry of an index for the platform. An entry without a
// platform matches.
func child(entries []ocispec.Descriptor) (ocispec.Descriptor, error) {
	var platforms []string
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
		platforms = append(platforms, p)
	}
	return ocispec.Descriptor{}, fmt.Errorf("it has nothing for %s, only %s: push that, or pin the digest of one of its manifests", platform, quoteList(platforms))
}

// quoteList returns untrusted names as a quoted list, at most 20 of them and without duplicates.
func quoteList(names []string) string {
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
