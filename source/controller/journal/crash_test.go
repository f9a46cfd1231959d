package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/controller/journal"
)

// segmentsOf returns the files of a journal.
func segmentsOf(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return files
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
			j.Append(event("GitRepository/default/app", "info", "before"))
			closeJournal(t, j)
			f, err := os.OpenFile(segmentsOf(t, dir)[0], os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString(tail); err != nil || f.Close() != nil {
				t.Fatal(err)
			}
			if got := messages(readAll(t, dir, journal.Query{})); got != "before" {
				t.Errorf("without a writer: %q", got)
			}
			j = open(t, journal.Config{Dir: dir})
			j.Append(event("GitRepository/default/app", "info", "after"))
			closeJournal(t, j)
			if got := messages(readAll(t, dir, journal.Query{})); got != "before after" {
				t.Errorf("with a writer: %q", got)
			}
			if text, err := os.ReadFile(segmentsOf(t, dir)[0]); err != nil || bytes.Contains(text, []byte("torn")) || bytes.IndexByte(text, 0) >= 0 {
				t.Errorf("%q %v", text, err)
			}
		})
	}
}

// A file that is larger than what is read of one stays as it is, and what comes
// has higher IDs than what may be in it.
func TestLargeFileIsNotCut(t *testing.T) {
	dir := t.TempDir()
	j := open(t, journal.Config{Dir: dir})
	j.Append(event("Bucket/a/b", "info", "old"))
	closeJournal(t, j)
	path := segmentsOf(t, dir)[0]
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	line := []byte(strings.Repeat("x", 1<<20) + "\n")
	for range 64 {
		_, err1 := f.Write(line)
		err = errors.Join(err, err1)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	j = open(t, journal.Config{Dir: dir, Bytes: 1 << 40})
	j.Append(event("Bucket/a/b", "info", "new"))
	closeJournal(t, j)
	after, err := os.Stat(path)
	if err != nil || after.Size() != before.Size() {
		t.Errorf("%d bytes, then %v, %v", before.Size(), after, err)
	}
	if list := readAll(t, dir, journal.Query{}); messages(list) != "old new" {
		t.Errorf("got %q", messages(list))
	}
}

// While the disk takes nothing Append does not wait, and what is lost is counted.
func TestDiskTakesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	reports, goOn := make(chan error), make(chan struct{})
	j := open(t, journal.Config{Dir: dir, Report: func(err error) { reports <- err; <-goOn }})
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	x := event("GitRepository/default/app", "info", "x")
	j.Append(x)
	if err := <-reports; !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "events are lost") {
		t.Error(err)
	}
	for range journal.MaxWaiting + 10 { // nobody writes now
		j.Append(x)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	goOn <- struct{}{}
	if err := <-reports; !strings.Contains(err.Error(), "takes events again") {
		t.Error(err)
	}
	goOn <- struct{}{}
	closeJournal(t, j)
	list := readAll(t, dir, journal.Query{})
	if len(list) != journal.MaxWaiting+1 || list[0].Reason != journal.ReasonLost || !strings.HasSuffix(list[0].Message, " 11") {
		t.Errorf("%d entries, the first is %v", len(list), list[0])
	}
}

// A disk that is full to the end is what Close says.
func TestDiskFull(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no device that is full")
	}
	dir := t.TempDir()
	if err := os.Symlink("/dev/full", filepath.Join(dir, fmt.Sprintf("%020d.jsonl", start.UnixMilli()))); err != nil {
		t.Fatal(err)
	}
	j := open(t, journal.Config{Dir: dir})
	j.Append(event("GitRepository/default/app", "info", "x"))
	if err := j.Close(); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("{\"id\":5,\"severity\":\"info\",\"message\":\"a\"}\n{\"id\":6"))
	f.Add([]byte("{\"id\":1125899906842629,\"severity\":\"info\"}\n{\"id\":1125899906842628,\"severity\":\"info\"}\n"))
	f.Add([]byte("\x00\n\n\xff{\"timestamp\":\"x\"}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "00000000000000000005.jsonl"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		before, err := journal.Read(t.Context(), dir, journal.Query{Severity: "trace"})
		if err != nil {
			t.Fatal(err)
		}
		j := open(t, journal.Config{Dir: dir})
		j.Append(event("GitRepository/default/app", "info", "new"))
		closeJournal(t, j)
		after, err := journal.Read(t.Context(), dir, journal.Query{Severity: "trace"})
		if err != nil || len(after) != len(before)+1 {
			t.Fatalf("%d entries, then %d, %v", len(before), len(after), err)
		}
		last := after[len(after)-1]
		for _, e := range before {
			if e.ID >= last.ID {
				t.Errorf("%d comes after %d", last.ID, e.ID)
			}
		}
		if n, err := journal.Read(t.Context(), dir, journal.Query{Severity: "trace", Limit: 1}); err != nil || len(n) != 1 || n[0].ID != last.ID {
			t.Error(n, err)
		}
	})
}

// A file that cannot be removed, as one that is open on Windows, costs no events.
func TestOldestStays(t *testing.T) {
	dir := t.TempDir()
	var reports []error
	j := open(t, journal.Config{Dir: dir, Bytes: 1, Report: func(err error) { reports = append(reports, err) }})
	long := strings.Repeat("x", 100<<10)
	appendSome := func() {
		t.Helper()
		for i := range 14 {
			j.Append(event("GitRepository/default/app", "info", fmt.Sprint(i, long)))
		}
		settle(t, j)
	}
	appendSome()
	oldest := segmentsOf(t, dir)[0]
	if err := os.Remove(oldest); err != nil || os.MkdirAll(filepath.Join(oldest, "held"), 0o700) != nil {
		t.Fatal(err)
	}
	query := journal.Query{Object: source.Reference{Name: "app"}}
	before := len(readAll(t, dir, query))
	appendSome()
	closeJournal(t, j)
	if len(reports) > 0 {
		t.Error(reports)
	}
	if n := len(readAll(t, dir, query)); n != before+14 {
		t.Errorf("%d events, then %d", before, n)
	}
}

// settle returns when what was appended can be read.
func settle(t *testing.T, j *journal.Journal) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	mark := fmt.Sprintf("mark %d", time.Now().UnixNano())
	e := event("GitRepository/default/mark", "error", mark)
	j.Append(e)
	if err := j.Follow(ctx, journal.Query{Object: source.Reference{Name: "mark"}}, func(e journal.Entry) error {
		if e.Message == mark {
			cancel()
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
