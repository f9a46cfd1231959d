package notify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/deliver"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/rollout"
)

// An EventCaller posts events to webhooks. A [rollout.Caller] does.
type EventCaller interface {
	// Event posts one event. It returns soon after ctx ended.
	Event(ctx context.Context, hook rollout.Hook, event rollout.Event) (rollout.Answer, error)
}

// A Config says who is told what. Only Canary is required.
type Config struct {
	Canary    *rollout.Canary
	Providers []*Provider // that the alerts of the canary may refer to
	EventURL  string      // is told all events when the canary has no webhook of type event
	Cluster   string      // shown in alerts

	Caller  EventCaller                           // nil: [rollout.Caller] with Secrets and Proxy
	Secrets rollout.Secrets                       // nil: a provider that names a Secret is an error
	Proxy   func(*http.Request) (*url.URL, error) // as in [http.Transport]; nil for none

	Timeout time.Duration                              // of one post of an alert, default 5s
	Wait    func(context.Context, time.Duration) error // between attempts; nil for the clock

	// Report is told of each event that a receiver could not be told at the first
	// attempt, and of each that is given up, as a [*DeliveryError]; of those that
	// were dropped because too many were waiting, as a [*LostError]. Several
	// goroutines may call it at once. Its receiver waits for it, the analysis does not.
	Report func(error)
}

// A Dispatcher tells receivers the events of an analysis. It is safe for concurrent use.
type Dispatcher struct {
	queues deliver.Dispatcher[rollout.Event]
	end    func()
}

var _ rollout.Sink = (*Dispatcher)(nil)

// Start checks c and returns a dispatcher for it. It posts nothing, but it
// reads the Secrets of the providers, for ctx. The error joins what would make
// each delivery fail. The owner of the dispatcher calls Close.
func Start(ctx context.Context, c Config) (*Dispatcher, error) {
	if c.Report == nil {
		c.Report = func(error) {}
	}
	d := &Dispatcher{end: func() {}}
	if c.Caller == nil {
		caller := &rollout.Caller{Secrets: c.Secrets, Proxy: c.Proxy}
		c.Caller, d.end = caller, caller.Close
	}
	hooks, err := c.eventReceivers()
	alerts, more := c.alertReceivers(ctx)
	if err := errors.Join(err, more); err != nil {
		return nil, err
	}
	d.queues = deliver.Dispatcher[rollout.Event]{
		Receivers: append(hooks, alerts...),
		Rank:      func(e *rollout.Event) int { return rank[e.Alert] },
		Size:      size,
		Judge:     judge,
		Wait:      c.Wait,
		Failed: func(receiver string, e rollout.Event, lost bool, err error) {
			c.Report(&DeliveryError{Receiver: receiver, Event: e, Lost: lost, Err: err})
		},
		Full: func(lost *LostError) { c.Report(lost) },
	}
	d.queues.Start(ctx)
	return d, nil
}

// size returns the bytes that event takes, more or less.
func size(e *rollout.Event) int {
	return 256 + len(e.Message) + len(e.Reason) + len(e.Hook) + len(e.Name) + len(e.Namespace) + len(e.Checksum)
}

// rank orders severities; events that are no alerts are below them.
var rank = map[rollout.Severity]int{rollout.Info: 1, rollout.Warn: 2, rollout.Error: 3}

// judge says whether what err says may be gone at the next attempt, and how long
// the receiver asked to wait.
func judge(err error) (mends bool, after time.Duration) {
	var status *rollout.StatusError
	if !errors.As(err, &status) {
		return true, 0
	}
	return retry.Status(status.Code), status.RetryAfter
}

// Emit queues event for each receiver that is to be told. It does not wait, and
// ctx does not end the delivery.
func (d *Dispatcher) Emit(_ context.Context, event rollout.Event) { d.queues.Emit(event) }

// Close delivers what is queued, until ctx ends. What waits for another attempt has
// it at once, and the others from 1s on. The error joins a
// [*LostError] for each receiver that was not told everything since Start.
// Events that come later are lost.
func (d *Dispatcher) Close(ctx context.Context) error {
	err := d.queues.Close(ctx)
	d.end()
	return err
}

