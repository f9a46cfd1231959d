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

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/journal"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func event(object, severity, message string) source.Event {
	parts := strings.Split(object, "/")
	return source.Event{
		InvolvedObject: source.ObjectReference{APIVersion: "source.toolkit.fluxcd.io/v1", Kind: parts[0], Namespace: parts[1], Name: parts[2]},
		Severity:       severity, Timestamp: start, Message: message, Reason: "NewArtifact", Controller: "headgate",
		Metadata: map[string]string{"source.toolkit.fluxcd.io/revision": "main@sha1:0"},
	}
}

func app(message string) source.Event { return event("GitRepository/default/app", "info", message) }

func open(t *testing.T, c journal.Config) *journal.Journal {
	t.Helper()
	if c.Now == nil {
		c.Now = func() time.Time { return start }
	}
	j, err := journal.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func read(t *testing.T, dir string, q journal.Query) []journal.Entry {
	t.Helper()
	list, err := journal.Read(t.Context(), dir, q)
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		if i > 0 && list[i].ID <= list[i-1].ID {
			t.Errorf("%d comes after %d", list[i].ID, list[i-1].ID)
		}
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

func files(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%q %v", names, err)
	}
	return names
}

func TestQuery(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "journal")
	j := open(t, journal.Config{Dir: dir, Traces: true})
	for i, e := range []source.Event{
		app("a"),
		event("GitRepository/shop/app", "trace", "b"),
		event("HelmChart/default/app", "error", "c"),
		event("PkgChart/default/app-2", "info", "d"),
		event("Bucket/default/app", "error", "e"),
	} {
		e.Timestamp = start.Add(time.Duration(i) * time.Minute)
		j.Append(e)
	}
	first := read(t, dir, journal.Query{})[0].ID
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
		"newest selected":     {journal.Query{Limit: 1, Select: func(e *journal.Entry) bool { return e.Message < "d" }}, "c"},
		"more than there are": {journal.Query{Limit: 9, Severity: "error"}, "c e"},
		"after the last":      {journal.Query{After: first + 100}, ""},
	} {
		if got := messages(read(t, dir, test.query)); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	for _, q := range []journal.Query{{Severity: "loud"}, {Object: source.Reference{Kind: "Secret"}}} {
		if _, err := journal.Read(t.Context(), dir, q); err == nil {
			t.Errorf("%+v is accepted", q)
		}
	}
	if list := read(t, filepath.Join(dir, "none"), journal.Query{}); list != nil {
		t.Errorf("a directory that does not exist has %v", list)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := j.Read(ctx, journal.Query{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for path, mode := range map[string]fs.FileMode{dir: fs.ModeDir | 0o700, files(t, dir)[0]: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
	}
}

func TestEntryIsWhole(t *testing.T) {
	dir := t.TempDir()
	j := open(t, journal.Config{Dir: dir})
	e := app("a \x1b[31m <b> \"ü\"\n")
	j.Append(e)
	j.Append(event("GitRepository/default/app", "trace", "not kept"))
	j.Append(event("GitRepository/default/app", "loud", "not known"))
	long := app(strings.Repeat("m", 39000))
	long.Metadata["event.toolkit.fluxcd.io/x"] = strings.Repeat("x", 1<<20)
	j.Append(long)
	j.Append(app(strings.Repeat("\x01", 1<<20)))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j.Append(app("after Close"))
	list := read(t, dir, journal.Query{Severity: "trace"})
	if len(list) != 3 || fmt.Sprint(list[0].Event) != fmt.Sprint(e) || len(list[1].Message) != 39000 || list[1].Metadata != nil || list[2].Message[0] != 1 {
		t.Errorf("%d entries, %v, %d bytes, %v", len(list), list[0], len(list[1].Message), list[1].Metadata)
	}
}

// IDs grow across restarts, a clock that is set back, and the deletion of the files.
func TestIDsGrow(t *testing.T) {
	dir := t.TempDir()
	last := int64(0)
	for i, now := range []time.Time{start, start.Add(-time.Hour), {}, start.Add(time.Second), start.Add(2 * time.Second)} {
		if i == 4 {
			for _, file := range files(t, dir) {
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			}
		}
		j := open(t, journal.Config{Dir: dir, Now: func() time.Time { return now }})
		j.Append(app("x"))
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		list := read(t, dir, journal.Query{After: last})
		if len(list) != 1 || list[0].ID <= last {
			t.Fatalf("%d: %v after %d", i, list, last)
		}
		last = list[0].ID
	}
	if n := len(files(t, dir)); n != 1 {
		t.Errorf("%d files", n)
	}
}

// Files together stay about as large as the journal may be, over restarts too,
// and what is left are the last events.
func TestRotation(t *testing.T) {
	const bound = 1 << 20
	dir := t.TempDir()
	n := 0
	for range 3 {
		j := open(t, journal.Config{Dir: dir, Bytes: bound})
		for range 2000 {
			n++
			j.Append(app(fmt.Sprint(n, strings.Repeat("m", 1000))))
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		total := int64(0)
		for _, name := range files(t, dir) {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			total += info.Size()
		}
		list := read(t, dir, journal.Query{})
		if total > bound || total < bound*6/8 || !strings.HasPrefix(list[len(list)-1].Message, fmt.Sprint(n, "m")) {
			t.Errorf("%d bytes, %d entries", total, len(list))
		}
	}
}

// A process that was killed leaves a part of a line, or zeros after a crash of the system.
func TestTornLine(t *testing.T) {
	for name, tail := range map[string]string{
		"part": `{"id":99,"sev`, "zeros": strings.Repeat("\x00", 5000), "whole but its line break": `{"id":9,"severity":"info","message":"torn"}`,
		"defective lines": "{}\n\n[1]\n{\"id\":-1,\"severity\":\"info\"}\n{\"id\":\"x\"}\n\xff\n", "nothing": "",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, journal.Config{Dir: dir})
			j.Append(app("before"))
			j.Close()
			f, err := os.OpenFile(files(t, dir)[0], os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString(tail); err != nil || f.Close() != nil {
				t.Fatal(err)
			}
			if got := messages(read(t, dir, journal.Query{})); got != "before" {
				t.Errorf("without a writer: %q", got)
			}
			j = open(t, journal.Config{Dir: dir})
			j.Append(app("after"))
			if got := messages(read(t, dir, journal.Query{})); got != "before after" {
				t.Errorf("with a writer: %q", got)
			}
		})
	}
}

// While nothing can be written, that is reported once, nothing old is removed, and
// those who follow are told.
func TestDiskTakesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	var reports []error
	j := open(t, journal.Config{Dir: dir, Bytes: 1, Report: func(err error) { reports = append(reports, err) }})
	j.Append(app("before"))
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		j.Append(app("lost"))
	}
	if len(reports) != 1 || !errors.Is(reports[0], fs.ErrNotExist) || !strings.Contains(reports[0].Error(), "events are lost") {
		t.Error(reports)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	j.Append(app("end"))
	if len(reports) != 2 || !strings.Contains(reports[1].Error(), "written again") {
		t.Error(reports)
	}
	if got := messages(read(t, dir, journal.Query{})); got != "before end" {
		t.Errorf("%q", got)
	}
	lost := 0
	if err := follow(t.Context(), j, journal.Query{After: start.UnixMilli() + 1}, func(e journal.Entry) { lost++ }); err != nil || lost != 20 {
		t.Errorf("%d, %v", lost, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	j.Append(app("lost"))
	if err := j.Close(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Close: %v", err)
	}
}

// follow collects entries until one has the message "end".
func follow(ctx context.Context, j *journal.Journal, q journal.Query, told func(journal.Entry)) error {
	errEnd := errors.New("end")
	err := j.Follow(ctx, q, func(e journal.Entry) error {
		if e.Message == "end" {
			return errEnd
		}
		told(e)
		return nil
	})
	if err == errEnd {
		return nil
	}
	return fmt.Errorf("ended with %v", err)
}

// Each of several that follow is told all, once, in order, across files and
// restarts, and also if it is slower than events are kept in memory.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	j := open(t, journal.Config{Dir: dir})
	const before, after = 300, 12000
	for i := range before {
		j.Append(app(fmt.Sprint(i)))
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, journal.Config{Dir: dir})
	var group sync.WaitGroup
	all := make(chan struct{})
	for _, test := range []struct {
		query journal.Query
		from  int
		slow  bool
	}{
		{journal.Query{}, 0, false}, {journal.Query{Limit: 20}, before - 20, false}, {journal.Query{Limit: 20000}, 0, true},
		{journal.Query{After: start.UnixMilli() + 100}, 100, true}, {journal.Query{Object: source.Reference{Kind: "git"}}, 0, false},
	} {
		began := make(chan struct{})
		var once sync.Once
		group.Go(func() {
			next := test.from
			err := follow(t.Context(), j, test.query, func(e journal.Entry) {
				once.Do(func() {
					close(began)
					if test.slow {
						<-all
					}
				})
				if want := fmt.Sprint(next); e.Message != want {
					t.Errorf("%+v: %.20s, want %s", test.query, e.Message, want)
				}
				next++
			})
			if err != nil || next != before+after {
				t.Errorf("%+v: %v, %d", test.query, err, next)
			}
		})
		<-began
	}
	for i := range after {
		j.Append(app(fmt.Sprint(before + i)))
	}
	close(all)
	j.Append(app("end"))
	group.Wait()
}

func TestFollowEnds(t *testing.T) {
	j := open(t, journal.Config{Dir: t.TempDir()})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	run := func(ctx context.Context) {
		ended <- j.Follow(ctx, journal.Query{Limit: 5}, func(journal.Entry) error { return nil })
	}
	go run(ctx)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the end of the context: %v", err)
	}
	if err := j.Follow(t.Context(), journal.Query{Severity: "loud"}, nil); err == nil {
		t.Error("a query that is wrong")
	}
	go run(t.Context())
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, fs.ErrClosed) {
		t.Errorf("the end of the journal: %v", err)
	}
}
