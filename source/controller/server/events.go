package server

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/controller/api"
	"github.com/headgate-io/headgate/source/controller/journal"
)

const (
	defaultEvents = 100
	maxEvents     = 1000
)

// severities are those that events can be selected by.
var severities = map[string]bool{"": true, "trace": true, "info": true, "error": true}

// events answers with events, the oldest first, or follows them.
func (c *apiCall) events() error {
	values, err := c.query(append([]string{"severity", "since", "after", "limit", "follow"}, filterNames...)...)
	if err != nil {
		return err
	}
	q, err := c.selection(values)
	if err != nil {
		return err
	}
	follow, err := strconv.ParseBool(values["follow"])
	if err != nil && values["follow"] != "" {
		return impossible("follow", values["follow"], "true or false")
	}
	if c.Journal == nil {
		return answer.Refuse(http.StatusNotFound, "this server keeps no events")
	}
	if follow {
		return c.follow(q)
	}
	q.Select = func(e *journal.Entry) bool { return c.grant.Read(involved(e)) == nil }
	entries, err := c.Journal.Read(c.r.Context(), q)
	if err != nil {
		return err
	}
	list := []api.Event{} // [] and not null
	for _, e := range entries {
		list = append(list, api.Event{ID: e.ID, Event: e.Event})
	}
	return c.reply(http.StatusOK, struct {
		Events []api.Event `json:"events"`
	}{list})
}

// selection reads which events are wanted.
func (c *apiCall) selection(values map[string]string) (q journal.Query, err error) {
	if q.Object, err = filter(values); err != nil {
		return q, err
	}
	if q.Severity = values["severity"]; !severities[q.Severity] {
		return q, impossible("severity", q.Severity, "trace, info or error")
	}
	if text := values["since"]; text != "" {
		if q.Since, err = time.Parse(time.RFC3339, text); err != nil {
			return q, impossible("since", text, "a time such as 2026-01-31T12:00:00Z")
		}
	}
	after := values["after"]
	if id := c.r.Header.Get("Last-Event-ID"); id != "" {
		after = id // what the stream before ended with
	}
	if after != "" {
		if q.After, err = strconv.ParseInt(after, 10, 64); err != nil || q.After < 0 {
			return q, impossible("after", after, "the number of an event")
		}
	}
	otherwise := defaultEvents
	if after != "" && values["follow"] != "" {
		otherwise = 0 // none is to be left out
	}
	q.Limit, err = number(values, "limit", 1, maxEvents, otherwise)
	return q, err
}

// follow streams events. One who goes on after an event misses none, or is told
// that some are missing.
func (c *apiCall) follow(q journal.Query) error {
	return c.stream(func(ctx context.Context, s *eventStream) error {
		q.Select = func(e *journal.Entry) bool { return s.may(involved(e)) }
		return c.Journal.Follow(ctx, q, func(e journal.Entry) error {
			if err := s.tell(e.ID, api.Event{ID: e.ID, Event: e.Event}); err != nil {
				return err
			}
			return ctx.Err()
		})
	})
}

// involved returns the object of an event; the zero Reference when there is
// none: then only who may read everything is told.
func involved(e *journal.Entry) source.Reference {
	o := e.InvolvedObject
	ref, err := source.ParseReference(strings.Join([]string{o.Kind, o.Namespace, o.Name}, "/"))
	if err != nil {
		return source.Reference{}
	}
	return ref
}
