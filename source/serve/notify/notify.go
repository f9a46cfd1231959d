// Package notify tells webhooks the events of sources, in the format of the
// reference (reference A3): a POST of JSON that a notification-controller
// takes. Its rules:
//
//   - Events of severity trace are not told. A receiver of severity error is
//     told errors only.
//   - Emit returns at once: a receiver that hangs delays neither the sources
//     nor another receiver. Each receiver is told in order, and at least once.
//   - When there is no answer within Config.Timeout, no connection, or a status from 500 on other than
//     501, the post is repeated after 1s, 2s, 4s and so on up to 30s, or as long as
//     Retry-After asks for, at most 1m, each time plus up to a tenth of that, for 5m. Status 429 means that the
//     receiver knows the event: it is dropped. Any other status than 200 to 299 is final, as is a redirect to another origin.
//   - 256 events wait for each receiver; when there are more, the oldest
//     information is dropped, or the oldest error when all are.
//   - Every loss is reported, the next event that is delivered has the number of lost
//     events in its metadata ([LostKey]), and Close returns it.
//   - The URL of a receiver and its credentials are secrets: errors show a
//     scheme and a host. Secrets are read anew for each post.
//   - After Close no goroutine is left.
package notify

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/notify"
	"github.com/headgate-io/headgate/internal/secret"
	"github.com/headgate-io/headgate/source"
)

// LostKey is the key of event metadata that says how many events before this one
// the receiver was not told.
const LostKey = "event.headgate.dev/lost"

// A Receiver is a webhook that is told events.
type Receiver struct {
	URL      string `json:"url,omitempty"`      // http or https; the key address of the Secret counts before it
	Severity string `json:"severity,omitempty"` // info (default) or error: the least that is told
	Proxy    string `json:"proxy,omitempty"`    // URL: http, https, socks5 or socks5h

	// SecretRef names a Secret with any of the keys address (a URL), token or
	// bearerToken, or username and password, and headers, one "Name: value" a line.
	SecretRef *SecretRef `json:"secretRef,omitempty"`
	// CertSecretRef names a Secret with ca.crt, tls.crt and tls.key.
	CertSecretRef *SecretRef `json:"certSecretRef,omitempty"`
}

// A SecretRef names a Secret.
type SecretRef struct {
	Namespace string `json:"namespace,omitempty"` // default: default
	Name      string `json:"name"`
}

// ParseReceiver reads a receiver as a command has it: its URL, for all events, or
// error=URL. The error does not show the URL.
func ParseReceiver(text string) (Receiver, error) {
	r := Receiver{URL: text}
	if severity, rest, _ := strings.Cut(text, "="); ranks[severity] > 0 {
		r = Receiver{Severity: severity, URL: rest}
	}
	for _, e := range r.check("").Errors {
		return Receiver{}, fmt.Errorf("the URL %w", e.Err)
	}
	return r, nil
}

