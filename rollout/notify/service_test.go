package notify_test

import (
	"context"
	"encoding/json"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/notify"
)

const (
	pathKey = "T0123456789-B0123456789-SECRETKEY"
	userKey = "user-name-that-is-a-key"
	token   = "xoxb-canary-TOKEN-value"
)

// secretsIn returns a function that has the Secrets of the namespace test.
func secretsIn(secrets map[string]map[string]string) rollout.Secrets {
	return func(_ context.Context, namespace, name string) (map[string][]byte, error) {
		if secrets[name] == nil || namespace != "test" {
			return nil, fs.ErrNotExist
		}
		out := make(map[string][]byte)
		for key, value := range secrets[name] {
			out[key] = []byte(value)
		}
		return out, nil
	}
}

// TestCredentials checks which values of a Secret each service gets.
func TestCredentials(t *testing.T) {
	for _, kind := range kinds {
		for _, key := range []string{"token", "apiToken"} {
			server := record(t, nil)
			p := provider(kind, "http://127.0.0.1:1/unused")
			p.Spec.SecretRef = &rollout.SecretRef{Name: "chat"}
			secrets := secretsIn(map[string]map[string]string{"chat": {"address": server.URL + "/" + pathKey, key: token}})
			if reports, err := sendAlerts(t, canary(), p, secrets, event(1, rollout.Warn)); err != nil {
				t.Fatal(reports, err)
			}
			got, path, auth := server.all()[0], "/"+pathKey, ""
			if kind == notify.Discord {
				path += "/slack"
			}
			if kind == notify.Slack || kind == notify.Generic {
				auth = "Bearer " + token
			}
			if got.path != "POST "+path+" application/json" || got.auth != auth {
				t.Errorf("%s: %+v", kind, got)
			}
		}
	}
}

// TestDiscordAddress checks that the suffix is appended to the path once, and that escapes are kept.
func TestDiscordAddress(t *testing.T) {
	for address, want := range map[string]string{
		"/api/webhooks/1/k":                  "/api/webhooks/1/k/slack",
		"/api/webhooks/1/k/":                 "/api/webhooks/1/k/slack",
		"/api/webhooks/1/k/slack":            "/api/webhooks/1/k/slack",
		"/api/webhooks/1/k%2Fl?thread_id=12": "/api/webhooks/1/k%2Fl/slack?thread_id=12",
	} {
		server := record(t, nil)
		if reports, err := sendAlerts(t, canary(), provider(notify.Discord, server.URL+address), nil, event(1, rollout.Warn)); err != nil {
			t.Fatal(reports, err)
		}
		testenv.Equal(t, server.all()[0].path, "POST "+want+" application/json", address)
	}
}

// TestSlackErrors checks refusals of the API of Slack, which answers 200 to messages that it does not accept.
func TestSlackErrors(t *testing.T) {
	for answer, want := range map[string]string{
		`{"ok":true}`: "", `ok`: "", `{}`: "",
		`{"ok":false,"error":"channel_not_found"}`:    "it is lost: alert provider test/slack: the message was not accepted: channel_not_found",
		`{"ok":false,"error":"ratelimited"}`:          "it is tried again: alert provider test/slack: the message was not accepted: ratelimited",
		"{\"ok\":false,\"error\":\"\\u001b[31m<x>\"}": "the message was not accepted: <x>",
	} {
		for _, ref := range []*rollout.SecretRef{nil, {Name: "chat"}} { // without a token, the API answers not_authed
			server := record(t, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(answer)) })
			p := provider(notify.Slack, server.URL)
			p.Spec.SecretRef = ref
			reports, err := sendAlerts(t, canary(), p, secretsIn(map[string]map[string]string{"chat": {"token": token}}), event(1, rollout.Warn))
			if want == "" && err != nil || want != "" && (len(reports) != 1 || !strings.HasSuffix(reports[0], want)) || len(server.all()) != 1 {
				t.Errorf("%s: %q, %v", answer, reports, err)
			}
		}
	}
}

// TestAlertFails checks that a report names the alert, the event, the provider, and only scheme and host of its address.
func TestAlertFails(t *testing.T) {
	server := record(t, func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no "+r.URL.Path+" "+r.Header.Get("Authorization"), http.StatusForbidden)
	})
	p := provider(notify.Slack, server.URL+"/"+pathKey)
	p.Spec.SecretRef = &rollout.SecretRef{Name: "chat"}
	reports, err := sendAlerts(t, canary(), p, secretsIn(map[string]map[string]string{"chat": {"token": token}}), event(1, rollout.Warn))
	failure := "alert provider test/slack: post to " + server.URL + ": status 403 Forbidden: no *** ***"
	if len(reports) != 1 || reports[0] != `tell alert "a" of event 1 (x), it is lost: `+failure || err == nil || err.Error() != `tell alert "a": 1 event is lost, the last because: `+failure {
		t.Errorf("%q, %v", reports, err)
	}
	p.Spec.SecretRef.Name = "other"
	if _, err := sendAlerts(t, canary(), p, secretsIn(nil)); err == nil || err.Error() != "spec.analysis.alerts[0]: alert provider test/slack: spec.secretRef: secret test/other: file does not exist" {
		t.Error(err)
	}
	p.Spec.SecretRef, p.Spec.CertSecretRef = nil, &rollout.SecretRef{Name: "tls"}
	if _, err := sendAlerts(t, canary(), p, secretsIn(nil)); err == nil || !strings.HasSuffix(err.Error(), "spec.certSecretRef: secret test/tls: file does not exist") {
		t.Error(err)
	}
}

