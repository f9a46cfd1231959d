package journal_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/controller/journal"
)

// follow collects the messages of entries until one is "end".
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

// Many who follow are told all, each once, in order, across files.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	j := open(t, journal.Config{Dir: dir, Bytes: 8 << 20})
	x := func(i int) source.Event {
		return event("GitRepository/default/app", "info", fmt.Sprint(i, " ", strings.Repeat("m", i*37%5000)))
	}
	const before, after = 300, 1000
	for i := range before {
		j.Append(x(i))
	}
	closeJournal(t, j)
	j = open(t, journal.Config{Dir: dir, Bytes: 8 << 20})
	var group sync.WaitGroup
	for _, test := range []struct {
		query journal.Query
		from  int
	}{{journal.Query{}, 0}, {journal.Query{Limit: 20}, before - 20}, {journal.Query{Limit: 20000}, 0}, {journal.Query{After: start.UnixMilli() + 99}, 100}, {journal.Query{Object: source.Reference{Kind: "git"}}, 0}} {
		began := make(chan struct{}) // the first of those from before was told
		var once sync.Once
		group.Go(func() {
			next := test.from
			err := follow(t.Context(), j, test.query, func(e journal.Entry) {
				once.Do(func() { close(began) })
				if want := fmt.Sprint(next, " "); !strings.HasPrefix(e.Message, want) {
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
		j.Append(x(before + i))
	}
	j.Append(event("GitRepository/default/app", "info", "end"))
	group.Wait()
}

// One who is slower than the journal is kept is told so, and goes on with what there is.
func TestFollowSlowly(t *testing.T) {
	dir := t.TempDir()
	j := open(t, journal.Config{Dir: dir, Bytes: 2 << 20})
	j.Append(event("GitRepository/default/app", "info", "first"))
	began, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var got []string
	go func() {
		defer close(ended)
		var once sync.Once
		if err := follow(t.Context(), j, journal.Query{}, func(e journal.Entry) {
			got = append(got, e.Message)
			once.Do(func() { close(began); <-goOn })
		}); err != nil {
			t.Error(err)
		}
	}()
	<-began
	const n = 4000 // some 5 MB
	for i := range n {
		j.Append(event("GitRepository/default/app", "info", fmt.Sprint(i, " ", strings.Repeat("m", 1000))))
		for i%1000 == 999 { // not more than can wait
			list, err := j.Read(t.Context(), journal.Query{Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(list[0].Message, fmt.Sprint(i, " ")) {
				break
			}
		}
	}
	close(goOn)
	j.Append(event("GitRepository/default/app", "info", "end"))
	<-ended
	gap := 0
	for i, m := range got {
		if strings.HasPrefix(m, "events are missing here") {
			gap = i
		}
	}
	if got[0] != "first" || gap == 0 || !strings.HasPrefix(got[len(got)-1], fmt.Sprint(n-1, " ")) {
		t.Errorf("%d entries, the gap is at %d, the last is %.20s", len(got), gap, got[len(got)-1])
	}
	first := 0
	fmt.Sscan(got[gap+1], &first)
	for i, m := range got[gap+1:] {
		if !strings.HasPrefix(m, fmt.Sprint(first+i, " ")) {
			t.Fatalf("%.20s is at %d after the gap, which ends with %d", m, i, first)
		}
	}
}

// One who comes back is told that what came meanwhile is not all there, whatever
// it selects.
func TestFollowAgain(t *testing.T) {
	enough := errors.New("enough")
	j := open(t, journal.Config{Dir: t.TempDir(), Bytes: 2 << 20})
	read := func(q journal.Query) []journal.Entry {
		list, err := j.Read(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	j.Append(event("GitRepository/default/app", "info", "first"))
	var first []journal.Entry
	for len(first) == 0 {
		first = read(journal.Query{})
	}
	const n = 4000 // some 5 MB
	for i := range n {
		j.Append(event("GitRepository/default/app", "info", fmt.Sprint(i, " ", strings.Repeat("m", 1000))))
		for i%1000 == 999 && !strings.HasPrefix(read(journal.Query{Limit: 1})[0].Message, fmt.Sprint(i, " ")) {
		}
	}
	for after, want := range map[int64]string{first[0].ID: "events are missing here", read(journal.Query{Limit: 1})[0].ID: "end"} {
		last := func(e *journal.Entry) bool { return e.Message == "end" }
		go j.Append(event("GitRepository/default/app", "info", "end"))
		err := j.Follow(t.Context(), journal.Query{After: after, Select: last}, func(e journal.Entry) error {
			if !strings.HasPrefix(e.Message, want) {
				t.Errorf("after %d: told %.30s, want %s", after, e.Message, want)
			}
			return enough
		})
		if err != enough {
			t.Errorf("after %d: %v", after, err)
		}
	}
	third := func(e *journal.Entry) bool { return strings.HasPrefix(e.Message, fmt.Sprint(n-3, " ")) }
	if got := read(journal.Query{Limit: 1, Select: third}); len(got) != 1 {
		t.Errorf("the newest that is selected is not among %d", len(got))
	}
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
	closeJournal(t, j)
	if err := <-ended; !errors.Is(err, fs.ErrClosed) {
		t.Errorf("the end of the journal: %v", err)
	}
}
