// Package notify sends the events of an analysis: alerts to chat services, and all
// events to webhooks of type event (specification, "Events").
//
// A [Dispatcher] is the [rollout.Sink] that sends both:
//
//   - Emit returns at once: a receiver that hangs delays neither the analysis
//     nor another receiver.
//   - Each receiver gets events in order, and each event at least once.
//   - A failed delivery that may succeed later is retried after 1s, 2s, 4s and so on up
//     to 30s, or after the time that the receiver asks for, at most 1m; up to a tenth is
//     added to each wait. The dispatcher gives up 5m after the first attempt.
//   - At most 256 events wait for a receiver. If there are more, the oldest of the least
//     severe ones is dropped.
//   - Every loss is reported, the next delivered event has the number of lost events,
//     and Close returns their total.
//   - After Close no goroutine is left.
//
// Remote text, such as the answer of a webhook, is shown as plain text: it cannot
// mention users or hide the target of a link, has no control characters, and is at
// most 2000 characters long. The address of a service and its token are secrets:
// errors show only a scheme and a host.
package notify

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/notify"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/secret"
	"github.com/headgate-io/headgate/rollout"
)

// A Config lists the receivers of a [Dispatcher]. Only Canary is required.
type Config struct {
	Canary    *rollout.Canary
	Providers []*Provider // that the alerts of the canary may refer to
	EventURL  string      // receives all events if the canary has no webhook of type event
	Cluster   string      // shown in alerts

	// Caller posts events. Alerts use its Secrets and its Proxy too. Nil: a Caller without either.
	Caller  *rollout.Caller
	Timeout time.Duration // of one post of an alert, default 5s

	// Report is called for each event whose first delivery attempt failed, and for lost
	// events. Several goroutines may call it at once, and deliveries wait until it
	// returns. Nil for no reports.
	Report func(error)
}

// A Dispatcher sends the events of an analysis to receivers. It is safe for concurrent use.
type Dispatcher struct {
	config Config
	queues notify.Dispatcher[rollout.Event]
	pool   notify.Pool // connections for alerts
}

var _ rollout.Sink = (*Dispatcher)(nil)

