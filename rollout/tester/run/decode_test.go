package run

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

const anID = "0123456789abcdefghijklmn"

func record(change func(*line)) string {
	l := line{Key: strings.Repeat("0a", 32), FailOnError: true, Run: api.Run{ID: anID, State: api.Failed, Type: "bash", Ended: time.Unix(1, 0).UTC(), Output: "x"}}
	change(&l)
	text, _ := json.Marshal(l)
	return string(text)
}

func TestDecode(t *testing.T) {
	for want, text := range map[string]string{
		"":              record(func(*line) {}),
		"state":         record(func(l *line) { l.Run.State = "done" }),
		"state: ":       record(func(l *line) { l.Run.State = "" }),
		"id":            record(func(l *line) { l.Run.ID = "../x" }),
		"id: want":      record(func(l *line) { l.Run.ID = strings.Repeat("0", idLength) }),
		"key":           record(func(l *line) { l.Key = "" }),
		"key: want":     record(func(l *line) { l.Key += "00" }),
		"key: want a":   record(func(l *line) { l.Key = strings.Repeat("zz", 32) }),
		"ended":         record(func(l *line) { l.Run.Ended = time.Time{} }),
		"unexpected":    "{",
		"cannot":        `{"run":{"created":5}}`,
		"key: want a S": "null",
		"larger":        strings.Repeat(" ", recordMax+1),
	} {
		s, err := decode([]byte(anID), []byte(text))
		if want == "" {
			if err != nil || s.run.Output != "" || !s.failOnError || s.key[0] != 10 {
				t.Errorf("got %+v, %v", s, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) && !strings.HasPrefix(want, "cannot") {
			t.Errorf("%s: got %v", want, err)
		}
	}
}

// After the latest ID there would be none that is later.
func TestDecodeRefusesIDsOfTheFarFuture(t *testing.T) {
	id := strings.Repeat("v", idLength)
	if _, err := decode([]byte(id), []byte(record(func(l *line) { l.Run.ID = id }))); err == nil || !strings.HasPrefix(err.Error(), "id: ") {
		t.Errorf("got %v", err)
	}
	year := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	if id = (&clock{}).id(year); (&clock{last: idTime(id)}).id(year) <= id {
		t.Errorf("nothing comes after %s", id)
	}
}

// Whatever a record holds, it is an error or a run that can be written again.
func FuzzDecode(f *testing.F) {
	f.Add(record(func(*line) {}))
	f.Add(record(func(l *line) { l.Run.State, l.Run.Ended = api.Queued, time.Time{} }))
	f.Add(`{"key":"","run":{"id":""}}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := decode([]byte(anID), []byte(text))
		if err != nil {
			return
		}
		again, err := encode(s)
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		if _, err := decode([]byte(anID), again); err != nil {
			t.Errorf("%s: %v", again, err)
		}
	})
}
