package journal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/controller/journal"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func clock() time.Time { return start }

func event(object, severity, message string) source.Event {
	parts := strings.Split(object, "/")
	return source.Event{
		InvolvedObject: source.ObjectReference{APIVersion: "source.toolkit.fluxcd.io/v1", Kind: parts[0], Namespace: parts[1], Name: parts[2]},
		Severity:       severity, Timestamp: start, Message: message, Reason: "NewArtifact", Controller: "headgate",
		Metadata: map[string]string{"source.toolkit.fluxcd.io/revision": "main@sha1:0"},
	}
}

func open(t *testing.T, c journal.Config) *journal.Journal {
	t.Helper()
	if c.Now == nil {
		c.Now = clock
	}
	j, err := journal.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func closeJournal(t *testing.T, j *journal.Journal) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

func readAll(t *testing.T, dir string, q journal.Query) []journal.Entry {
	t.Helper()
	list, err := journal.Read(t.Context(), dir, q)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(list, func(a, b journal.Entry) int { return int(a.ID - b.ID) }) {
		t.Error("the IDs do not grow")
	}
	return list
}

func messages(list []journal.Entry) string {
	var all []string
	for _, e := range list {
		all = append(all, e.Message)
	}
	return strings.Join(all, " ")
}

func TestQuery(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "journal")
	j := open(t, journal.Config{Dir: dir, Traces: true})
	for i, e := range []source.Event{
		event("GitRepository/default/app", "info", "a"),
		event("GitRepository/shop/app", "trace", "b"),
		event("HelmChart/default/app", "error", "c"),
		event("PkgChart/default/app-2", "info", "d"),
		event("Bucket/default/app", "error", "e"),
	} {
		e.Timestamp = start.Add(time.Duration(i) * time.Minute)
		j.Append(e)
	}
	closeJournal(t, j)
	first := readAll(t, dir, journal.Query{})[0].ID
	for name, test := range map[string]struct {
		query journal.Query
		want  string
	}{
		"default":             {journal.Query{}, "a c d e"},
		"traces":              {journal.Query{Severity: "trace"}, "a b c d e"},
		"errors":              {journal.Query{Severity: "error"}, "c e"},
		"name":                {journal.Query{Object: source.Reference{Name: "app"}}, "a c e"},
		"namespace":           {journal.Query{Object: source.Reference{Namespace: "shop"}, Severity: "trace"}, "b"},
		"kind of both groups": {journal.Query{Object: source.Reference{Kind: "helmcharts"}}, "c d"},
		"object":              {journal.Query{Object: source.Reference{Kind: "PkgChart", Namespace: "default", Name: "app"}}, "c"},
		"no such object":      {journal.Query{Object: source.Reference{Name: "ap"}}, ""},
		"since":               {journal.Query{Since: start.Add(3 * time.Minute)}, "d e"},
		"after":               {journal.Query{After: first + 2}, "d e"},
		"newest":              {journal.Query{Limit: 2}, "d e"},
		"newest of some":      {journal.Query{Limit: 2, Object: source.Reference{Name: "app"}}, "c e"},
		"more than there are": {journal.Query{Limit: 9, Severity: "error"}, "c e"},
		"after the last":      {journal.Query{After: first + 100}, ""},
	} {
		if got := messages(readAll(t, dir, test.query)); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	for _, q := range []journal.Query{{Severity: "loud"}, {Object: source.Reference{Kind: "Secret"}}} {
		if _, err := journal.Read(t.Context(), dir, q); err == nil {
			t.Errorf("%+v is accepted", q)
		}
	}
	if list := readAll(t, filepath.Join(dir, "none"), journal.Query{}); list != nil {
		t.Errorf("a directory that does not exist has %v", list)
	}
	checkModes(t, dir)
}

func checkModes(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v %v", e.Name(), info.Mode(), err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v %v", info.Mode(), err)
	}
}

func TestEntryIsWhole(t *testing.T) {
	dir := t.TempDir()
	j := open(t, journal.Config{Dir: dir})
	e := event("GitRepository/default/app", "info", "a \x1b[31m <b> \"ü\"\n")
	j.Append(e)
	e.Metadata["source.toolkit.fluxcd.io/revision"] = "changed afterwards"
	j.Append(event("GitRepository/default/app", "trace", "not kept"))
	j.Append(event("GitRepository/default/app", "loud", "not known"))
	closeJournal(t, j)
	j.Append(event("GitRepository/default/app", "info", "after Close"))
	list := readAll(t, dir, journal.Query{Severity: "trace"})
	want := event("GitRepository/default/app", "info", "a \x1b[31m <b> \"ü\"\n")
	if len(list) != 1 || fmt.Sprint(list[0].Event) != fmt.Sprint(want) {
		t.Errorf("got %v\nwant %v", list, want)
	}
}

// An event that is too long for a line loses what can be spared.
func TestLongEvent(t *testing.T) {
	dir := t.TempDir()
	j := open(t, journal.Config{Dir: dir})
	e := event("GitRepository/default/app", "info", strings.Repeat("m", 39000))
	e.Metadata["event.toolkit.fluxcd.io/x"] = strings.Repeat("x", 1<<20)
	j.Append(e)
	e = event("GitRepository/default/"+strings.Repeat("\x01", 1<<20), "info", strings.Repeat("\x01", 1<<20))
	e.Timestamp = start.AddDate(100000, 0, 0)
	j.Append(e)
	j.Append(event("GitRepository/default/app", "info", "last"))
	closeJournal(t, j)
	list := readAll(t, dir, journal.Query{})
	if len(list) != 3 || len(list[0].Message) != 39000 || list[0].Metadata != nil || list[1].Message[0] != 1 || list[2].Message != "last" {
		t.Errorf("got %d entries", len(list))
	}
}

