// Package api contains the JSON types of the HTTP API of a server of sources, and a client of the
// API. It depends on neither the server nor the controller.
//
//	GET  /api/v1/sources                                  {"sources": [Source…], "defects": […]}; ?kind= ?namespace= ?name= ?ready=true|false|unknown
//	GET  /api/v1/sources/KIND/NAMESPACE/NAME              Source; with Accept: application/yaml the document with its status
//	GET  /api/v1/sources/KIND/NAMESPACE/NAME/files        {"files": [File…], "next": …} of its artifact; ?after=PATH ?limit=
//	GET  /api/v1/sources/KIND/NAMESPACE/NAME/runs         {"runs": [Run…]}, newest first
//	POST /api/v1/sources/KIND/NAMESPACE/NAME/reconcile    {} → 202 Ticket; ?wait=DURATION → 200 Source if the run has ended, else 202 Ticket
//	POST /api/v1/sources/KIND/NAMESPACE/NAME/suspend      Change → Source
//	POST /api/v1/sources/KIND/NAMESPACE/NAME/resume       {} → Source
//	GET  /api/v1/watch                                    text/event-stream of Notice: all sources at first, then changes; filters as for sources
//	GET  /api/v1/events                                   {"events": [Event…]}; ?kind= ?namespace= ?name= ?severity= ?since= ?after=ID ?limit= ; ?follow=true: text/event-stream
//	GET  /api/v1/stats                                    Stats
//	GET  /api/v1/session                                  Session
//	POST /api/v1/session                                  {"token": …}: starts a session and sets the cookie of the web page
//	DELETE /api/v1/session                                ends the session
//
// KIND is the kind of either API group, in upper or lower case. Path segments are escaped as in
// URLs. Other paths below /api/ are answered 404, a wrong method 405. An error is a Problem with
// the status of the answer.
package api

import (
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// A Problem is the JSON of every answer of the API with a status of 400 or more.
type Problem struct {
	Status int    `json:"status"`
	Reason string `json:"reason"` // what is wrong, and what to do
}

// A Source is the current state of an object.
type Source struct {
	Kind       string             `json:"kind"`
	Namespace  string             `json:"namespace"`
	Name       string             `json:"name"`
	APIVersion string             `json:"apiVersion"`
	Origin     string             `json:"origin"` // its URL or endpoint, without credentials
	Interval   string             `json:"interval"`
	Phase      string             `json:"phase"` // idle, queued, running, blocked, stalled, suspended, removed
	Ready      string             `json:"ready"` // True, False or Unknown
	Reason     string             `json:"reason,omitempty"`
	Message    string             `json:"message,omitempty"`
	Since      time.Time          `json:"since,omitzero"` // last change of Ready
	Revision   string             `json:"revision,omitempty"`
	Artifact   *artifact.Artifact `json:"artifact,omitempty"`
	URL        string             `json:"url,omitempty"`        // status.url, the pointer latest
	Next       time.Time          `json:"next,omitzero"`        // when its next run is due
	Checked    time.Time          `json:"checked,omitzero"`     // last successful check of its origin
	Failures   int                `json:"failures,omitempty"`   // failed runs since the last success
	Last       *Run               `json:"last,omitempty"`       // last run
	Suspension *source.Suspension `json:"suspension,omitempty"` // by a command
	Suspended  bool               `json:"suspended,omitempty"`  // by its spec or a command
	Blockers   []string           `json:"blockers,omitempty"`   // KIND/NAMESPACE/NAME of the objects that it waits for
	Missing    bool               `json:"missing,omitempty"`    // its document is missing while others are defective
	Conditions []source.Condition `json:"conditions,omitempty"` // not in lists
	Document   string             `json:"document,omitempty"`   // not in lists: YAML, as headgate fetch -o yaml prints it
	Hook       string             `json:"hook,omitempty"`       // not in lists: the path of its webhook
}

// A Run is a reconciliation that has ended.
type Run struct {
	Number   int64     `json:"number"`
	Trigger  string    `json:"trigger"` // start, tick, retry, spec, request, hook, input, secret, repair
	Started  time.Time `json:"started"`
	Took     float64   `json:"took"`    // seconds
	Outcome  string    `json:"outcome"` // stored, unchanged, waiting, failed, stalled
	Why      string    `json:"why,omitempty"`
	Error    string    `json:"error,omitempty"`
	Revision string    `json:"revision,omitempty"` // of the artifact after the run
}

// A File is an entry of an artifact.
type File struct {
	Path       string `json:"path"`
	Size       int64  `json:"size"` // bytes
	Executable bool   `json:"executable,omitempty"`
	Dir        bool   `json:"dir,omitempty"`
}

// A Ticket identifies a requested run.
type Ticket struct {
	Run int64 `json:"run"` // see Run.Number
}

// A Change is the author of a change, and the reason.
type Change struct {
	By     string `json:"by,omitempty"` // ignored if the credential has a name
	Reason string `json:"reason,omitempty"`
}

// An Event is an event of a source, with its number in the journal.
type Event struct {
	ID int64 `json:"id"`
	source.Event
}

// A Notice is one event of the watch stream. Exactly one field is set.
type Notice struct {
	Source *Source `json:"source,omitempty"` // a new or changed source
	Gone   *Gone   `json:"gone,omitempty"`   // a source that was deleted, or is no longer selected
	Synced bool    `json:"synced,omitempty"` // all existing sources were sent
}

// Gone identifies a source that is gone.
type Gone struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Stats describe the workload of a server.
type Stats struct {
	Version  string         `json:"version"`
	Started  time.Time      `json:"started"`
	Objects  int            `json:"objects"`
	Phases   map[string]int `json:"phases"`
	Ready    map[string]int `json:"ready"` // by True, False, Unknown
	Defects  []string       `json:"defects,omitempty"`
	Fetching int            `json:"fetching"` // contents being fetched; like Oldest, 0 if the caller may not read all objects
	Oldest   float64        `json:"oldest"`   // longest time that a due object has been waiting, in seconds
}

// A Session is the identity and the permissions of the caller.
type Session struct {
	Actor    string   `json:"actor"`    // "" if anonymous callers may do everything
	Required bool     `json:"required"` // callers must authenticate
	May      []string `json:"may"`      // fetch, read, change, debug
}
