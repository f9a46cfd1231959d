package git

import (
	"encoding/json"

	"github.com/headgate-io/headgate/source"
)

// A memory is what a GitRepository remembers between runs.
type memory struct {
	Tie   *tie   `json:"tie,omitempty"`
	Trust string `json:"trust,omitempty"` // fingerprint of the keys that the last run trusted
}

// recall reads a state; one that cannot be read is none.
func recall(s source.State) memory {
	var m memory
	if json.Unmarshal(s, &m) != nil {
		return memory{}
	}
	return m
}

// state is the inverse of recall: nil when there is nothing to remember.
func (m memory) state() (source.State, error) {
	if m == (memory{}) {
		return nil, nil
	}
	return json.Marshal(m)
}
