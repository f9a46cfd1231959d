package journal_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
	"github.com/headgate-io/headgate/source/serve/journal"
)

var start = time.Date(2026, 7, 22, 10, 0, 0, 0, time.UTC)

func event(name, severity, message string) source.Event {
	return source.Event{
		InvolvedObject: source.ObjectReference{APIVersion: "source.toolkit.fluxcd.io/v1", Kind: "GitRepository", Namespace: "default", Name: name},
		Severity:       severity, Timestamp: start, Message: message, Reason: "NewArtifact", Controller: "headgate",
		Metadata: map[string]string{"source.toolkit.fluxcd.io/revision": "main@sha1:0"},
	}
}

func appEvent(message string) source.Event { return event("app", "info", message) }

func open(t *testing.T, c journal.Config) *journal.Journal {
	t.Helper()
	if c.Now == nil {
		c.Now = func() time.Time { return start }
	}
	j, err := journal.Open(c)
	must(t, err)
	t.Cleanup(func() { j.Close() })
	return j
}

func messages(list []api.Event) string {
	var all []string
	for _, e := range list {
		all = append(all, e.Message)
	}
	return strings.Join(all, " ")
}

func TestQuery(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "journal")
	j := open(t, journal.Config{Dir: dir})
	for i, e := range []source.Event{appEvent("a"), event("app", "trace", "not kept"), event("app", "loud", "not known"), event("app", "error", "c"), event("web", "info", "d"), event("app", "error", "e")} {
		e.Timestamp = start.Add(time.Duration(i) * time.Minute)
		j.Append(e)
	}
	first := j.Read(journal.Query{})[0].ID
	named := func(e *api.Event) bool { return e.InvolvedObject.Name == "app" }
	for name, test := range map[string]struct {
		query journal.Query
		want  string
	}{
		"default":             {journal.Query{}, "a c d e"},
		"errors":              {journal.Query{Severity: "error"}, "c e"},
		"selected":            {journal.Query{Select: named}, "a c e"},
		"since":               {journal.Query{Since: start.Add(4 * time.Minute)}, "d e"},
		"after":               {journal.Query{After: first + 1}, "d e"},
		"newest":              {journal.Query{Limit: 2}, "d e"},
		"newest selected":     {journal.Query{Limit: 2, Select: named}, "c e"},
		"more than there are": {journal.Query{Limit: 9, Severity: "error"}, "c e"},
		"after the last":      {journal.Query{After: first + 100}, ""},
	} {
		testenv.Equal(t, messages(j.Read(test.query)), test.want, name)
	}
	for path, mode := range map[string]fs.FileMode{dir: fs.ModeDir | 0o700, filepath.Join(dir, "events.jsonl"): 0o600} {
		if info, err := os.Stat(path); err != nil || filepath.Separator == '/' && info.Mode() != mode {
			t.Errorf("%s: %v %v", path, info, err)
		}
	}
}

// Appended events still exist after a restart, unchanged.
func TestEventRoundTrip(t *testing.T) {
	dir := t.TempDir()
	j := open(t, journal.Config{Dir: dir})
	e := appEvent("a \x1b[31m <b> \"ü\"\n")
	j.Append(e)
	long := appEvent(strings.Repeat("m", 39000))
	long.Metadata["event.toolkit.fluxcd.io/x"] = strings.Repeat("x", 1<<20)
	j.Append(long)
	must(t, j.Close())
	j.Append(appEvent("after Close"))
	list := open(t, journal.Config{Dir: dir}).Read(journal.Query{})
	if len(list) != 2 || fmt.Sprint(list[0].Event) != fmt.Sprint(e) || fmt.Sprint(list[1].Event) != fmt.Sprint(long) {
		t.Errorf("%d events, %v", len(list), list[0])
	}
}

// IDs increase even over restarts, if the clock is set back, and if the files are deleted.
func TestIDsGrow(t *testing.T) {
	dir := t.TempDir()
	last := int64(0)
	for i, now := range []time.Time{start, start.Add(-time.Hour), {}, start.Add(time.Second), start.Add(2 * time.Second)} {
		if i == 4 {
			must(t, os.Remove(filepath.Join(dir, "events.jsonl")))
		}
		j := open(t, journal.Config{Dir: dir, Now: func() time.Time { return now }})
		j.Append(appEvent("x"))
		must(t, j.Close())
		list := j.Read(journal.Query{After: last})
		if len(list) != 1 {
			t.Fatalf("%d: %v after %d", i, list, last)
		}
		last = list[0].ID
	}
}

