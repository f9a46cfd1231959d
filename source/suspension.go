package source

import "time"

// A Suspension is an order to leave an object alone, given by a command and not
// by its spec.
type Suspension struct {
	By     string    `json:"by,omitempty"`     // who gave it
	Reason string    `json:"reason,omitempty"` // what for
	Since  time.Time `json:"since"`
}