// eventReceivers returns the webhooks of type event, or that of EventURL.
func (c *Config) eventReceivers() ([]*deliver.Receiver[rollout.Event], error) {
	var hooks []rollout.Hook
	for _, hook := range c.Canary.Spec.Analysis.Webhooks {
		if hook.Type == rollout.HookEvent {
			hooks = append(hooks, hook)
		}
	}
	if len(hooks) == 0 && c.EventURL != "" {
		if _, err := deliver.ParseURL(c.EventURL); err != nil {
			return nil, fmt.Errorf("the URL for events %w", err)
		}
		hooks = []rollout.Hook{{Name: "events", Type: rollout.HookEvent, URL: c.EventURL}}
	}
	var list []*deliver.Receiver[rollout.Event]
	for _, hook := range hooks {
		list = append(list, &deliver.Receiver[rollout.Event]{
			Name: fmt.Sprintf("webhook %q", hook.Name),
			Deliver: func(ctx context.Context, event rollout.Event, lost int) error {
				_, err := c.Caller.Event(ctx, withLost(hook, lost), event)
				if u, bad := url.Parse(hook.URL); bad == nil {
					err = redact.Error(err, deliver.Private(u)...)
				}
				return err
			},
		})
	}
	return list, nil
}

// withLost returns hook with the number of lost events among its metadata, unless
// it is 0 or the hook uses that key.
func withLost(hook rollout.Hook, lost int) rollout.Hook {
	if lost == 0 {
		return hook
	}
	metadata := map[string]string{"eventsLost": strconv.Itoa(lost)}
	maps.Copy(metadata, hook.Metadata)
	hook.Metadata = metadata
	return hook
}

// alertReceivers returns a notifier for each alert of the canary.
func (c *Config) alertReceivers(ctx context.Context) ([]*deliver.Receiver[rollout.Event], error) {
	var list []*deliver.Receiver[rollout.Event]
	var errs []error
	for i, alert := range c.Canary.Spec.Analysis.Alerts {
		r, err := c.alertReceiver(ctx, alert)
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.analysis.alerts[%d]: %w", i, err))
			continue
		}
		list = append(list, r)
	}
	return list, errors.Join(errs...)
}

func (c *Config) alertReceiver(ctx context.Context, alert rollout.Alert) (*deliver.Receiver[rollout.Event], error) {
	least := rank[alert.Severity]
	switch {
	case alert.Severity == "":
		least = rank[rollout.Info]
	case least == 0:
		return nil, fmt.Errorf("severity %q is not known: use info, warn or error", alert.Severity)
	}
	provider, err := c.provider(alert.ProviderRef)
	if err != nil {
		return nil, err
	}
	n := &Notifier{Provider: provider, Secrets: c.Secrets, Proxy: c.Proxy, Timeout: c.Timeout}
	if err := n.Check(ctx); err != nil {
		return nil, err
	}
	return &deliver.Receiver[rollout.Event]{
		Name:  fmt.Sprintf("alert %q", alert.Name),
		Least: least,
		End:   n.Close,
		Deliver: func(ctx context.Context, event rollout.Event, lost int) error {
			return n.Post(ctx, &Message{Event: event, Fields: c.fields(event), Lost: lost})
		},
	}, nil
}

// provider returns that which ref names.
func (c *Config) provider(ref rollout.ObjectRef) (*Provider, error) {
	at := ref.Namespace
	if at == "" {
		at = c.Canary.Metadata.Namespace
	}
	want := namespace(at) + "/" + ref.Name
	var names []string
	for _, p := range c.Providers {
		if p.String() == want {
			return p, nil
		}
		names = append(names, p.String())
	}
	if names == nil {
		return nil, fmt.Errorf("providerRef: there is no AlertProvider %s, nor any other", want)
	}
	slices.Sort(names)
	return nil, fmt.Errorf("providerRef: there is no AlertProvider %s among %s", want, strings.Join(names, ", "))
}

// fields returns what goes with an alert: settings, at the beginning.
func (c *Config) fields(event rollout.Event) []Field {
	if !withFields[event.Code] {
		return nil
	}
	return Fields(c.Canary, c.Cluster)
}

// withFields are the events whose alerts show the settings of the canary.
var withFields = map[rollout.EventCode]bool{rollout.EventInitialized: true, rollout.EventRevisionNew: true, rollout.EventRevisionRestart: true}
