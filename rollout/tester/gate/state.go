package gate

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// A state is what was decided about a gate. It is never changed.
type state struct {
	Open     bool      `json:"open"`
	Mode     api.Mode  `json:"mode,omitempty"`
	Checksum string    `json:"checksum,omitempty"` // that it is open for
	Expires  time.Time `json:"expires,omitzero"`
	Changed  time.Time `json:"changed"`
	Actor    string    `json:"actor,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Decision uint64    `json:"decision"` // of the audit trail: the last that somebody made
}

// A verdict is what a check comes to.
type verdict int

const (
	refuse verdict = iota
	pass
	bind  // pass, and bind the opening to the checksum
	spend // pass, and close
	shut  // refuse, and close
)

// judge returns the verdict on a check with a checksum. A nil state is closed.
func (s *state) judge(now time.Time, checksum string) verdict {
	switch {
	case s == nil || !s.Open || s.over(now):
		return refuse
	case s.Mode == api.Sticky, s.Checksum != "" && s.Checksum == checksum:
		return pass
	case s.Mode == api.Bound:
		return refuse
	case s.Checksum == "" && checksum == "":
		return spend
	case s.Checksum == "":
		return bind
	case checksum == "":
		return refuse
	}
	return shut
}

// over reports whether the time of the opening is.
func (s *state) over(now time.Time) bool {
	return s.Open && !s.Expires.IsZero() && !now.Before(s.Expires)
}

// at returns the state at a time: closed when its time is over.
func (s *state) at(now time.Time) *state {
	if s == nil || !s.over(now) {
		return s
	}
	return &state{Changed: s.Expires, Reason: "its time was over", Decision: s.Decision}
}

// parseState reads a state as it stands in the file.
func parseState(text []byte) (*state, error) {
	s := new(state)
	if err := json.Unmarshal(text, s); err != nil {
		return nil, err
	}
	switch {
	case s.Open && s.Mode != api.Sticky && s.Mode != api.OneShot && s.Mode != api.Bound:
		return nil, fmt.Errorf("%w: mode", ErrInvalid)
	case s.Open && (s.Mode == api.Bound) && s.Checksum == "":
		return nil, fmt.Errorf("%w: checksum", ErrInvalid)
	}
	return s, nil
}
