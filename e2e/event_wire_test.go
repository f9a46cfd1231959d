package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/notify"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
)

// What notify posts is an event of the reference: its own type takes all of it,
// and makes the same JSON of it.
func TestEventIsTheReferences(t *testing.T) {
	bodies := make(chan []byte, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		check(t, err)
		bodies <- body
	}))
	defer server.Close()
	d, err := notify.Start(notify.Config{Receivers: []notify.Receiver{{URL: server.URL}}, Instance: "host-1"})
	check(t, err)
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	d.Emit(source.Event{
		InvolvedObject: source.ObjectReference{APIVersion: "source.toolkit.fluxcd.io/v1", Kind: "HelmChart", Namespace: "shop", Name: "app"},
		Severity:       "error", Timestamp: at, Message: strings.Repeat("ü<", 13000), Reason: "ChartPullError", Controller: "headgate",
		Metadata: map[string]string{"source.toolkit.fluxcd.io/revision": "1.2.3"},
	})
	body := <-bodies
	check(t, d.Close(t.Context()))
	var e eventv1.Event
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	check(t, dec.Decode(&e))
	if e.InvolvedObject.Kind != "HelmChart" || e.Severity != eventv1.EventSeverityError || !e.Timestamp.Time.Equal(at.Truncate(time.Second)) || len(e.Message) != 39000 ||
		e.Reason != "ChartPullError" || e.ReportingController != "headgate" || e.ReportingInstance != "host-1" || e.Metadata["source.toolkit.fluxcd.io/revision"] != "1.2.3" {
		t.Errorf("%.2000s", body)
	}
	again, err := json.Marshal(e)
	check(t, err)
	if !bytes.Equal(fields(t, again), fields(t, body)) {
		t.Errorf("got %.300s\nwant %.300s", body, again)
	}
}

// fields returns JSON in an order that does not depend on its author's.
func fields(t *testing.T, text []byte) []byte {
	t.Helper()
	var v map[string]any
	check(t, json.Unmarshal(text, &v))
	out, err := json.Marshal(v)
	check(t, err)
	return out
}
