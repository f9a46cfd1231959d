package chart

import (
	"encoding/json"
	"net/http"

	"github.com/headgate-io/headgate/source"
)

// A memory is what a PkgRepository remembers between runs.
type memory struct {
	Place string `json:"place,omitempty"` // where the index came from, and with which credentials
	validators
	Digest string `json:"digest,omitempty"` // of the published index, SHA-256 in hex
	Sum    string `json:"sum,omitempty"`    // of what it says
}

// Validators are what a server calls one state of an index by.
type validators struct {
	ETag     string `json:"etag,omitempty"`
	Modified string `json:"modified,omitempty"` // Last-Modified, as the server spells it
}

// maxValidator is how many bytes of a validator are worth remembering.
const maxValidator = 1 << 10

// validatorsOf returns the validators in the header of an answer. Last-Modified
// alone tells nothing as long as the second lasts that it names: the index may
// change once more in it (RFC 9110 section 8.8.2.2).
func validatorsOf(h http.Header) (v validators) {
	if s := h.Get("ETag"); len(s) <= maxValidator {
		v.ETag = s
	}
	if s := h.Get("Last-Modified"); len(s) <= maxValidator && (v.ETag != "" || !fresh(h)) {
		v.Modified = s
	}
	return v
}

// fresh reports whether an answer is of the second in which its content changed.
func fresh(h http.Header) bool {
	modified, err := http.ParseTime(h.Get("Last-Modified"))
	if err != nil {
		return false
	}
	sent, err := http.ParseTime(h.Get("Date"))
	return err == nil && !sent.After(modified)
}

// header returns what asks for the index only if it is not that of v.
func (v validators) header() http.Header {
	h := http.Header{}
	if v.ETag != "" {
		h.Set("If-None-Match", v.ETag)
	}
	if v.Modified != "" {
		h.Set("If-Modified-Since", v.Modified)
	}
	return h
}

// recall reads a state; one that cannot be read, or is about another place, is none.
func recall(s source.State, from place) memory {
	var m memory
	if json.Unmarshal(s, &m) != nil || m.Place != from.name() || m.Digest == "" {
		return memory{}
	}
	return m
}

func (m memory) state() (source.State, error) { return json.Marshal(m) }

// revision spells the revision of the index that is published, or is to be.
func (m memory) revision() source.Revision { return revisionOf(m.Digest) }

// revisionOf spells the revision of the index with a digest (reference A4).
func revisionOf(digest string) source.Revision {
	return source.Revision{ID: "sha256:" + digest, File: "index-" + digest + ".yaml"}
}