// IDs grow across restarts, a clock that is set back, and the deletion of the files.
func TestIDsGrow(t *testing.T) {
	dir := t.TempDir()
	last := int64(0)
	for i, now := range []time.Time{start, start.Add(-time.Hour), {}, start.Add(time.Second), start.Add(2 * time.Second)} {
		if i == 4 {
			for _, file := range segmentsOf(t, dir) {
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			}
		}
		j := open(t, journal.Config{Dir: dir, Now: func() time.Time { return now }})
		j.Append(event("GitRepository/default/app", "info", "x"))
		closeJournal(t, j)
		list := readAll(t, dir, journal.Query{After: last})
		if len(list) != 1 || list[0].ID <= last {
			t.Fatalf("%d: %v after %d", i, list, last)
		}
		last = list[0].ID
	}
}

// Files together are never larger than the journal may be, and what is left are the last events.
func TestRotation(t *testing.T) {
	const bound = 2 << 20
	dir := t.TempDir()
	text := strings.Repeat("m", 1000)
	n := 0
	for range 3 {
		j := open(t, journal.Config{Dir: dir, Bytes: bound})
		for range 1000 {
			j.Append(event("GitRepository/default/app", "info", fmt.Sprintf("%d %s", n, text)))
			n++
		}
		closeJournal(t, j)
		size := int64(0)
		for _, file := range segmentsOf(t, dir) {
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			size += info.Size()
		}
		if size > bound {
			t.Errorf("%d bytes", size)
		}
	}
	list := readAll(t, dir, journal.Query{})
	if len(list) < bound*6/8/1300 {
		t.Errorf("only %d entries are left", len(list))
	}
	for i, e := range list {
		if want := fmt.Sprintf("%d ", n-len(list)+i); !strings.HasPrefix(e.Message, want) {
			t.Fatalf("entry %d: %.20s, want %s", i, e.Message, want)
		}
	}
	if got := readAll(t, dir, journal.Query{Limit: 900}); len(got) != 900 || got[899].ID != list[len(list)-1].ID {
		t.Errorf("newest: %d entries", len(got))
	}
	middle := list[len(list)/2].ID
	if got := readAll(t, dir, journal.Query{After: middle}); len(got) == 0 || got[0].ID <= middle || len(got) != len(list)-len(list)/2-1 {
		t.Errorf("after the middle: %d of %d entries", len(got), len(list))
	}
}

func TestOneWriter(t *testing.T) {
	dir := t.TempDir()
	j := open(t, journal.Config{Dir: dir})
	if _, err := journal.Open(journal.Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "another process writes") {
		t.Errorf("a second writer: %v", err)
	}
	closeJournal(t, j)
	closeJournal(t, j)
	closeJournal(t, open(t, journal.Config{Dir: dir}))
	if _, err := journal.Open(journal.Config{Dir: filepath.Join(dir, "lock")}); err == nil {
		t.Error("a directory that is a file")
	}
}

// Readers of other processes see whole events at any time.
func TestReadWhileWriting(t *testing.T) {
	dir := t.TempDir()
	j := open(t, journal.Config{Dir: dir, Bytes: 2 << 20})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 3000 {
			j.Append(event("GitRepository/default/app", "info", fmt.Sprint(i, strings.Repeat("m", i%3000))))
		}
	}()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		for _, read := range []func() ([]journal.Entry, error){
			func() ([]journal.Entry, error) { return journal.Read(t.Context(), dir, journal.Query{}) },
			func() ([]journal.Entry, error) { return j.Read(t.Context(), journal.Query{Limit: 10}) },
		} {
			list, err := read()
			if err != nil {
				t.Fatal(err)
			}
			for i := 1; i < len(list); i++ {
				if list[i].ID != list[i-1].ID+1 && list[i].Reason != journal.ReasonLost {
					t.Fatalf("%d follows %d", list[i].ID, list[i-1].ID)
				}
			}
		}
	}
}

func TestReadEnds(t *testing.T) {
	dir := t.TempDir()
	j := open(t, journal.Config{Dir: dir})
	j.Append(event("GitRepository/default/app", "info", "x"))
	closeJournal(t, j)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := journal.Read(ctx, dir, journal.Query{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// BenchmarkRead reads a journal of 16 MiB.
func BenchmarkRead(b *testing.B) {
	dir := b.TempDir()
	j, err := journal.Open(journal.Config{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 40000 {
		for {
			if list, err := j.Read(b.Context(), journal.Query{Limit: 1}); i%4000 != 0 || err != nil || i == 0 || len(list) > 0 && list[0].Message == fmt.Sprint(i-1) {
				break
			}
		}
		j.Append(event(fmt.Sprintf("GitRepository/default/app-%d", i%1000), "info", fmt.Sprint(i)))
	}
	if err := j.Close(); err != nil {
		b.Fatal(err)
	}
	for name, q := range map[string]journal.Query{"all": {}, "newest": {Limit: 100}, "object": {Object: source.Reference{Name: "app-7"}}, "errors": {Severity: "error"}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := journal.Read(b.Context(), dir, q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
