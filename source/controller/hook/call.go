package hook

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

// A call is what a request says, as far as it matters.
type call struct {
	provider string
	event    string // as the provider calls it
	ping     bool
	idle     bool     // the event changes nothing that a source is made of
	refs     []change // of a Git repository; nil when that is not known
	images   []image  // of a registry; nil when that is not known
}

// A change is that of one reference.
type change struct {
	ref     string // as refs/heads/main
	deleted bool
}

// An image is what was pushed to a registry.
type image struct {
	repository string // its path in the registry, or with the host; "" when not known
	tag        string // "" when there is none, or it is not known
	deleted    bool
	idle       bool // not pushed, or no manifest
}

// A provider sends webhooks.
type provider struct {
	name   string
	header string          // that names the event, and the provider by being there
	idle   map[string]bool // events that change nothing that a source is made of
	ping   string
	read   func(c *call, payload []byte)
}

func set(names string) map[string]bool {
	all := make(map[string]bool)
	for name := range strings.FieldsSeq(names) {
		all[name] = true
	}
	return all
}

// talk are the events of people who talk, in GitHub's words. Those of wikis are not among
// them: a wiki is a repository that a source may follow.
const talk = "commit_comment discussion discussion_comment fork issue_comment issues label member membership milestone " +
	"pull_request_comment pull_request_review pull_request_review_comment pull_request_review_thread star team team_add watch"

// providers are told by a header, the first that is there: Forgejo sends those of Gitea and Gogs as
// well, and these those of GitHub.
var providers = []provider{
	{name: "forgejo", header: "X-Forgejo-Event", idle: set(talk + " issue_assign issue_label issue_milestone"), read: readPush},
	{name: "gitea", header: "X-Gitea-Event", idle: set(talk + " issue_assign issue_label issue_milestone"), read: readPush},
	{name: "gogs", header: "X-Gogs-Event", idle: set(talk), read: readPush},
	{name: "github", header: "X-GitHub-Event", idle: set(talk), ping: "ping", read: readGitHub},
	{name: "gitlab", header: "X-Gitlab-Event", idle: set("confidential-issue-hook confidential-note-hook emoji-hook issue-hook member-hook note-hook"), read: readGitLab},
	{name: "bitbucket", header: "X-Event-Key", ping: "diagnostics:ping",
		idle: set("issue:created issue:updated issue:comment_created pullrequest:comment_created pullrequest:comment_updated pullrequest:comment_deleted repo:commit_comment_created repo:fork repo:forked repo:comment:added repo:comment:edited repo:comment:deleted pr:comment:added pr:comment:edited pr:comment:deleted"),
		read: readBitbucket},
	{name: "nexus", header: "X-Nexus-Webhook-Id", read: readNexus},
}

// read returns what a request says. What it cannot read it leaves out.
func read(header http.Header, body []byte) call {
	payload := payloadOf(header, body)
	for i := range providers {
		p := &providers[i]
		event := header.Get(p.header)
		if event == "" {
			continue
		}
		c := call{provider: p.name, event: strings.ReplaceAll(strings.ToLower(event), " ", "-")}
		c.ping = p.ping != "" && c.event == p.ping
		if c.idle = p.idle[c.event]; !c.idle && !c.ping {
			p.read(&c, payload)
		}
		return c
	}
	c := call{provider: "generic"}
	readAny(&c, payload)
	return c
}

// payloadOf returns the JSON of a body, which may be a field of a form.
func payloadOf(header http.Header, body []byte) []byte {
	const field = "payload="
	if !strings.HasPrefix(header.Get("Content-Type"), "application/x-www-form-urlencoded") && !strings.HasPrefix(string(body[:min(len(body), len(field))]), field) {
		return body
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || !form.Has("payload") {
		return body
	}
	return []byte(form.Get("payload"))
}

// parse returns the JSON of a payload as far as T has fields for it; the zero T when it is something else.
func parse[T any](payload []byte) T {
	var v, zero T
	if json.Unmarshal(payload, &v) != nil {
		return zero
	}
	return v
}
