package oci

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// A form is what a document with a media type is.
type form int

const (
	isManifest form = iota + 1
	isIndex
)

// forms are those of the media types that are supported.
var forms = map[string]form{
	ocispec.MediaTypeImageManifest: isManifest,
	ocispec.MediaTypeImageIndex:    isIndex,
	dockerManifest:                 isManifest,
	dockerIndex:                    isIndex,
}

// retired are media types that are known, and what they are.
var retired = map[string]string{
	"application/vnd.docker.distribution.manifest.v1+json":      "an image of docker schema 1",
	"application/vnd.docker.distribution.manifest.v1+prettyjws": "an image of docker schema 1",
	ociArtifact: "an artifact manifest of a draft of OCI 1.1",
}

// maxEntries is how many layers a manifest, and how many manifests an index, may have.
const maxEntries = 10_000

// A document is a manifest or an index.
type document struct {
	Layers      descriptors       `json:"layers"`
	Manifests   descriptors       `json:"manifests"`
	Annotations map[string]string `json:"annotations"`
}

// current refuses the media types that are retired.
func current(mediaType string) error {
	if old := retired[mediaType]; old != "" {
		return fmt.Errorf("it is %s, which is not supported: push it again with a current tool", old)
	}
	return nil
}

// decode reads the document raw of the given media type.
func decode(raw []byte, mediaType string) (*document, form, error) {
	if err := current(mediaType); err != nil {
		return nil, 0, err
	}
	what := forms[mediaType]
	if what == 0 {
		return nil, 0, fmt.Errorf("its media type %.100q is none of a manifest or an index", mediaType)
	}
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, 0, fmt.Errorf("it cannot be read: %w", err)
	}
	if what == isManifest && d.Manifests != nil || what == isIndex && d.Layers != nil {
		return nil, 0, fmt.Errorf("it is not what its media type %q says", mediaType)
	}
	return &d, what, nil
}

// descriptors are at most maxEntries: small ones take a lot more memory than
// their text.
type descriptors []ocispec.Descriptor

// UnmarshalJSON implements [json.Unmarshaler].
func (list *descriptors) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	in := json.NewDecoder(bytes.NewReader(text))
	if start, err := in.Token(); err != nil || start != json.Delim('[') {
		return errors.New("its entries are no list")
	}
	*list = descriptors{}
	for in.More() {
		if len(*list) == maxEntries {
			return fmt.Errorf("it has more than %d entries", maxEntries)
		}
		var d ocispec.Descriptor
		if err := in.Decode(&d); err != nil {
			return err
		}
		*list = append(*list, d)
	}
	return nil
}

// checkDescriptor checks what is about to be fetched.
func checkDescriptor(d ocispec.Descriptor) error {
	if err := d.Digest.Validate(); err != nil {
		return fmt.Errorf("digest %.150q: %w", string(d.Digest), err)
	}
	if d.Size < 0 {
		return fmt.Errorf("%s has the size %d", d.Digest, d.Size)
	}
	return nil
}
