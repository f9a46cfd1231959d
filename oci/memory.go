package oci

import (
	"encoding/json"

	"github.com/opencontainers/go-digest"

	"github.com/headgate-io/headgate/source"
)

// A memory is what an OCIRepository remembers between runs.
type memory struct {
	URL      string            `json:"url,omitempty"`
	Digest   digest.Digest     `json:"digest,omitempty"`   // of the last revision
	Metadata map[string]string `json:"metadata,omitempty"` // of its manifest
	Trust    string            `json:"trust,omitempty"`    // fingerprint of whom the last run trusted
}

// recall reads a state; one that cannot be read is none.
func recall(s source.State) memory {
	var m memory
	if json.Unmarshal(s, &m) != nil {
		return memory{}
	}
	return m
}

func (m memory) state() (source.State, error) { return json.Marshal(m) }

// knows reports whether m has the metadata of what d names at url.
func (m memory) knows(url string, d digest.Digest) bool { return m.URL == url && m.Digest == d }

// revision spells the revision of what m knows under tag (reference A4).
func (m memory) revision(tag string) source.Revision {
	if m.Digest == "" {
		return source.Revision{}
	}
	id := m.Digest.String()
	if tag != "" {
		id = tag + "@" + id
	}
	return source.Revision{ID: id, File: m.Digest.Encoded() + ".tar.gz", Metadata: m.Metadata}
}
