package serve

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
	"github.com/headgate-io/headgate/source/serve/journal"
)

// sees reports whether the caller may read of an object now: a stream lasts longer than a request.
func (c *call) sees(ref source.Reference) bool {
	grant, err := c.config.Callers.Renew(c.grant)
	return err == nil && may(grant, mayRead, ref) == nil
}

// stream answers with the server-sent events that produce sends, until the reader is gone or takes nothing, the
// server ends, or the caller is not known any more. Comments show proxies that the stream is in use.
func (c *call) stream(produce func(ctx context.Context, send func(id int64, value any)) error) error {
	out := httpserve.StreamEvents(c.w)
	if c.r.Method == http.MethodHead {
		return nil
	}
	ctx, end := c.streaming()
	texts, ended := make(chan string), make(chan struct{})
	go func() {
		defer close(ended)
		err := produce(ctx, func(id int64, value any) {
			head := "data: "
			if id > 0 {
				head = "id: " + strconv.FormatInt(id, 10) + "\ndata: "
			}
			data, _ := json.Marshal(value) // which has no type that JSON lacks
			select {
			case texts <- head + string(data) + "\n\n":
			case <-ctx.Done():
			}
		})
		if err != nil && ctx.Err() == nil {
			c.log.Warn("a stream broke", "path", clean(c.r.URL.Path), "error", clean(err.Error()))
		}
	}()
	defer func() {
		end()
		<-ended
	}()
	ticker := time.NewTicker(c.config.Keepalive)
	defer ticker.Stop()
	for text := ": here it begins\n\n"; ; {
		if _, err := out.Write([]byte(text)); err != nil {
			return nil
		}
		select {
		case text = <-texts:
		case <-ticker.C:
			if _, err := c.config.Callers.Renew(c.grant); err != nil {
				return nil
			}
			text = ":\n\n"
		case <-ended:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// watch streams the sources that the caller may read, and their changes. One
// that the filter selects no more is told as gone.
func (c *call) watch() error {
	selects, err := c.selection()
	if err != nil {
		return err
	}
	return c.stream(func(ctx context.Context, send func(int64, any)) error {
		told := make(map[source.Reference]bool) // what the client knows
		synced := false
		return c.Watch(ctx, func(views []View) {
			for _, v := range views {
				ref := source.ReferenceTo(v.Object)
				if v.Phase != Gone && selects(v) && c.sees(ref) {
					one := Summary(v)
					told[ref] = true
					send(0, api.Notice{Source: &one})
				} else if told[ref] {
					delete(told, ref)
					send(0, api.Notice{Gone: &api.Gone{Kind: source.Involved(v.Object).Kind, Namespace: ref.Namespace, Name: ref.Name}})
				}
			}
			if !synced {
				synced = true
				send(0, api.Notice{Synced: true})
			}
		})
	})
}

// events answers with events, the oldest first, or follows them.
func (c *call) events() error {
	values, err := c.query("severity", "since", "after", "limit", "follow", "kind", "namespace", "name")
	if err != nil {
		return err
	}
	q, err := c.eventQuery(values)
	if err != nil {
		return err
	}
	follow, err := strconv.ParseBool(values["follow"])
	switch {
	case err != nil && values["follow"] != "":
		return impossible("follow", values["follow"], "true or false")
	case c.config.Journal == nil:
		return httpserve.Refuse(http.StatusNotFound, "this server keeps no events")
	case follow:
		return c.stream(func(ctx context.Context, send func(int64, any)) error {
			return c.config.Journal.Follow(ctx, q, func(e api.Event) { send(e.ID, e) })
		})
	}
	return c.reply(map[string]any{"events": append([]api.Event{}, c.config.Journal.Read(q)...)}) // [] and not null
}

// eventQuery reads which events are wanted, of those that the caller may read.
func (c *call) eventQuery(values map[string]string) (q journal.Query, err error) {
	object, err := filter(values)
	if err != nil {
		return q, err
	}
	q.Select = func(e *api.Event) bool {
		o := e.InvolvedObject // of none only callers are told that may read everything
		ref, err := source.ParseReference(strings.Join([]string{o.Kind, o.Namespace, o.Name}, "/"))
		if err != nil {
			ref = source.Reference{}
		}
		return object.Selects(ref) && c.sees(ref)
	}
	switch q.Severity = values["severity"]; q.Severity {
	case "", "trace", "info", "error":
	default:
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
	q.Limit, err = number(values, "limit", maxEvents, otherwise)
	return q, err
}