// Decode reads a file of receivers: one YAML or JSON document with the field receivers, a list.
//
// It is strict: unknown fields and values of the wrong type are errors. The error
// joins what is wrong. Name is the file's, for errors.
func Decode(name string, r io.Reader) ([]Receiver, error) {
	s, err := document.Open(name, r)
	if err != nil {
		return nil, err
	}
	var file struct {
		Receivers []Receiver `json:"receivers"`
	}
	for n := range s.Documents() {
		d := new(document.Decoder)
		if s.Number > 1 {
			d.Add("receivers", "are in one document: put them into the first")
		}
		d.Decode(n, &file, "")
		for i := range file.Receivers {
			d.Adopt(file.Receivers[i].check(fmt.Sprintf("receivers[%d].", i)))
		}
		s.Note(s.Place(&d.Findings, n, "")...)
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return file.Receivers, nil
}

// check returns what is wrong with r, whose fields have a prefix in errors.
func (r *Receiver) check(prefix string) *document.Findings {
	found, w := new(document.Findings), r.webhook()
	w.Prefix = prefix
	w.Check(found)
	found.AddIf(r.Severity != "" && ranks[r.Severity] == 0, prefix+"severity", "%s is not known: use info or error", document.Quote(r.Severity))
	return found
}

func (r *Receiver) webhook() *notify.Webhook {
	return &notify.Webhook{
		URL: r.URL, URLField: "url", Proxy: r.Proxy, Secret: r.SecretRef.ref(), Certs: r.CertSecretRef.ref(),
		Credentials: func(r secret.Reader, header http.Header) error {
			return notify.Authorize(r, header, []string{"token", "bearerToken"}, "User-Agent")
		},
	}
}

// name returns what errors call the receiver: its URL may be a secret.
func (r *Receiver) name() string {
	if u, err := url.Parse(r.URL); err == nil && u.Host != "" {
		return "event receiver " + u.Scheme + "://" + u.Host
	}
	return "event receiver of secret " + r.SecretRef.ref().String()
}

func (r *SecretRef) ref() notify.Ref {
	if r == nil {
		return notify.Ref{}
	}
	return notify.Ref{Namespace: cmp.Or(r.Namespace, source.DefaultNamespace), Name: r.Name}
}

// A Config says which receivers are told what.
type Config struct {
	Receivers  []Receiver
	Secrets    source.Secrets                        // nil: a receiver that names a Secret is an error
	Proxy      func(*http.Request) (*url.URL, error) // for receivers without one, as in [http.Transport]; nil for none
	Instance   string                                // reportingInstance of the events, the name of the host
	Controller string                                // reportingController of the events; "" for their own
	Timeout    time.Duration                         // of one post; default 5s

	// Report is told of each event that was not delivered at the first attempt,
	// and of events that are lost. Several goroutines may call it at once, and
	// deliveries wait for it. Nil for nothing.
	Report func(err error, lost bool)
	// Delivered is told of each event that a receiver accepted. Several goroutines
	// may call it at once; nil for nothing.
	Delivered func(source.Event)
}

// A Dispatcher tells receivers the events of sources. It is safe for concurrent use.
type Dispatcher struct {
	queues notify.Dispatcher[source.Event]
	pool   notify.Pool
}

// ranks orders severities; events of others are not told.
var ranks = map[string]int{"info": 1, "error": 2}

// Start returns a dispatcher. It posts nothing and reads no Secrets; the error joins
// what is wrong with the receivers. Its owner calls Close.
func Start(c Config) (*Dispatcher, error) {
	d := new(Dispatcher)
	d.queues.Report, d.queues.Delivered = c.Report, c.Delivered
	if c.Report == nil {
		d.queues.Report = func(error, bool) {}
	}
	var errs []error
	for i := range c.Receivers {
		r := &c.Receivers[i]
		errs = append(errs, r.check(fmt.Sprintf("receivers[%d].", i)).Of("")...)
		w := r.webhook()
		w.Proxies, w.Pool = c.Proxy, &d.pool
		if c.Secrets != nil {
			w.Secrets = func(ctx context.Context, namespace, name string) (map[string][]byte, error) {
				s, err := c.Secrets.Secret(ctx, namespace, name)
				return s.Data, err
			}
		}
		d.queues.Receivers = append(d.queues.Receivers, &notify.Receiver[source.Event]{
			Name: r.name(), Least: ranks[cmp.Or(r.Severity, "info")],
			Deliver: func(ctx context.Context, e source.Event, lost int) error { return c.post(ctx, w, e, lost) },
		})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	d.queues.Start()
	return d, nil
}

// post posts one event: one attempt.
func (c *Config) post(ctx context.Context, w *notify.Webhook, e source.Event, lost int) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.Timeout, notify.Timeout)) // of the Secrets as well
	defer cancel()
	e.Instance, e.Controller = c.Instance, cmp.Or(c.Controller, e.Controller)
	e.Timestamp = e.Timestamp.UTC().Truncate(time.Second)
	if lost > 0 {
		metadata := make(map[string]string)
		maps.Copy(metadata, e.Metadata)
		metadata[LostKey] = strconv.Itoa(lost)
		e.Metadata = metadata
	}
	body, err := json.Marshal(e)
	if err != nil {
		return &notify.Refusal{Err: err}
	}
	t, err := w.Target(ctx)
	if err == nil {
		_, err = t.Post(ctx, body)
	}
	if refusal, ok := errors.AsType[*notify.Refusal](err); ok && refusal.Code == http.StatusTooManyRequests { // it knows the event
		return nil
	}
	return err
}

// Emit queues an event for each receiver that is to be told. It does not wait,
// and keeps the event: its metadata must not be changed.
func (d *Dispatcher) Emit(e source.Event) {
	if o := e.InvolvedObject; ranks[e.Severity] > 0 {
		d.queues.Emit(e, fmt.Sprintf("%s of %s/%s/%s", e.Reason, o.Kind, o.Namespace, o.Name), ranks[e.Severity])
	}
}

// Close delivers what is queued, until ctx ends. What waits for another attempt has
// it at once. The error says for each receiver how many events were lost since Start.
func (d *Dispatcher) Close(ctx context.Context) error {
	defer d.pool.Close()
	return d.queues.Close(ctx)
}