// TestEventURL checks that the URL for events is used only for canaries without webhooks of type event.
func TestEventURL(t *testing.T) {
	for hooks, want := range map[string]string{"": "/global", "own": "/own", "own other": "/own /other"} {
		server := record(t, nil)
		c := canary()
		c.Spec.Analysis.Webhooks = []rollout.Hook{{Name: "load", URL: server.URL + "/load"}}
		for _, name := range strings.Fields(hooks) {
			c.Spec.Analysis.Webhooks = append(c.Spec.Analysis.Webhooks, rollout.Hook{Name: name, Type: rollout.HookEvent, URL: server.URL + "/" + name})
		}
		if _, err := sendEvents(t, notify.Config{Canary: c, EventURL: server.URL + "/global"}, event(1, "")); err != nil {
			t.Error(err)
		}
		got := map[string]bool{}
		for _, r := range server.all() {
			got[strings.Fields(r.path)[1]] = true
		}
		for _, path := range strings.Fields(want) {
			if !got[path] || len(got) != len(strings.Fields(want)) {
				t.Errorf("%q: %v, want %q", hooks, got, want)
			}
		}
	}
	_, err := sendEvents(t, notify.Config{Canary: canary(), EventURL: "hunter2"})
	if err == nil || err.Error() != "the URL for events must begin with http:// or https://" {
		t.Error(err)
	}
}

// TestEventsLostMetadata checks that the metadata has the number of lost events, and that keys of the webhook are kept.
func TestEventsLostMetadata(t *testing.T) {
	for _, test := range []struct {
		own  map[string]string
		want [3]string // eventsLost of three events, of which the first is refused
	}{
		{map[string]string{"team": "a"}, [3]string{"", "1", ""}},
		{map[string]string{"eventsLost": "own"}, [3]string{"own", "own", "own"}},
		{nil, [3]string{"", "1", ""}},
	} {
		var server *recorder
		server = record(t, func(w http.ResponseWriter, _ *http.Request) {
			if len(server.all()) == 1 {
				w.WriteHeader(http.StatusBadRequest)
			}
		})
		c, before := canary(), maps.Clone(test.own)
		c.Spec.Analysis.Webhooks = []rollout.Hook{{Name: "e", Type: rollout.HookEvent, URL: server.URL, Metadata: test.own}}
		reports, err := sendEvents(t, notify.Config{Canary: c}, event(1, ""), event(2, ""), event(3, ""))
		if err == nil || len(reports) != 1 || !strings.HasPrefix(reports[0], `tell webhook "e" of event 1 (x), it is lost: `) {
			t.Error(reports, err)
		}
		var got [3]string
		for i, r := range server.all() {
			var p rollout.Payload
			must(t, json.Unmarshal([]byte(r.body), &p))
			got[i] = p.Metadata["eventsLost"]
			testenv.Equal(t, p.Metadata["team"], test.own["team"], p.Metadata)
		}
		if got != test.want || !reflect.DeepEqual(test.own, before) {
			t.Errorf("%v, %v", got, test.own)
		}
	}
}

// TestEventRetryAfter checks that a webhook of type event is called again after the time that it asks for.
func TestEventRetryAfter(t *testing.T) {
	var times []time.Time
	again := make(chan struct{})
	server := record(t, func(w http.ResponseWriter, _ *http.Request) {
		if times = append(times, time.Now()); len(times) == 2 {
			close(again)
			return
		}
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	d, err := notify.Start(t.Context(), notify.Config{Canary: canary(), EventURL: server.URL})
	must(t, err)
	d.Emit(t.Context(), event(1, ""))
	<-again
	if err := d.Close(t.Context()); err != nil || times[1].Sub(times[0]) < 2*time.Second {
		t.Error(err, times)
	}
}

// TestReportsHideEventURL checks that no report shows keys in an address for events.
func TestReportsHideEventURL(t *testing.T) {
	server := record(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		segment, _ := url.PathUnescape(path.Base(r.URL.EscapedPath()))
		http.Error(w, "no "+r.URL.RequestURI()+" "+segment+" "+r.FormValue("sig")+" "+user+password, http.StatusForbidden)
	})
	address := strings.Replace(server.URL, "//", "//"+userKey+"@", 1) + "/services/" + pathKey + "/key%2Fin%2Fone%2Fpart?key=" + token + "&sig=key%2Fin%2Fa%2Fquery"
	reports, err := sendEvents(t, notify.Config{Canary: canary(), EventURL: address}, event(1, ""))
	if err == nil || len(server.all()) != 1 {
		t.Fatal(err, server.all())
	}
	for _, text := range append(reports, err.Error()) {
		for _, secret := range []string{pathKey, token, userKey, "in/a/query", "in/one"} {
			if strings.Contains(text, secret) || !strings.Contains(text, "403") {
				t.Errorf("%s shows %s", text, secret)
			}
		}
	}
}
