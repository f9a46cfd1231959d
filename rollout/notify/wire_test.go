package notify_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/notify"
)

var update = flag.Bool("update", false, "write the golden files")

const hostile = "approve: <!channel> <@U123> @everyone @here <b>bold</b> & &lt;!here&gt; [click](https://evil.example/?a=b) <https://evil.example|docs>\n\x1b[31mred\x00\u202e\xff \"quote\""

// alerts lists the alerts of the golden files.
var alerts = []struct {
	name  string
	event rollout.Event
}{
	{"new revision", rollout.Event{Code: rollout.EventCode("revision-new"), Message: "podinfo.test a new revision is rolled out", Phase: rollout.Progressing, Alert: rollout.Info}},
	{"gate waiting", rollout.Event{Code: "cp-wait", Warning: true, Message: "podinfo.test waits for approval", Phase: rollout.Progressing, Weight: 50, Hook: "gate", Reason: "status 403: Forbidden", Alert: rollout.Warn}},
	{"rollback", rollout.Event{Code: "rolled-back", Warning: true, Message: "podinfo.test is rolled back", Phase: rollout.Failed, FailedChecks: 5, Alert: rollout.Error}},
	{"promotion failed", rollout.Event{Code: "promotion-failed", Warning: true, Message: "podinfo.test the promotion failed", Phase: rollout.Failed, Weight: 100, Alert: rollout.Error}},
	{"gate expired", rollout.Event{Code: "gate-expired", Warning: true, Message: "podinfo.test: gate was closed for too long: Forbidden", Phase: rollout.Failed, Hook: "gate", Reason: "Forbidden", Alert: rollout.Error}},
	{"finished", rollout.Event{Code: "promoted", Message: "podinfo.test is promoted", Phase: rollout.Succeeded, Alert: rollout.Info}},
	{"hostile text", rollout.Event{Code: "cr-wait", Warning: true, Message: "podinfo.test waits", Phase: rollout.Waiting, Hook: "gate", Reason: hostile, Alert: rollout.Warn}},
}

var kinds = []notify.Type{notify.Slack, notify.MSTeams, notify.Discord, notify.Rocket, notify.GChat, notify.Generic}

// TestWire compares the posted requests with the golden files byte by byte.
func TestWire(t *testing.T) {
	for _, kind := range append(kinds, "workflow") {
		t.Run(string(kind), func(t *testing.T) {
			server := record(t, nil)
			refused := "an event that is refused"
			server.answer = func(w http.ResponseWriter, _ *http.Request) {
				if all := server.all(); strings.Contains(all[len(all)-1].body, refused) {
					w.WriteHeader(http.StatusBadRequest)
				}
			}
			p := provider(kind, server.URL+"/hook?id=1")
			if kind == "workflow" {
				p.Spec = notify.ProviderSpec{Type: notify.MSTeams, Address: "http://prod-01.westeurope.Logic.Azure.com/hook?id=1", Proxy: server.URL}
			}
			c := canary(rollout.Alert{Name: "a", ProviderRef: rollout.ObjectRef{Name: string(kind)}})
			var events []rollout.Event
			for i, a := range alerts {
				e := a.event
				e.Name, e.Namespace, e.Checksum, e.MaxWeight = "podinfo", "test", "5594979469", 50
				e.Sequence, e.Time = int64(i+1), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
				if a.name == "finished" { // its message says that two were lost
					lost := event(0, rollout.Info)
					lost.Message = refused
					events = append(events, lost, lost)
				}
				events = append(events, e)
			}
			sendEvents(t, notify.Config{Canary: c, Cluster: "prod & <b>", Providers: []*notify.Provider{p}}, events...)
			var got strings.Builder
			sent := slices.DeleteFunc(server.all(), func(r request) bool { return strings.Contains(r.body, refused) })
			for i, r := range sent {
				fmt.Fprintf(&got, "# %s: %s%s\n%s\n", alerts[i].name, r.path, r.auth, r.body)
				if !utf8.ValidString(r.body) || !json.Valid([]byte(r.body)) {
					t.Errorf("%q", r.body)
				}
			}
			golden(t, "testdata/"+string(kind)+".golden", got.String())
		})
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

// TestLong posts very long reasons. Each body stays below 28 KB, the lowest limit of all services.
func TestLong(t *testing.T) {
	for _, kind := range kinds {
		server := record(t, nil)
		var events []rollout.Event
		for i, part := range []string{"a", "&", "😀", "\xff", "\x1b[31m", "@everyone", "]("} {
			e := event(int64(i), rollout.Warn)
			e.Code = rollout.EventInitialized
			e.Reason = strings.Repeat(part, 1<<14/len(part))
			e.Name = strings.Repeat(part, 1<<10)
			events = append(events, e)
		}
		c := canary()
		c.Spec.TargetRef.Name = strings.Repeat("a&](", 1<<10)
		if reports, err := sendAlerts(t, c, provider(kind, server.URL), nil, events...); err != nil {
			t.Fatal(reports, err)
		}
		for _, r := range server.all() {
			if len(r.body) > 28<<10 || !strings.Contains(r.body, "…") {
				t.Errorf("%s: %d bytes: %.300s", kind, len(r.body), r.body)
			}
		}
	}
}

// TestMarkupIsEscaped checks that remote text has no markup that a service would interpret.
func TestMarkupIsEscaped(t *testing.T) {
	for kind, never := range map[notify.Type][]string{
		notify.Slack:   {"<", ">", "& "},
		notify.Discord: {"<!", "<@", "@everyone", "@here", "](", "&lt;", "<https:"},
		notify.Rocket:  {"<!", "<@", "@everyone", "@here", "](", "&lt;", "<https:"},
		notify.MSTeams: {"<", ">", "& ", "]("},
		notify.GChat:   {"<b>", "<!", "<@", "<https:", "& "},
		notify.Generic: nil,
	} {
		server := record(t, nil)
		e := event(1, rollout.Warn)
		e.Code, e.Reason, e.Name, e.Namespace = rollout.EventInitialized, hostile, hostile, hostile
		c := canary()
		c.Spec.TargetRef.Name = hostile
		if reports, err := sendAlerts(t, c, provider(kind, server.URL), nil, e); err != nil {
			t.Fatal(reports, err)
		}
		body := server.all()[0].body
		for escaped, r := range map[string]string{`\u003c`: "<", `\u003e`: ">", `\u0026`: "&"} { // as encoding/json writes them
			body = strings.ReplaceAll(body, escaped, r)
		}
		for _, text := range append(never, "\x1b", "\u202e", `\u001b`, `\n`, "a=b") {
			if strings.Contains(body, text) {
				t.Errorf("%s: %q is in %s", kind, text, body)
			}
		}
	}
}
