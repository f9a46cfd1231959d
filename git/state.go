package git

import (
	"encoding/json"

	"github.com/headgate-io/headgate/source"
)

// A state is what a GitRepository remembers between runs.
type state struct {
	Tie      *tie   `json:"tie,omitempty"`
	Trust    string `json:"trust,omitempty"`    // fingerprint of the keys that the last run trusted
	Revision string `json:"revision,omitempty"` // what the last run found
	Server   server `json:"server,omitzero"`
}

// A server is known to speak protocol 2, so that it is asked without a greeting.
type server struct {
	URL          string `json:"url,omitempty"`          // of the repository, without credentials
	Capabilities string `json:"capabilities,omitempty"` // see [wire.Resume]
}

// decodeState reads a state; one that cannot be read is none.
func decodeState(s source.State) state {
	var m state
	if json.Unmarshal(s, &m) != nil {
		return state{}
	}
	return m
}

// encode is the inverse of decodeState: nil when there is nothing to remember.
func (m state) encode() (source.State, error) {
	if m == (state{}) {
		return nil, nil
	}
	return json.Marshal(m)
}
