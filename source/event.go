package source

import (
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/redact"
)

// An Event reports what a reconciliation did (reference A3).
type Event struct {
	InvolvedObject ObjectReference   `json:"involvedObject"`
	Severity       string            `json:"severity"` // trace, info or error
	Timestamp      time.Time         `json:"timestamp"`
	Message        string            `json:"message"` // at most 39,000 bytes
	Reason         string            `json:"reason"`
	Metadata       map[string]string `json:"metadata,omitempty"`
	Controller     string            `json:"reportingController"`
	Instance       string            `json:"reportingInstance,omitempty"` // set by the sender
}

// An ObjectReference names an object.
type ObjectReference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // as spelled in the object's document: HelmChart in the reference's group
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"` // of an object in a cluster
}

// Involved returns the reference to obj for events.
func Involved(obj Object) ObjectReference {
	head := obj.Head()
	return ObjectReference{head.APIVersion, head.spelling(), head.Metadata.namespace(), head.Metadata.Name, head.Metadata.UID}
}

// The severities of events. A trace is never forwarded.
const (
	SeverityTrace = "trace"
	SeverityInfo  = "info"
	SeverityError = "error"
)

// Keys of event metadata.
const (
	revisionKey = "source.toolkit.fluxcd.io/revision"
	digestKey   = "source.toolkit.fluxcd.io/digest"
)

// maxMessage is the longest message of an event or a condition, in bytes.
const maxMessage = 39000

// addEvent adds an event; emit sends it at the end of the run.
func (r *run) addEvent(severity, reason, message string) {
	r.events = append(r.events, Event{
		InvolvedObject: Involved(r.obj),
		Severity:       severity,
		Timestamp:      r.now(),
		Message:        r.sanitize(message),
		Reason:         reason,
		Controller:     "headgate",
	})
}

// emit sends the events of the run with the revision and digest of the currently published
// artifact. It copies the object's event annotations into each of them.
func (r *run) emit() {
	metadata := make(map[string]string)
	for key, value := range r.obj.Head().Metadata.Annotations {
		if strings.HasPrefix(key, "event.toolkit.fluxcd.io/") || strings.HasPrefix(key, "event.headgate.dev/") {
			metadata[key] = value
		}
	}
	if a := r.obj.Artifact(); a != nil {
		metadata[revisionKey], metadata[digestKey] = a.Revision, a.Digest
	}
	for _, e := range r.events {
		e.Metadata = maps.Clone(metadata)
		r.Emit(e)
	}
}

// sanitize returns text for a condition or an event: without credentials and control characters,
// and of bounded length.
func (r *run) sanitize(text string) string {
	text = redact.String(text, credentialsOf(r.from)...)
	if len(text) <= maxMessage {
		return text
	}
	end := maxMessage - len("…")
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// Conceal returns err without credentials: the Secrets of from (see [Reconciler.Reconcile]), which
// a server may have sent back, and credentials in URLs. It returns nil for nil.
func Conceal(err error, from Origin) error { return redact.Error(err, credentialsOf(from)...) }

// credentialsOf returns the credentials that from received or issued.
func credentialsOf(from Origin) []string {
	if holder, ok := from.(interface{ Secrets() []string }); ok {
		return holder.Secrets()
	}
	return nil
}
