package bucket

import (
	"encoding/json"
	"strings"

	"github.com/headgate-io/headgate/source"
)

// A memory is what a Bucket remembers between runs.
type memory struct {
	Place    string     `json:"place"`            // provider, server and bucket
	Revision string     `json:"revision"`         // of the last run
	Ignore   *ruleEntry `json:"ignore,omitempty"` // nil when there was no object .sourceignore
}

// A ruleEntry is an object .sourceignore.
type ruleEntry struct {
	ETag string `json:"etag"`
	Text string `json:"text"` // at most 1 MiB
}

// recall reads a state; one that cannot be read is none, and ok is false then.
func recall(s source.State) (m memory, ok bool) {
	if json.Unmarshal(s, &m) != nil || m.Place == "" {
		return memory{}, false
	}
	return m, true
}

func (m memory) state() (source.State, error) { return json.Marshal(m) }

// sameRules reports whether m and other have the same text in .sourceignore, or none.
func (m memory) sameRules(other memory) bool {
	if m.Ignore == nil || other.Ignore == nil {
		return m.Ignore == other.Ignore
	}
	return m.Ignore.Text == other.Ignore.Text
}

// placeOf names the bucket of a spec, without what is secret.
func placeOf(spec *source.BucketSpec) string {
	provider := spec.Provider
	if provider == "" {
		provider = "generic"
	}
	return provider + " " + localName(spec)
}

// localName is what [source.Env].Local calls the bucket of a spec.
func localName(spec *source.BucketSpec) string {
	server, _, _ := strings.Cut(spec.Endpoint, "?")
	return strings.TrimSuffix(server, "/") + "/" + spec.BucketName
}
