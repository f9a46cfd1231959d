package notify_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/notify"
)

// TestEventURL is for canaries without webhooks of type event.
func TestEventURL(t *testing.T) {
	for hooks, want := range map[string]string{"": "events", "own": "own", "own other": "other own"} {
		s := &script{}
		c := canary()
		c.Spec.Analysis.Webhooks = []rollout.Hook{{Name: "load", URL: "http://h/"}}
		for _, name := range strings.Fields(hooks) {
			c.Spec.Analysis.Webhooks = append(c.Spec.Analysis.Webhooks, rollout.Hook{Name: name, Type: rollout.HookEvent})
		}
		d, err := notify.Start(t.Context(), notify.Config{Canary: c, Caller: s, EventURL: "https://h/global"})
		if err != nil {
			t.Fatal(err)
		}
		d.Emit(t.Context(), event(1, ""))
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := strings.Join(slices.Sorted(maps.Keys(s.told)), " "); got != want {
			t.Errorf("%q: %q, want %q", hooks, got, want)
		}
	}
	_, err := notify.Start(t.Context(), notify.Config{Canary: canary(), EventURL: "hunter2"})
	if err == nil || err.Error() != "the URL for events is no URL: write https://HOST/PATH" {
		t.Error(err)
	}
}

// TestLostKey tells of losses in the metadata, and leaves those of the webhook alone.
func TestLostKey(t *testing.T) {
	for _, test := range []struct {
		own  map[string]string
		want []map[string]string
	}{
		{map[string]string{"team": "a"}, []map[string]string{{"team": "a"}, {"team": "a", "eventsLost": "1"}, {"team": "a"}}},
		{map[string]string{"eventsLost": "own"}, []map[string]string{{"eventsLost": "own"}, {"eventsLost": "own"}, {"eventsLost": "own"}}},
		{nil, []map[string]string{nil, {"eventsLost": "1"}, nil}},
	} {
		var got []map[string]string
		c, before := canary(), maps.Clone(test.own)
		c.Spec.Analysis.Webhooks = []rollout.Hook{{Name: "e", Type: rollout.HookEvent, Metadata: test.own}}
		d, err := notify.Start(t.Context(), notify.Config{Canary: c, Caller: eventFunc(func(_ context.Context, hook rollout.Hook, _ rollout.Event) error {
			if got = append(got, hook.Metadata); len(got) == 1 {
				return &rollout.StatusError{Code: 400}
			}
			return nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		for n := range int64(3) {
			d.Emit(t.Context(), event(n+1, ""))
		}
		d.Close(t.Context())
		if !reflect.DeepEqual(got, test.want) || !reflect.DeepEqual(test.own, before) {
			t.Errorf("%v, %v", got, test.own)
		}
	}
}

type eventFunc func(context.Context, rollout.Hook, rollout.Event) error

func (f eventFunc) Event(ctx context.Context, hook rollout.Hook, event rollout.Event) (rollout.Answer, error) {
	return rollout.Answer{}, f(ctx, hook, event)
}

// TestConcurrent emits from many goroutines while the dispatcher is closed.
func TestConcurrent(t *testing.T) {
	server := record(t, nil)
	d, err := notify.Start(t.Context(), notify.Config{
		Canary:    canary(rollout.Alert{Name: "a", ProviderRef: rollout.ObjectRef{Name: "slack"}}),
		Providers: []*notify.Provider{provider(notify.Slack, server.URL)},
	})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for n := range int64(8) {
		all.Go(func() {
			for i := range int64(10) {
				d.Emit(t.Context(), event(10*n+i, rollout.Info))
			}
		})
	}
	d.Close(t.Context())
	all.Wait()
	err = d.Close(t.Context())
	lost := 0
	var told *notify.LostError
	if errors.As(err, &told) {
		lost = told.Events
	}
	if got := len(server.all()); got+lost != 80 {
		t.Errorf("%d told, %d lost", got, lost)
	}
}

// TestAlertRetries posts an alert again, after as long as the service asks for;
// a receiver that hangs does not delay it.
func TestAlertRetries(t *testing.T) {
	answers := []struct {
		status int
		after  string
	}{{429, "7"}, {500, ""}, {503, "86400"}, {503, "soon"}, {503, "Thu, 01 Jan 1970 00:00:00 GMT"}, {200, ""}}
	arrived := make(chan struct{})
	hanging := eventFunc(func(ctx context.Context, _ rollout.Hook, _ rollout.Event) error {
		close(arrived)
		<-ctx.Done()
		return ctx.Err()
	})
	done := make(chan struct{})
	var busy *recorder
	busy = record(t, func(w http.ResponseWriter, _ *http.Request) {
		a := answers[len(busy.all())-1]
		w.Header().Set("Retry-After", a.after)
		w.WriteHeader(a.status)
		if a.status == 200 {
			close(done)
		}
	})
	var pauses []time.Duration
	d, err := notify.Start(t.Context(), notify.Config{
		Canary:    canary(rollout.Alert{Name: "busy", ProviderRef: rollout.ObjectRef{Name: "slack"}}),
		Providers: []*notify.Provider{provider(notify.Slack, busy.URL)},
		Caller:    hanging, EventURL: "http://hanging/",
		Timeout: time.Hour, // however slow this machine is
		Wait: func(_ context.Context, d time.Duration) error {
			pauses = append(pauses, d)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	d.Emit(t.Context(), event(1, rollout.Warn))
	<-arrived
	<-done
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var lost *notify.LostError
	if err := d.Close(ctx); !errors.As(err, &lost) || lost.Receiver != `webhook "events"` || lost.Events != 1 {
		t.Error(err)
	}
	if got, want := fmt.Sprint(pauses), "[7s 2s 1m0s 8s 16s]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestEventAsksToWait: what a webhook of type event asks for is heeded too.
func TestEventAsksToWait(t *testing.T) {
	var server *recorder
	server = record(t, func(w http.ResponseWriter, _ *http.Request) {
		if len(server.all()) == 1 {
			w.Header().Set("Retry-After", "40")
			w.WriteHeader(429)
		}
	})
	var pauses []time.Duration
	d, err := notify.Start(t.Context(), notify.Config{
		Canary: canary(), EventURL: server.URL,
		Wait: func(_ context.Context, d time.Duration) error {
			pauses = append(pauses, d)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	d.Emit(t.Context(), event(1, ""))
	if err := d.Close(t.Context()); err != nil || fmt.Sprint(pauses) != "[40s]" {
		t.Error(err, pauses)
	}
}

// TestNoRetry: what time does not mend is told once, as lost.
func TestNoRetry(t *testing.T) {
	refusing := record(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"ok":false,"error":"channel_not_found"}`))
	})
	untrusted := httptest.NewUnstartedServer(nil)
	untrusted.Config.ErrorLog = quiet
	untrusted.StartTLS()
	defer untrusted.Close()
	secrets := map[string]map[string]string{"chat": {"token": token}}
	for want, p := range map[string]*notify.Provider{
		"the message was not accepted: channel_not_found": provider(notify.Slack, refusing.URL),
		"certificate signed by unknown authority":         provider(notify.Slack, untrusted.URL),
	} {
		p.Spec.SecretRef = &rollout.SecretRef{Name: "chat"}
		var reports []error
		d, err := notify.Start(t.Context(), notify.Config{
			Canary: canary(rollout.Alert{Name: "a", ProviderRef: rollout.ObjectRef{Name: "slack"}}), Providers: []*notify.Provider{p}, Secrets: vault(secrets),
			Report: func(err error) { reports = append(reports, err) },
			Wait:   func(context.Context, time.Duration) error { t.Error("tried again"); return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		d.Emit(t.Context(), event(1, rollout.Info))
		err = d.Close(t.Context())
		var failed *notify.DeliveryError
		if len(reports) != 1 || !errors.As(reports[0], &failed) || !failed.Lost || failed.Event.Sequence != 1 || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v, want %s", reports, err, want)
		}
	}
	if n := len(refusing.all()); n != 1 {
		t.Errorf("posted %d times", n)
	}
}

// TestEventSecretsStay: an address for events may hold a key, like one for alerts.
func TestEventSecretsStay(t *testing.T) {
	server := record(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		segment, _ := url.PathUnescape(path.Base(r.URL.EscapedPath()))
		http.Error(w, "no "+r.URL.RequestURI()+" "+segment+" "+r.FormValue("sig")+" "+user+password, http.StatusForbidden)
	})
	var reports []error
	d, err := notify.Start(t.Context(), notify.Config{
		Canary: canary(), EventURL: strings.Replace(server.URL, "//", "//"+userKey+"@", 1) + "/services/" + pathKey + "/key%2Fin%2Fone%2Fpart?key=" + token + "&sig=key%2Fin%2Fa%2Fquery",
		Report: func(err error) { reports = append(reports, err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	d.Emit(t.Context(), event(1, ""))
	err = d.Close(t.Context())
	if err == nil || len(server.all()) != 1 {
		t.Fatal(err, server.all())
	}
	for _, err := range append(reports, err) {
		if text := err.Error(); strings.Contains(text, pathKey) || strings.Contains(text, token) || strings.Contains(text, userKey) || strings.Contains(text, "in/a/query") || strings.Contains(text, "in/one") || !strings.Contains(text, "403") {
			t.Error(text)
		}
	}
}