// The two files have at most 16 MiB together, even over restarts, and the latest 10,000 events can be read.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	n := 0
	for _, count := range []int{9_000, 4_000} {
		j := open(t, journal.Config{Dir: dir})
		for range count {
			n++
			j.Append(appEvent(fmt.Sprint(n, strings.Repeat("m", 1000))))
		}
		must(t, j.Close())
		names, _ := filepath.Glob(filepath.Join(dir, "*"))
		for _, name := range names {
			if info, err := os.Stat(name); err != nil || info.Size() > 8<<20 {
				t.Errorf("%s: %v, %v", name, info.Size(), err)
			}
		}
		list := j.Read(journal.Query{})
		if len(names) != 2 || len(list) < 9_000 || len(list) > 12_500 || !strings.HasPrefix(list[len(list)-1].Message, fmt.Sprint(n, "m")) {
			t.Errorf("%q, %d events", names, len(list))
		}
	}
}

// A killed process may leave an incomplete line, and a crash of the system zeros.
func TestTornLine(t *testing.T) {
	for name, tail := range map[string]string{
		"part": `{"id":99,"sev`, "zeros": strings.Repeat("\x00", 5000), "whole but its line break": `{"id":9,"severity":"info","message":"torn"}`,
		"defective lines": "{}\n\n[1]\n{\"id\":-1,\"severity\":\"info\"}\n{\"id\":\"x\"}\n\xff\n", "nothing": "",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, journal.Config{Dir: dir})
			j.Append(appEvent("before"))
			j.Close()
			f, err := os.OpenFile(filepath.Join(dir, "events.jsonl"), os.O_WRONLY|os.O_APPEND, 0)
			must(t, err)
			if _, err := f.WriteString(tail); err != nil || f.Close() != nil {
				t.Fatal(err)
			}
			j = open(t, journal.Config{Dir: dir})
			j.Append(appEvent("after"))
			j.Close()
			testenv.Equal(t, messages(open(t, journal.Config{Dir: dir}).Read(journal.Query{})), "before after")
		})
	}
}

// While writing fails, the failure is reported once, no old events are removed, and events can be read.
func TestWriteFailure(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	var reports []error
	j := open(t, journal.Config{Dir: dir, Report: func(err error) { reports = append(reports, err) }})
	j.Append(appEvent("before"))
	away := func(from, to string) {
		t.Helper()
		must(t, os.Rename(from, to))
	}
	away(dir, dir+".away")
	lost := appEvent(strings.Repeat("l", 30_000))
	for range 300 { // more events than fit into a file
		j.Append(lost)
	}
	if len(reports) != 1 || !errors.Is(reports[0], fs.ErrNotExist) || !strings.Contains(reports[0].Error(), "events are lost") {
		t.Error(reports)
	}
	testenv.Equal(t, len(j.Read(journal.Query{})), 301)
	away(dir+".away", dir)
	j.Append(appEvent("end"))
	if len(reports) != 2 || !strings.Contains(reports[1].Error(), "written again") {
		t.Error(reports)
	}
	testenv.Equal(t, j.Close(), nil)
	list := open(t, journal.Config{Dir: dir}).Read(journal.Query{})
	if len(list) < 200 || list[0].Message != "before" || list[len(list)-1].Message != "end" {
		t.Errorf("%d events", len(list))
	}
}

// Each of several followers gets all events once and in order, even over a restart.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	j := open(t, journal.Config{Dir: dir})
	const before, after = 300, 3000
	for i := range before {
		j.Append(appEvent(fmt.Sprint(i)))
	}
	j.Close()
	j = open(t, journal.Config{Dir: dir})
	var group sync.WaitGroup
	for _, test := range []struct {
		query journal.Query
		from  int
	}{{journal.Query{}, 0}, {journal.Query{Limit: 20}, before - 20}, {journal.Query{After: start.UnixMilli() + 100}, 100}} {
		began := make(chan struct{})
		var once sync.Once
		group.Go(func() {
			next := test.from
			ctx, cancel := context.WithCancel(t.Context())
			err := j.Follow(ctx, test.query, func(e api.Event) {
				once.Do(func() { close(began) })
				if e.Message == "end" {
					cancel()
					return
				}
				testenv.Equal(t, e.Message, fmt.Sprint(next), "%+v", test.query)
				next++
			})
			if err != nil || next != before+after {
				t.Errorf("%+v: %v, %d", test.query, err, next)
			}
		})
		<-began
	}
	for i := range after {
		j.Append(appEvent(fmt.Sprint(before + i)))
	}
	j.Append(appEvent("end"))
	group.Wait()
	ended := make(chan error)
	go func() { ended <- j.Follow(t.Context(), journal.Query{Limit: 5}, func(api.Event) {}) }()
	must(t, j.Close())
	if err := <-ended; !errors.Is(err, fs.ErrClosed) {
		t.Errorf("the end of the journal: %v", err)
	}
}

var must = testenv.Must
