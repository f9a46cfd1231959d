package source

import "time"

// An Event tells the world what a reconciliation did (reference A3).
type Event struct {
	InvolvedObject ObjectReference   `json:"involvedObject"`
	Severity       string            `json:"severity"` // trace, info or error
	Timestamp      time.Time         `json:"timestamp"`
	Message        string            `json:"message"`
	Reason         string            `json:"reason"`
	Metadata       map[string]string `json:"metadata,omitempty"`
	Controller     string            `json:"reportingController"`
	Instance       string            `json:"reportingInstance,omitempty"`
}

// An ObjectReference names an object.
type ObjectReference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
}
