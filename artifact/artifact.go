package artifact

import "time"

// An Artifact describes one published file: where it is, what it holds and
// how to check it (specification, sources, "Artifact"; reference A4).
//
// Digest has the form ALGORITHM:HEX and covers the bytes of the file. Path is
// slash separated and relative to the root of the [Store]; it never changes
// meaning, because it contains the digest.
type Artifact struct {
	Path           string            `json:"path"`
	URL            string            `json:"url"`
	Revision       string            `json:"revision"`
	Digest         string            `json:"digest,omitempty"`
	LastUpdateTime time.Time         `json:"lastUpdateTime"`
	Size           int64             `json:"size,omitempty"`
	Metadata       map[string]string `json:"metadata,omitempty"`
}
