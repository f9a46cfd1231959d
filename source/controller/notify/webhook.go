package notify

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/deliver"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/internal/secret"
	"github.com/headgate-io/headgate/source"
)

const (
	maxMessage = 39000 // bytes (reference A3)
	maxAnswer  = 1024  // bytes of an answer that are read
	maxShown   = 200   // bytes of it in an error
)

// The keys of Secrets beside those of [secret.Reader].
var (
	keyAddress = []string{"address"}
	keyToken   = []string{"token"}
)

// A webhook posts events to one receiver.
type webhook struct {
	Receiver
	config   *Config
	instance string
	poster   deliver.Poster
}

// name returns what reports call the receiver.
func (h *webhook) name() string {
	if u, err := deliver.ParseURL(h.URL); err == nil {
		return "event receiver " + u.Scheme + "://" + u.Host
	}
	if h.SecretRef != nil {
		return "event receiver of secret " + h.SecretRef.String()
	}
	return "event receiver"
}

// deliver posts one event: one attempt.
func (h *webhook) deliver(ctx context.Context, e source.Event, lost int) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(h.config.Timeout, deliver.Timeout)) // of the Secrets as well
	defer cancel()
	body, err := json.Marshal(h.wire(e, lost))
	if err != nil {
		return deliver.Permanent{Err: err}
	}
	t, hidden, err := h.target(ctx)
	if err != nil {
		return redact.Error(err, hidden...)
	}
	answer, err := h.poster.Post(ctx, t, body, maxAnswer)
	if err == nil {
		err = judgeAnswer(answer, hidden)
	}
	if err != nil {
		return redact.Error(fmt.Errorf("post to %s: %w", t.Origin(), err), hidden...)
	}
	return nil
}

// wire returns an event as it is posted.
func (h *webhook) wire(e source.Event, lost int) source.Event {
	e.Instance = h.instance
	e.Timestamp = e.Timestamp.UTC().Truncate(time.Second)
	if len(e.Message) > maxMessage {
		cut := maxMessage - len("…")
		for cut > 0 && !utf8.RuneStart(e.Message[cut]) {
			cut--
		}
		e.Message = e.Message[:cut] + "…"
	}
	if lost > 0 {
		e.Metadata = maps.Clone(e.Metadata)
		if e.Metadata == nil {
			e.Metadata = make(map[string]string)
		}
		e.Metadata[LostKey] = strconv.Itoa(lost)
	}
	return e
}

// target reads the Secrets of the receiver, and returns what must not be seen.
func (h *webhook) target(ctx context.Context) (t *deliver.Target, hidden []string, err error) {
	t = &deliver.Target{Header: make(http.Header), Timeout: h.config.Timeout}
	address, at := h.URL, "url"
	if h.SecretRef != nil {
		r, err := h.secret(ctx, "secretRef", h.SecretRef)
		if err != nil {
			return nil, nil, err
		}
		own, err := credentials(r, t.Header)
		for _, value := range r.Data {
			hidden = append(hidden, string(value))
		}
		if err != nil {
			return nil, hidden, deliver.Permanent{Err: fmt.Errorf("secretRef: %w", err)}
		}
		if own != "" {
			address, at = own, "secretRef: secret "+r.Name+": key address"
		}
	}
	if t.URL, err = deliver.ParseURL(address); err != nil {
		return nil, hidden, fmt.Errorf("%s %w", at, err)
	}
	hidden = append(hidden, deliver.Private(t.URL)...)
	for _, values := range t.Header {
		hidden = append(hidden, values...)
	}
	t.Header.Set("User-Agent", "headgate")
	if t.Proxy, err = h.proxy(t.URL); err != nil {
		return nil, hidden, err
	}
	if t.Proxy != nil && t.Proxy.User != nil {
		password, _ := t.Proxy.User.Password()
		hidden = append(hidden, cmp.Or(password, t.Proxy.User.Username()))
	}
	return t, hidden, h.secure(ctx, t)
}

// credentials puts those of a Secret into the header, and returns the address in it, if there is one.
func credentials(r secret.Reader, header http.Header) (address string, err error) {
	auth, err := r.Auth()
	if err != nil {
		return "", err
	}
	token, err := r.Text(keyToken)
	if err != nil {
		return "", err
	}
	if token != "" {
		if auth != (secret.Auth{}) {
			return "", r.Problem("token", "and bearerToken or username exclude each other: remove one")
		}
		auth.Bearer = token
	}
	own := []string{"User-Agent"}
	if auth != (secret.Auth{}) {
		header.Set("Authorization", auth.Header())
		own = append(own, "Authorization")
	}
	more, err := r.Headers(own...)
	if err != nil {
		return "", err
	}
	maps.Copy(header, more)
	return r.Text(keyAddress)
}

// proxy returns the proxy to u, nil for none.
func (h *webhook) proxy(u *url.URL) (*url.URL, error) {
	if h.Proxy != "" {
		proxy, err := deliver.ParseProxy(h.Proxy)
		if err != nil {
			return nil, fmt.Errorf("proxy %w", err)
		}
		return proxy, nil
	}
	if h.config.Proxy == nil {
		return nil, nil
	}
	proxy, err := h.config.Proxy(&http.Request{Method: http.MethodPost, URL: u, Header: http.Header{}, Host: u.Host})
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	return proxy, nil
}

// secure reads the TLS settings of the receiver into t.
func (h *webhook) secure(ctx context.Context, t *deliver.Target) error {
	if h.CertSecretRef == nil {
		return t.Secure(nil)
	}
	r, err := h.secret(ctx, "certSecretRef", h.CertSecretRef)
	if err != nil {
		return err
	}
	if err := t.Secure(&r); err != nil {
		return fmt.Errorf("certSecretRef: %w", err)
	}
	return nil
}

func (h *webhook) secret(ctx context.Context, field string, ref *SecretRef) (secret.Reader, error) {
	if h.config.Secrets == nil {
		return secret.Reader{}, deliver.Settings("%s: there are no Secrets here", field)
	}
	s, err := h.config.Secrets.Secret(ctx, ref.namespace(), ref.Name)
	if err != nil {
		return secret.Reader{}, fmt.Errorf("%s: %w", field, err)
	}
	return secret.Reader{Name: ref.String(), Data: s.Data}, nil
}

// judgeAnswer returns what an answer says is wrong.
func judgeAnswer(a *deliver.Answer, hidden []string) error {
	if a.Code >= 200 && a.Code <= 299 || a.Code == http.StatusTooManyRequests { // it knows the event
		return nil
	}
	e := &StatusError{Code: a.Code, Location: a.Location}
	e.RetryAfter, _ = retry.After(a.Header, time.Now())
	e.Text = redact.String(redact.Tail(string(a.Body), hidden...), hidden...)
	if len(e.Text) > maxShown {
		e.Text = redact.String(redact.Tail(e.Text[:maxShown], hidden...)) + "…"
	}
	return e
}
