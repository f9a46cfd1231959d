package source_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/headgate-io/headgate/source"
)

// ledgerDirVariable is the environment variable that makes a test process write to the ledger in that
// directory.
const ledgerDirVariable = "HEADGATE_TEST_LEDGER"

// revised returns the sample in its nth saved version.
func revised(n int) *source.GitRepository {
	g := settled()
	g.Status.Artifact.Revision = strconv.Itoa(n)
	return g
}

// TestLedgerWriter is not a test but the process that TestLedgerSurvivesKill kills.
func TestLedgerWriter(t *testing.T) {
	dir := os.Getenv(ledgerDirVariable)
	if dir == "" {
		t.Skip("it is for another test")
	}
	l := &source.Ledger{Dir: dir}
	ref := source.ReferenceTo(settled())
	for n := 1; ; n++ {
		err := errors.Join(
			l.Save(context.Background(), revised(n), source.State(strconv.Itoa(n))),
			l.Suspend(ref, source.Suspension{By: strconv.Itoa(n)}),
			l.SetRemoved(ref, time.Unix(int64(n), 0)))
		must(t, err)
		fmt.Println("\nsaved", n)
		if n%7 == 0 {
			must(t, l.Remove(ref))
			fmt.Println("\nremoved", n)
		}
	}
}

// Whenever a writer is killed, everything that it reported as saved is present, each file is
// complete, and no file of a removed object can be mistaken for a status.
func TestLedgerSurvivesKill(t *testing.T) {
	ref := source.ReferenceTo(settled())
	for _, after := range []int{6, 7, 8} {
		dir := t.TempDir()
		saved, removed := runAndKill(t, dir, after)
		l := &source.Ledger{Dir: dir}
		g := settled()
		state, err := l.Load(t.Context(), g)
		if err != nil {
			t.Fatalf("after %d: %v", after, err)
		}
		switch n := 0; {
		case g.Artifact() == nil && saved%7 != 0 && removed < saved:
			t.Errorf("after %d: %d was saved, and is gone", after, saved)
		case g.Artifact() == nil && state != nil:
			t.Errorf("after %d: state %q without a status", after, state)
		case g.Artifact() != nil:
			if n, err = strconv.Atoi(g.Artifact().Revision); err != nil || n < saved {
				t.Errorf("after %d: %d was saved, %q is there", after, saved, g.Artifact().Revision)
			}
		}
		if _, err := l.Suspension(ref); err != nil {
			t.Errorf("after %d: %v", after, err)
		}
		if _, err := l.Removed(); err != nil {
			t.Errorf("after %d: %v", after, err)
		}
		if refs, err := l.References(); err != nil || len(refs) == 1 && refs[0] != ref {
			t.Errorf("after %d: %v, %v", after, refs, err)
		}
		if err := errors.Join(l.Save(t.Context(), revised(0), nil), l.Remove(ref)); err != nil {
			t.Errorf("after %d: %v", after, err)
		}
		if files, _ := os.ReadDir(dir); len(files) != 0 {
			t.Errorf("after %d: left %v", after, files)
		}
	}
}

// runAndKill runs a writer until it has reported n saves, kills it, and returns the last versions that
// it saved and removed.
func runAndKill(t *testing.T, dir string, n int) (saved, removed int) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestLedgerWriter$")
	cmd.Env = append(os.Environ(), ledgerDirVariable+"="+dir)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Sscanf(lines.Text(), "saved %d", &saved)
		fmt.Sscanf(lines.Text(), "removed %d", &removed)
		if saved == n {
			cmd.Process.Kill() // lines printed meanwhile count as well
			n = -1
		}
	}
	cmd.Wait()
	return saved, removed
}
