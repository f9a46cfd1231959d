// Package api is what a server of sources says over HTTP besides artifacts: the
// types of its JSON, and a client for it. It depends on neither the server nor
// the controller.
//
//	GET  /api/v1/sources                                  {"sources": [Source…], "defects": […]}; ?kind= ?namespace= ?name= ?ready=true|false|unknown
//	GET  /api/v1/sources/KIND/NAMESPACE/NAME              Source; with Accept: application/yaml the document with its status
//	GET  /api/v1/sources/KIND/NAMESPACE/NAME/files        {"files": [File…], "next": …} of its artifact; ?after=PATH ?limit=
//	GET  /api/v1/sources/KIND/NAMESPACE/NAME/runs         {"runs": [Run…]}, newest first
//	POST /api/v1/sources/KIND/NAMESPACE/NAME/reconcile    {} → 202 Ticket; ?wait=DURATION → 200 Source when that run has ended, 202 when it has not
//	POST /api/v1/sources/KIND/NAMESPACE/NAME/suspend      Change → Source
//	POST /api/v1/sources/KIND/NAMESPACE/NAME/resume       {} → Source
//	GET  /api/v1/watch                                    text/event-stream of Notice: all sources at first, then changes; filters as for sources
//	GET  /api/v1/events                                   {"events": [Event…]}; ?kind= ?namespace= ?name= ?severity= ?since= ?after=ID ?limit= ; ?follow=true: text/event-stream
//	GET  /api/v1/stats                                    Stats
//	GET  /api/v1/session                                  Session
//	POST /api/v1/session                                  {"token": …}: sets the cookie of the web page
//	DELETE /api/v1/session                                ends it
//
// KIND is as in documents of either group, in any case. A path segment is
// escaped as in URLs. Everything else below /api/ is 404; a wrong method is 405.
// An error is a Problem with the status of the answer.
package api

import (
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// A Problem is the JSON of every answer of the API from 400 on.
type Problem struct {
	Status int    `json:"status"`
	Reason string `json:"reason"` // what is wrong, and what to do
}

// A Source is an object as it is now.
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
	Since      time.Time          `json:"since,omitzero"` // it is ready, or not
	Revision   string             `json:"revision,omitempty"`
	Artifact   *artifact.Artifact `json:"artifact,omitempty"`
	URL        string             `json:"url,omitempty"`        // status.url, the pointer latest
	Next       time.Time          `json:"next,omitzero"`        // when it is due
	Checked    time.Time          `json:"checked,omitzero"`     // when its origin last answered
	Failures   int                `json:"failures,omitempty"`   // since it last succeeded
	Last       *Run               `json:"last,omitempty"`       // run
	Suspension *source.Suspension `json:"suspension,omitempty"` // by a command
	Suspended  bool               `json:"suspended,omitempty"`  // by its spec or a command
	Blockers   []string           `json:"blockers,omitempty"`   // KIND/NAMESPACE/NAME of what it waits for
	Missing    bool               `json:"missing,omitempty"`    // from its documents, some of which are defective
	Conditions []source.Condition `json:"conditions,omitempty"` // of one source alone
	Document   string             `json:"document,omitempty"`   // of one source alone: YAML, as headgate fetch -o yaml prints it
	Hook       string             `json:"hook,omitempty"`       // of one source alone: the path of its webhook
}

// A Run is one reconciliation that ended.
type Run struct {
	Number   int64     `json:"number"`
	Trigger  string    `json:"trigger"` // start, tick, retry, spec, request, hook, input, secret, repair
	Started  time.Time `json:"started"`
	Took     float64   `json:"took"`    // seconds
	Outcome  string    `json:"outcome"` // stored, unchanged, waiting, failed, stalled
	Why      string    `json:"why,omitempty"`
	Error    string    `json:"error,omitempty"`
	Revision string    `json:"revision,omitempty"` // of the artifact after it
}

// A File is an entry of an artifact.
type File struct {
	Path       string `json:"path"`
	Size       int64  `json:"size"` // bytes
	Executable bool   `json:"executable,omitempty"`
	Dir        bool   `json:"dir,omitempty"`
}

// A Ticket names a run that was asked for.
type Ticket struct {
	Run int64 `json:"run"`
}

// A Change says who wants something and why.
type Change struct {
	By     string `json:"by,omitempty"` // where the credential does not say it
	Reason string `json:"reason,omitempty"`
}

// An Event is an event of a source, with its number in the journal.
type Event struct {
	ID int64 `json:"id"`
	source.Event
}

// A Notice is one change, as the watch stream has it. Exactly one is set.
type Notice struct {
	Source *Source `json:"source,omitempty"` // new, or changed
	Gone   *Gone   `json:"gone,omitempty"`   // removed, with its artifacts
	Synced bool    `json:"synced,omitempty"` // all sources were told
}

// Gone names a source that is no more.
type Gone struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Stats say how much there is to do.
type Stats struct {
	Version  string         `json:"version"`
	Started  time.Time      `json:"started"`
	Objects  int            `json:"objects"`
	Phases   map[string]int `json:"phases"`
	Ready    map[string]int `json:"ready"` // by True, False, Unknown
	Defects  []string       `json:"defects,omitempty"`
	Fetching int            `json:"fetching"` // contents; like Oldest 0 for callers who may not read all
	Oldest   float64        `json:"oldest"`   // seconds that the first of those that are due has waited
}

// A Session says who the caller is, and what its credential allows.
type Session struct {
	Actor    string   `json:"actor"`    // "" when anonymous callers may do everything
	Required bool     `json:"required"` // callers have to say who they are
	May      []string `json:"may"`      // fetch, read, change, debug
}
