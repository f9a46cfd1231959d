package rollout_test

import (
	"os"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout"
)

// TestJudgeDocs compares the table of types and statuses in docs/rollout.md with Judge.
func TestJudgeDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/rollout.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| type | 200 | 201, 202 | any other status, no answer | counts a failed check |\n|---|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := map[rollout.HookType]bool{}
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 5 {
			t.Fatalf("row %q", line)
		}
		name, note, _ := strings.Cut(strings.Trim(cells[0], "`"), "`")
		of := rollout.HookType(name)
		rows[of] = true
		outcomes := map[int][]error{
			1: {nil, &rollout.StatusError{Code: 200}},
			2: {&rollout.StatusError{Code: 201}, &rollout.StatusError{Code: 202}},
			3: {&rollout.StatusError{Code: 204}, &rollout.StatusError{Code: 302}, &rollout.StatusError{Code: 403}, &rollout.StatusError{Code: 500}, os.ErrDeadlineExceeded},
		}
		for column, errs := range outcomes {
			for _, err := range errs {
				if got := of.Judge(err).String(); got != cells[column] {
					t.Errorf("%s, %v: %s, the document says %s", of, err, got, cells[column])
				}
			}
		}
		if counts := of.Judge(os.ErrDeadlineExceeded) == rollout.Halt; counts != (cells[4] == "yes") {
			t.Errorf("%s: counts %v, the document says %s", of, counts, cells[4])
		}
		if (note != "") != (of == rollout.HookRollout) {
			t.Errorf("%s is noted as the default", of)
		}
	}
	if len(rows) != 8 {
		t.Errorf("%d rows", len(rows))
	}
}
