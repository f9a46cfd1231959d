package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Bounds of lists.
const (
	maxTags      = 100_000
	maxReferrers = 10_000
)

// Tags lists the tags, in the order of the registry. Names that no tag can have
// (specification: letters, digits, . _ -, at most 128) are left out.
//
// A list of more than 100,000 names, 64 MiB or 2000 pages of at most 4 MiB is
// an error, and so are a page that was there already and one of another origin
// than the page before.
func (r *Repository) Tags(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		seen := 0
		for name, err := range r.from.tags(ctx) {
			if seen++; err == nil && seen > maxTags {
				err = fmt.Errorf("there are more than %d", maxTags)
			}
			if err != nil {
				yield("", fmt.Errorf("list tags of %s: %w", r.Name(), err))
				return
			}
			if isTag(name) && !yield(name, nil) {
				return
			}
		}
	}
}

// Referrers lists the manifests that refer to subject, those of artifactType
// alone unless it is "": by the referrers API, and where the registry has none
// by the tag that stands in for it (distribution specification 1.1, "Listing
// Referrers"), each once. There are none when nothing is found.
//
// More than 10,000 of them are an error, and so is a descriptor without a
// digest or with a size outside 0 to 4 MiB; pages are bounded as those of tags.
func (r *Repository) Referrers(ctx context.Context, subject ocispec.Descriptor, artifactType string) iter.Seq2[ocispec.Descriptor, error] {
	return func(yield func(ocispec.Descriptor, error) bool) {
		if _, err := hasher(subject.Digest); err != nil {
			yield(ocispec.Descriptor{}, r.fail("list referrers of", subject.Digest.String(), err))
			return
		}
		seen, listed := 0, map[digest.Digest]bool{}
		for d, err := range r.referrers(ctx, subject, artifactType) {
			if seen++; err == nil && seen > maxReferrers {
				err = fmt.Errorf("there are more than %d", maxReferrers)
			}
			if err == nil {
				err = checkReferrer(d)
			}
			if err != nil {
				yield(ocispec.Descriptor{}, r.fail("list referrers of", subject.Digest.String(), err))
				return
			}
			if !listed[d.Digest] && (artifactType == "" || d.ArtifactType == artifactType) && !yield(d, nil) {
				return
			}
			listed[d.Digest] = true
		}
	}
}

func checkReferrer(d ocispec.Descriptor) error {
	if _, err := hasher(d.Digest); err != nil {
		return err
	}
	if d.Size < 0 || d.Size > maxManifest {
		return fmt.Errorf("%s has %d bytes: a manifest has at most %d", d.Digest, d.Size, maxManifest)
	}
	return nil
}

// referrers lists what the holder knows, and where it knows nothing what the tag says.
func (r *Repository) referrers(ctx context.Context, subject ocispec.Descriptor, artifactType string) iter.Seq2[ocispec.Descriptor, error] {
	return func(yield func(ocispec.Descriptor, error) bool) {
		for d, err := range r.from.referrers(ctx, subject, artifactType) {
			if errors.Is(err, errNoReferrers) {
				r.tagged(ctx, subject, yield)
				return
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// errNoReferrers says that a holder keeps no list of referrers.
var errNoReferrers = errors.New("no list of referrers is kept")

// tagged lists the entries of the index whose tag is made of the subject's
// digest (distribution specification 1.1, "Referrers Tag Schema").
func (r *Repository) tagged(ctx context.Context, subject ocispec.Descriptor, yield func(ocispec.Descriptor, error) bool) {
	tag := fmt.Sprintf("%.32s-%.64s", subject.Digest.Algorithm(), subject.Digest.Encoded())
	d, content, err := readManifest(ctx, r.from, tag, ocispec.Descriptor{})
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var index struct {
		Manifests descriptors `json:"manifests"`
	}
	if err == nil && d.MediaType == ocispec.MediaTypeImageIndex && d.Digest != subject.Digest {
		err = json.Unmarshal(content, &index)
	}
	if err != nil {
		yield(ocispec.Descriptor{}, fmt.Errorf("tag %s: %w", tag, err))
		return
	}
	for _, d := range index.Manifests {
		if !yield(d, nil) {
			return
		}
	}
}
