package sourcetest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/headgate-io/headgate/source"
)

// digits matches digests, which are shortened in output.
var digits = regexp.MustCompile(`([0-9a-f]{8})[0-9a-f]{56}`)

// DescribeRun returns everything that the last run of the fixture reported, one item per line, for a
// golden file: result, err, the events and the status of obj. Times have no date. observed and details
// are what the kind reports about its status and the artifact.
func (r *Fixture) DescribeRun(obj source.Object, result source.Result, err error, observed string, details any) string {
	var b lines
	b.add("outcome", "%s, next run after %s", result.Outcome, result.After)
	if result.Why != "" {
		b.add("why", "%s", result.Why)
	}
	if err != nil {
		b.add("error", "%v", err)
	}
	replaceError := func(message string) string {
		if err != nil && message == err.Error() {
			return theError
		}
		return message
	}
	for _, e := range r.Events {
		b.add("event "+e.Severity, "%s: %s %v", e.Reason, replaceError(e.Message), e.Metadata)
	}
	b.status(obj, observed, replaceError)
	if obj.Artifact() != nil {
		b.add("", "%v", details)
	}
	return digits.ReplaceAllString(b.String(), "$1…") + "\n"
}

// theError replaces a message that is the error of the run.
const theError = "the error"

// Status returns the status of obj as text. Messages are complete, also where [Fixture.DescribeRun] writes
// theError.
func Status(obj source.Object, observed string) string {
	var b lines
	b.status(obj, observed, func(message string) string { return message })
	return digits.ReplaceAllString(b.String(), "$1…")
}

// GoldenStatuses returns the statuses in a golden file of results of [Fixture.DescribeRun], in the form of
// [Status], by the text after the # before each.
func GoldenStatuses(t TB, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("read golden file: %v", err)
	}
	all := map[string]string{}
	for block := range strings.SplitSeq(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n\n") {
		name, description, _ := strings.Cut(strings.TrimPrefix(block, "# "), "\n")
		_, failed, _ := strings.Cut(description, "\nerror ")
		failed, _, _ = strings.Cut(strings.TrimLeft(failed, " "), "\n")
		at := strings.Index(description, "generation ")
		if at < 0 {
			continue
		}
		status := strings.ReplaceAll(description[at:], ": "+theError+" (of ", ": "+failed+" (of ") + "\n"
		if _, rest, stored := strings.Cut(status, "\nartifact "); stored { // the kind's part about the artifact is not a status
			status = strings.TrimSuffix(status, strings.SplitAfterN(rest, "\n", 3)[2])
		}
		all[name] = status
	}
	return all
}

// lines is a text of items, one per line.
type lines struct{ strings.Builder }

func (b *lines) add(name, format string, args ...any) {
	fmt.Fprintf(b, "%-24s %s\n", name, fmt.Sprintf(format, args...))
}

func (b *lines) status(obj source.Object, observed string, replaceError func(string) string) {
	s := obj.Common()
	b.add("generation", "%d, observed %d, request %q", obj.Head().Metadata.Generation, s.ObservedGeneration, s.LastHandledReconcileAt)
	for _, c := range s.Conditions {
		b.add(c.Type, "%s %s: %s (of %d, since %s)", c.Status, c.Reason, replaceError(c.Message), c.ObservedGeneration, c.LastTransitionTime.Format(time.TimeOnly))
	}
	b.add("observed", "%s", observed)
	b.add("url", "%s", s.URL)
	if a := s.Artifact; a != nil {
		b.add("artifact", "%s", a.URL)
		b.add("", "%s, %d bytes, %s, of %s", a.Digest, a.Size, a.Revision, a.LastUpdateTime.Format(time.TimeOnly))
	}
}

// Golden requires that got is the content of a file. With update, it writes the file first.
func Golden(t TB, file, got string, update bool) {
	t.Helper()
	if update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatalf("make directory of golden file: %v", err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatalf("write golden file: %v", err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("read golden file: %v", err)
	}
	if want := strings.ReplaceAll(string(want), "\r\n", "\n"); got != want {
		t.Fatalf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}
