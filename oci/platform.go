package oci

import (
	"context"
	"fmt"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// maxNesting is how many indexes may stand between a revision and its manifest.
const maxNesting = 4

// platform is what an index is asked for.
const platform = "linux/amd64"

// A found is what a descriptor leads to.
type found struct {
	subject  ocispec.Descriptor // complete, whatever of it was asked for
	manifest ocispec.Manifest
}

// follow fetches what d names, and where that is an index what it leads to.
func follow(ctx context.Context, repo *Repository, d ocispec.Descriptor) (found, error) {
	var f found
	for depth := 0; ; depth++ {
		if err := current(d.MediaType); err != nil { // its text may not have its digest
			return found{}, fmt.Errorf("manifest %s: %w", d.Digest, err)
		}
		got, raw, err := repo.Manifest(ctx, d)
		if err != nil {
			return found{}, err
		}
		if depth == 0 {
			f.subject = got
		}
		doc, what, err := decode(raw, got.MediaType)
		if err != nil {
			return found{}, fmt.Errorf("manifest %s: %w", d.Digest, err)
		}
		if what == isManifest {
			f.manifest = ocispec.Manifest{MediaType: got.MediaType, Layers: doc.Layers, Annotations: doc.Annotations}
			return f, nil
		}
		if depth == maxNesting {
			return found{}, fmt.Errorf("index %s: it is nested in more than %d others", d.Digest, maxNesting)
		}
		next, err := child(doc.Manifests)
		if err != nil {
			return found{}, fmt.Errorf("index %s: %w", d.Digest, err)
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