// Start checks c and starts a dispatcher for it. It posts nothing, but it reads the
// Secrets of the providers, which ctx can cancel. The error joins the defects that
// would make every delivery fail. The caller must call Close.
func Start(ctx context.Context, c Config) (*Dispatcher, error) {
	c.Caller = cmp.Or(c.Caller, new(rollout.Caller))
	d := &Dispatcher{config: c}
	d.queues.Report = func(err error, _ bool) {
		if c.Report != nil {
			c.Report(err)
		}
	}
	var errs []error
	set := &c.Canary.Spec.Analysis
	hooks := slices.DeleteFunc(slices.Clone(set.Webhooks), func(h rollout.Hook) bool { return h.Type != rollout.HookEvent })
	if len(hooks) == 0 && c.EventURL != "" {
		if _, err := notify.ParseURL(c.EventURL); err != nil {
			errs = append(errs, fmt.Errorf("the URL for events %w", err))
		}
		hooks = []rollout.Hook{{Name: "events", Type: rollout.HookEvent, URL: c.EventURL}}
	}
	for _, hook := range hooks {
		d.addReceiver("webhook", hook.Name, 0, func(ctx context.Context, event rollout.Event, lost int) error {
			return d.postEvent(ctx, hook, event, lost)
		})
	}
	for i, alert := range set.Alerts {
		if err := d.addAlert(ctx, alert); err != nil {
			errs = append(errs, fmt.Errorf("spec.analysis.alerts[%d]: %w", i, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	d.queues.Start()
	return d, nil
}

// rank orders severities. Events without an alert rank lowest.
var rank = map[rollout.Severity]int{rollout.Info: 1, rollout.Warn: 2, rollout.Error: 3}

// Emit queues event for each receiver of its severity. It does not wait, and ctx
// does not cancel the delivery. An event emitted after Close is lost.
func (d *Dispatcher) Emit(_ context.Context, event rollout.Event) {
	d.queues.Emit(event, fmt.Sprintf("event %d (%s)", event.Sequence, event.Code), rank[event.Alert])
}

// Close delivers the queued events until ctx ends. It retries events that wait for
// another attempt at once, and then with waits from 1s on. The error says for each
// receiver how many events were lost since Start.
func (d *Dispatcher) Close(ctx context.Context) error {
	defer d.config.Caller.Close()
	defer d.pool.Close()
	return d.queues.Close(ctx)
}

func (d *Dispatcher) addReceiver(kind, name string, minRank int, deliver func(ctx context.Context, event rollout.Event, lost int) error) {
	d.queues.Receivers = append(d.queues.Receivers, &notify.Receiver[rollout.Event]{Name: fmt.Sprintf("%s %q", kind, name), MinRank: minRank, Deliver: deliver})
}

// postEvent posts an event to a webhook of type event. The metadata has the number of lost
// events, unless the webhook uses that key.
func (d *Dispatcher) postEvent(ctx context.Context, hook rollout.Hook, event rollout.Event, lost int) error {
	if lost > 0 {
		metadata := map[string]string{"eventsLost": strconv.Itoa(lost)}
		maps.Copy(metadata, hook.Metadata)
		hook.Metadata = metadata
	}
	_, err := d.config.Caller.Event(ctx, hook, event)
	if u, parseErr := url.Parse(hook.URL); parseErr == nil {
		err = redact.Error(err, notify.URLSecrets(u)...)
	}
	if status, ok := errors.AsType[*rollout.StatusError](err); ok {
		return &notify.Refusal{Code: status.Code, After: status.RetryAfter, Err: err}
	}
	return err
}

// addAlert adds the provider of an alert to the receivers.
func (d *Dispatcher) addAlert(ctx context.Context, alert rollout.Alert) error {
	c := &d.config
	minRank, known := rank[cmp.Or(alert.Severity, rollout.Info)]
	if !known {
		return fmt.Errorf("severity %q is not known: use info, warn or error", alert.Severity)
	}
	want := cmp.Or(alert.ProviderRef.Namespace, c.Canary.Namespace()) + "/" + alert.ProviderRef.Name
	i := slices.IndexFunc(c.Providers, func(p *Provider) bool { return p.String() == want })
	if i < 0 {
		return fmt.Errorf("providerRef: there is no AlertProvider %s among %v", want, c.Providers)
	}
	p, found := c.Providers[i], document.Findings{}
	p.check(&found)
	hook := p.webhook()
	hook.Secrets, hook.Proxies, hook.Pool = c.Caller.Secrets, c.Caller.Proxy, &d.pool
	err := errors.Join(found.ErrorsFor("")...)
	if err == nil {
		_, err = hook.Target(ctx)
	}
	if err != nil {
		return fmt.Errorf("alert provider %s: %w", p, err)
	}
	d.addReceiver("alert", alert.Name, minRank, func(ctx context.Context, event rollout.Event, lost int) error {
		ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.Timeout, notify.Timeout)) // includes reading the Secrets
		defer cancel()
		m := message{Event: event, Lost: lost}
		switch event.Code {
		case rollout.EventInitialized, rollout.EventRevisionNew, rollout.EventRevisionRestart:
			m.Fields = fieldsOf(c.Canary, c.Cluster)
		}
		if err := p.post(ctx, hook, m); err != nil {
			return fmt.Errorf("alert provider %s: %w", p, err)
		}
		return nil
	})
	return nil
}

// webhook returns the webhook that alerts are posted to.
func (p *Provider) webhook() *notify.Webhook {
	spec := &p.Spec
	w := &notify.Webhook{URL: spec.Address, Proxy: spec.Proxy, Prefix: "spec.", URLField: "address"}
	if spec.SecretRef != nil {
		w.Secret = notify.Ref{Namespace: p.namespace(), Name: spec.SecretRef.Name}
	}
	if spec.CertSecretRef != nil {
		w.Certs = notify.Ref{Namespace: p.namespace(), Name: spec.CertSecretRef.Name}
	}
	if spec.Type == Slack {
		w.TokenURL = "https://slack.com/api/chat.postMessage"
	}
	if spec.Type == Slack || spec.Type == Generic {
		w.Credentials = token
	}
	return w
}

// token sets the bearer token of a Secret. The key apiToken is that of some releases of the
// reference implementation.
func token(r secret.Reader, header http.Header) error {
	token, err := r.Text([]string{"token", "apiToken"})
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	return err
}

// post makes one attempt to post an alert.
func (p *Provider) post(ctx context.Context, hook *notify.Webhook, m message) error {
	t, err := hook.Target(ctx)
	if err != nil {
		return err
	}
	if p.Spec.Type == Discord && !strings.HasSuffix(t.URL.Path, "/slack") {
		t.URL.Path = cmp.Or(t.URL.Path, "/") // without it, the joined path would not begin with a slash
		t.URL = t.URL.JoinPath("slack")
	}
	body, err := p.Spec.payload(t.URL, m)
	if err != nil {
		return &notify.Refusal{Err: err}
	}
	answer, err := t.Post(ctx, body)
	if err != nil || p.Spec.Type != Slack {
		return err
	}
	return slackError(answer)
}

// slackError returns the error that the API of Slack reports in an answer with status 200.
func slackError(answer []byte) error {
	var reply struct {
		OK    *bool  `json:"ok"`
		Error string `json:"error"`
	}
	if json.Unmarshal(answer, &reply) != nil || reply.OK == nil || *reply.OK {
		return nil
	}
	refusal := &notify.Refusal{Err: fmt.Errorf("the message was not accepted: %s", redact.Excerpt(reply.Error, maxField))}
	if reply.Error == "ratelimited" || reply.Error == "rate_limited" {
		refusal.Code = http.StatusTooManyRequests
	}
	return refusal
}
