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

// digits are those of digests, which are shown without their tail.
var digits = regexp.MustCompile(`([0-9a-f]{8})[0-9a-f]{56}`)

// Told is all that the last run of the rig told, one thing a line, for a golden
// file: result, err, the events and the status of obj. Times are those of the
// day. A kind adds what it observed and what it has to say of an artifact.
func (r *Rig) Told(obj source.Object, result source.Result, err error, observed string, more any) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-24s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("outcome", "%s, next run after %s", result.Outcome, result.After)
	if result.Why != "" {
		line("why", "%s", result.Why)
	}
	if err != nil {
		line("error", "%v", err)
	}
	same := func(message string) string {
		if err != nil && message == err.Error() {
			return "the error"
		}
		return message
	}
	for _, e := range r.Events {
		line("event "+e.Severity, "%s: %s %v", e.Reason, same(e.Message), e.Metadata)
	}
	s := obj.Common()
	line("generation", "%d, observed %d, request %q", obj.Head().Metadata.Generation, s.ObservedGeneration, s.LastHandledReconcileAt)
	for _, c := range s.Conditions {
		line(c.Type, "%s %s: %s (of %d, since %s)", c.Status, c.Reason, same(c.Message), c.ObservedGeneration, c.LastTransitionTime.Format(time.TimeOnly))
	}
	line("observed", "%s", observed)
	line("url", "%s", s.URL)
	if a := s.Artifact; a != nil {
		line("artifact", "%s", a.URL)
		line("", "%s, %d bytes, %s, of %s", a.Digest, a.Size, a.Revision, a.LastUpdateTime.Format(time.TimeOnly))
		line("", "%v", more)
	}
	return digits.ReplaceAllString(b.String(), "$1…") + "\n"
}

// Golden demands that a text is that of a file, which update writes first.
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
