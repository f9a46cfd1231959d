package notify_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/notify"
)

var update = flag.Bool("update", false, "write the golden files")

const hostile = "approve: <!channel> <@U123> @everyone @here <b>bold</b> & &lt;!here&gt; [click](https://evil.example/?a=b) <https://evil.example|docs>\n\x1b[31mred\x00\u202e\xff \"quote\""

// alerts are what the services are told in the golden files.
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

// TestWire compares what is posted with the golden files, byte by byte.
func TestWire(t *testing.T) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			server := record(t, nil)
			wire(t, &notify.Notifier{Timeout: time.Hour, Provider: provider(kind, server.URL+"/hook?id=1")}, server, string(kind))
		})
	}
	t.Run("workflow", func(t *testing.T) {
		server := record(t, nil)
		p := provider(notify.MSTeams, "http://prod-01.westeurope.Logic.Azure.com/hook?id=1")
		p.Spec.Proxy = server.URL
		wire(t, &notify.Notifier{Timeout: time.Hour, Provider: p}, server, "workflow")
	})
}

// wire posts the alerts to the server behind n.
func wire(t *testing.T, n *notify.Notifier, server *recorder, file string) {
	t.Helper()
	defer n.Close()
	var got strings.Builder
	for i, a := range alerts {
		e := a.event
		e.Name, e.Namespace, e.Checksum, e.MaxWeight = "podinfo", "test", "5594979469", 50
		e.Sequence, e.Time = int64(i+1), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		m := &notify.Message{Event: e}
		if a.name == "new revision" {
			m.Fields = notify.Fields(canary(), "prod & <b>")
		}
		if a.name == "finished" {
			m.Lost = 2
		}
		if err := n.Post(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		r := server.all()[i]
		fmt.Fprintf(&got, "# %s: %s%s\n%s\n", a.name, r.path, r.auth, r.body)
		if !utf8.ValidString(r.body) || !json.Valid([]byte(r.body)) {
			t.Errorf("%q", r.body)
		}
	}
	golden(t, "testdata/"+file+".golden", got.String())
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

// TestLong posts reasons without end: each body stays below 28 KB, the least that a service takes.
func TestLong(t *testing.T) {
	for _, kind := range kinds {
		server := record(t, nil)
		n := &notify.Notifier{Timeout: time.Hour, Provider: provider(kind, server.URL)}
		defer n.Close()
		for _, part := range []string{"a", "&", "😀", "\xff", "\x1b[31m", "@everyone", "]("} {
			e := event(1, rollout.Warn)
			e.Reason = strings.Repeat(part, 1<<20/len(part))
			e.Name = strings.Repeat(part, 1<<10)
			fields := []notify.Field{{Name: "Cluster", Value: e.Name}}
			if err := n.Post(t.Context(), &notify.Message{Event: e, Fields: fields, Lost: 3}); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range server.all() {
			if len(r.body) > 28<<10 || !strings.Contains(r.body, "…") {
				t.Errorf("%s: %d bytes: %.300s", kind, len(r.body), r.body)
			}
		}
	}
}

// TestInterpreted: nothing that a service would interpret is left of a remote text.
func TestInterpreted(t *testing.T) {
	for kind, never := range map[notify.Type][]string{
		notify.Slack:   {"<", ">", "& "},
		notify.Discord: {"<!", "<@", "@everyone", "@here", "](", "&lt;", "<https:"},
		notify.Rocket:  {"<!", "<@", "@everyone", "@here", "](", "&lt;", "<https:"},
		notify.MSTeams: {"<", ">", "& ", "]("},
		notify.GChat:   {"<b>", "<!", "<@", "<https:", "& "},
		notify.Generic: nil,
	} {
		server := record(t, nil)
		n := &notify.Notifier{Timeout: time.Hour, Provider: provider(kind, server.URL)}
		e := event(1, rollout.Warn)
		e.Reason, e.Name, e.Namespace = hostile, hostile, hostile
		err := n.Post(t.Context(), &notify.Message{Event: e, Fields: []notify.Field{{Name: "Cluster", Value: hostile}}})
		n.Close()
		if err != nil {
			t.Fatal(err)
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
