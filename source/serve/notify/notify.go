// Package notify posts the events of sources to webhooks, in the JSON format of the reference
// (reference A3), which a notification-controller accepts. Its rules:
//
//   - Events of severity trace are not posted. A receiver of severity error gets errors only.
//   - Emit does not block: a receiver that hangs delays neither the sources nor other receivers.
//     Each receiver gets its events in order, and each event at least once.
//   - If there is no connection, no answer within Config.Timeout, or a status of 500 or more other
//     than 501, the post is retried for 5m. The delays are 1s, 2s, 4s and so on up to 30s, or the
//     time that Retry-After asks for, at most 1m, each lengthened at random by up to a tenth.
//     Status 429 means that the receiver already has the event, so it is not posted again. All
//     other statuses outside of 200 to 299 are final, and so is a redirect to another origin.
//   - At most 256 events wait for each receiver. If there are more, the oldest event of severity
//     info is dropped, or the oldest error if all are errors.
//   - Every loss is reported. The metadata of the next delivered event contain the number of lost
//     events ([LostKey]), and Close returns the losses as an error.
//   - The URL of a receiver and its credentials are secrets: errors contain only scheme and host.
//     Secrets are read anew for each post.
//   - Close waits for all goroutines.
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

// LostKey is the key of event metadata with the number of events that were lost for the receiver before this one.
const LostKey = "event.headgate.dev/lost"

// A Receiver is a webhook that gets events.
type Receiver struct {
	URL      string `json:"url,omitempty"`      // http or https; the key address of the Secret takes precedence
	Severity string `json:"severity,omitempty"` // least severity: info (default) or error
	Proxy    string `json:"proxy,omitempty"`    // URL: http, https, socks5 or socks5h

	// SecretRef names a Secret with any of the keys address (a URL), token or bearerToken, username and
	// password, and headers (one "Name: value" per line).
	SecretRef *SecretRef `json:"secretRef,omitempty"`
	// CertSecretRef names a Secret with ca.crt, tls.crt and tls.key.
	CertSecretRef *SecretRef `json:"certSecretRef,omitempty"`
}

// A SecretRef names a Secret.
type SecretRef struct {
	Namespace string `json:"namespace,omitempty"` // default: default
	Name      string `json:"name"`
}

// ParseReceiver parses a receiver on a command line: URL for all events, or SEVERITY=URL. The
// error does not contain the URL.
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

// Decode reads a file of receivers: one YAML or JSON document whose field receivers is a list.
//
// It is strict: unknown fields and values of the wrong type are errors. The error joins all errors of
// the document, and uses name as the name of the file.
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
		s.Note(s.Locate(&d.Findings, n, "")...)
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return file.Receivers, nil
}

// check returns the errors of r. Prefix precedes the names of fields in them.
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

// name returns the name of the receiver in errors, without its URL, which may be a secret.
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

// A Config configures a [Dispatcher].
type Config struct {
	Receivers  []Receiver
	Secrets    source.Secrets                        // if nil, posts to a receiver that names a Secret fail
	Proxy      func(*http.Request) (*url.URL, error) // for receivers without a proxy, as in [http.Transport]; nil for none
	Instance   string                                // reportingInstance of the events, such as the host name
	Controller string                                // reportingController of the events; "" keeps that of each event
	Timeout    time.Duration                         // of one post; default 5s

	// Report is called with the error of each event whose first post failed, and for lost events.
	// Several goroutines may call it at once, and deliveries wait for it; nil for none.
	Report func(err error, lost bool)
	// Delivered is called with each event that a receiver accepted. Several goroutines may call it at
	// once; nil for none.
	Delivered func(source.Event)
}

// A Dispatcher posts the events of sources to receivers. It is safe for concurrent use.
type Dispatcher struct {
	queues notify.Dispatcher[source.Event]
	pool   notify.Pool
}

// ranks orders severities; events of other severities are not posted.
var ranks = map[string]int{"info": 1, "error": 2}

// Start returns a running dispatcher, which the caller closes. It does not read the Secrets of the receivers yet.
// The error joins the errors of the receivers.
func Start(c Config) (*Dispatcher, error) {
	d := new(Dispatcher)
	d.queues.Report, d.queues.Delivered = c.Report, c.Delivered
	if c.Report == nil {
		d.queues.Report = func(error, bool) {}
	}
	var errs []error
	for i := range c.Receivers {
		r := &c.Receivers[i]
		errs = append(errs, r.check(fmt.Sprintf("receivers[%d].", i)).ErrorsFor("")...)
		w := r.webhook()
		w.Proxies, w.Pool = c.Proxy, &d.pool
		if c.Secrets != nil {
			w.Secrets = func(ctx context.Context, namespace, name string) (map[string][]byte, error) {
				s, err := c.Secrets.Secret(ctx, namespace, name)
				return s.Data, err
			}
		}
		d.queues.Receivers = append(d.queues.Receivers, &notify.Receiver[source.Event]{
			Name: r.name(), MinRank: ranks[cmp.Or(r.Severity, "info")],
			Deliver: func(ctx context.Context, e source.Event, lost int) error { return c.post(ctx, w, e, lost) },
		})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	d.queues.Start()
	return d, nil
}

// post makes one attempt to post an event.
func (c *Config) post(ctx context.Context, w *notify.Webhook, e source.Event, lost int) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.Timeout, notify.Timeout)) // includes reading the Secrets
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
	if refusal, ok := errors.AsType[*notify.Refusal](err); ok && refusal.Code == http.StatusTooManyRequests { // the receiver already has the event
		return nil
	}
	return err
}

// Emit queues an event for each receiver whose severity it reaches. It does not block. The caller must
// not modify the metadata of the event afterwards.
func (d *Dispatcher) Emit(e source.Event) {
	if o := e.InvolvedObject; ranks[e.Severity] > 0 {
		d.queues.Emit(e, fmt.Sprintf("%s of %s/%s/%s", e.Reason, o.Kind, o.Namespace, o.Name), ranks[e.Severity])
	}
}

// Close delivers the queued events until ctx ends, and waits for all goroutines. An event that waits for a retry is
// retried at once. The error says for each receiver how many events were lost since Start.
func (d *Dispatcher) Close(ctx context.Context) error {
	defer d.pool.Close()
	return d.queues.Close(ctx)
}
