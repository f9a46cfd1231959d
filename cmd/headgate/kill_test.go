package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

var chaosFor = flag.Duration("chaos.for", 0, "how long TestServeChaos kills servers; 0 is until it has killed enough of them")

// TestKill kills fetches of new commits at random points: 8 times, or 200 times with -chaos.for.
// After each kill the store must open, every artifact in a saved status must exist and be complete,
// and --out must have the content of one commit, which the next fetch may replace.
func TestKill(t *testing.T) {
	t.Parallel()
	kills := 8
	if *chaosFor > 0 {
		kills = 200
	}
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: tree("one")})
	url := testenv.ServeGit(t, testenv.GitConfig{}, repo).Repo()
	dir := t.TempDir()
	store, out := filepath.Join(dir, "store"), filepath.Join(dir, "out")
	manifest := filepath.Join(dir, "app.yaml")
	start := func(i int) *exec.Cmd {
		files := tree(fmt.Sprint(i))
		for part := range 20 {
			files[fmt.Sprintf("part/%d", part)] = files["at"]
		}
		repo.Commit(testenv.Commit{Branch: "main", Files: files})
		text := fmt.Sprintf("apiVersion: source.headgate.dev/v1\nkind: GitRepository\nmetadata: {name: app}\n"+
			"spec: {url: %q, interval: 5m, ref: {branch: main}, ignore: \"/ignored-%d\\n\"}\n", url, i)
		must(t, os.WriteFile(manifest, []byte(text), 0o644))
		c := exec.Command("headgate", "fetch", "-f", manifest, "--store", store, "--out", out, "-q")
		c.Env = append(os.Environ(), "TMPDIR="+dir, "GORACE=atexit_sleep_ms=0")
		c.Stderr = os.Stderr
		must(t, c.Start())
		return c
	}
	var fullTime time.Duration // duration of the second complete run
	for i := range 2 {
		begin := time.Now()
		must(t, start(i).Wait())
		fullTime = time.Since(begin)
	}
	unhurt := 0
	for i := range kills {
		c := start(i + 2)
		kill := time.AfterFunc(rand.N(fullTime*5/4), func() { c.Process.Kill() })
		switch c.Wait(); c.ProcessState.ExitCode() {
		case 0:
			unhurt++
		case exitUsage:
			t.Fatal("--out was refused")
		}
		kill.Stop()
		checkStore(t, store, true)
		checkOut(t, out)
	}
	t.Logf("%d of %d ended before they were killed", unhurt, kills)
	testenv.Equal(t, start(kills+2).Wait(), nil, "after the kills")
	checkStore(t, store, true)
	checkOut(t, out)
	left, err := filepath.Glob(filepath.Join(store, ".store", "tmp", "*"))
	spools, err1 := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || err1 != nil || len(left) > 0 || len(spools) != 4 {
		t.Errorf("left in the store: %v, %v; beside it: %v, %v", left, err, spools, err1)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, ".out.headgate")); err != nil || len(entries) != 2 {
		t.Errorf("left beside --out: %v, %v", entries, err)
	}
	for _, dir := range []string{"tmp", "lock"} {
		left, err := filepath.Glob(filepath.Join(store, ".cache", dir, "*"))
		if err != nil || len(left) > 0 {
			t.Errorf("left in the cache: %v, %v", left, err)
		}
	}
}

// checkOut checks that a directory has the complete content of one commit.
func checkOut(t *testing.T, dir string) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join(dir, "at"))
	must(t, err)
	for part := range 20 {
		if got, err := os.ReadFile(filepath.Join(dir, "part", fmt.Sprint(part))); err != nil || string(got) != string(want) {
			t.Errorf("part %d is %q, %v, want %q", part, got, err, want)
		}
	}
}

// checkStore checks the store of a killed command: every saved status is complete and its artifact
// exists, and every published artifact matches its digest.
func checkStore(t *testing.T, dir string, sweep bool) {
	t.Helper()
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: dir})
	must(t, err)
	defer store.Close()
	set, err := (&source.Ledger{Dir: filepath.Join(dir, ".status")}).List()
	if err != nil {
		t.Errorf("saved: %v", err)
	}
	for _, obj := range set.Objects {
		if a := obj.Artifact(); a != nil {
			testenv.Equal(t, store.Verify(t.Context(), *a), nil, "the saved status of %s", source.ReferenceTo(obj))
		} else if sweep {
			t.Errorf("the saved status of %s has no artifact", source.ReferenceTo(obj))
		}
	}
	for a, err := range store.All() {
		if err == nil {
			err = store.Verify(t.Context(), a)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if sweep {
		if _, err := store.Sweep(t.Context()); err != nil || len(set.Objects) != 1 {
			t.Errorf("%d objects, %v", len(set.Objects), err)
		}
	}
}
