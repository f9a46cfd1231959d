// Package api is what a test runner says over HTTP besides the contract of
// webhooks: the types of its JSON, and a client for it. It depends on neither
// the server nor a store.
//
//	GET  /api/v1/gates                                       {"gates": [Gate…]}; ?kind= ?namespace= ?name= ?waiting=true
//	GET  /api/v1/gates/KIND/NAMESPACE/NAME/GATE              Gate; a gate never seen is closed
//	POST /api/v1/gates/KIND/NAMESPACE/NAME/GATE/open         Change → Gate
//	POST /api/v1/gates/KIND/NAMESPACE/NAME/GATE/close        Change → Gate
//	POST /api/v1/gates/KIND/NAMESPACE/NAME/GATE/reject       Change → Gate: closed, and the canary's rollback switch open for the checksum that waits
//	POST /api/v1/gates/KIND/NAMESPACE/NAME/GATE/link         LinkRequest → Link
//	GET  /api/v1/audit                                       {"entries": [Entry…]}, newest first; ?kind= ?namespace= ?name= ?gate= ?limit= ?before=ID
//	GET  /api/v1/runs                                        {"runs": [Run…]} without output, newest first; ?namespace= ?name= ?type= ?state= ?limit= ?before=ID
//	GET  /api/v1/runs/ID                                     Run
//	GET  /api/v1/runs/ID/output                              text/plain; ?follow=true goes on until the run has ended
//	POST /api/v1/runs/ID/cancel                              Run
//	GET  /api/v1/watch                                       text/event-stream of Notice
//	GET  /api/v1/session                                     Session
//	POST /api/v1/session                                     {"token": …}: sets the cookie of the web page
//	DELETE /api/v1/session                                   ends it
//
// KIND is gate or rollback. A path segment is escaped as in URLs. Everything
// else that is below /api/ is 404; a wrong method is 405. An error is a
// Problem with the status of the answer.
package api

import "time"

// A Problem is the JSON of every answer of the API from 400 on.
type Problem struct {
	Status int    `json:"status"`
	Reason string `json:"reason"` // what is wrong, and what to do
}

// A Session says who the caller is, and what its credential allows.
type Session struct {
	Actor    string `json:"actor"`              // "" when anonymous callers may do everything
	Required bool   `json:"required"`           // callers have to say who they are
	ReadOnly bool   `json:"readOnly,omitempty"` // it may look, and check gates, and change nothing
}

// A Notice is one change, as the watch stream has it. Exactly one is set.
type Notice struct {
	Gate *Gate `json:"gate,omitempty"`
	Run  *Run  `json:"run,omitempty"` // without output
}

// A LinkRequest asks for links that decide about what waits at a gate now.
type LinkRequest struct {
	TTL string `json:"ttl,omitempty"` // seconds or a duration; default 24h, at most 7 days
}

// A Link holds two URLs of pages with a button each. Whichever is pressed
// first ends both; neither works for another checksum.
type Link struct {
	Approve string    `json:"approve"`
	Reject  string    `json:"reject"`
	Expires time.Time `json:"expires"`
}
