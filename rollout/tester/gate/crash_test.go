package gate_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

const (
	crashDir = "HEADGATE_TEST_GATES" // directory of the process that is killed
	canaries = 4
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		fmt.Fprintln(os.Stderr, decideUntilKilled(dir))
		return
	}
	os.Exit(m.Run())
}

// decide makes the decision number n about the gate of a canary: odd ones open it for
// one revision, whose check closes it again; even ones reject the revision that waits, which
// also changes the rollback switch.
func decide(b *gate.Store, k api.Key, n int) error {
	by := api.Change{Reason: fmt.Sprint(n)}
	if n%2 == 0 {
		by.Checksum = fmt.Sprint(n)
		_, err := b.Change("reject", k, by)
		return err
	}
	by.Mode = api.OneShot
	_, err := b.Change("open", k, by)
	if err == nil && check(b, k, fmt.Sprint(n)) != "pass" {
		err = fmt.Errorf("%d is refused", n)
	}
	return err
}

func keysOf(canary int) (promotion, rollback api.Key) {
	promotion = api.Key{Kind: api.KindGate, Namespace: "prod", Name: fmt.Sprint("web", canary), Gate: "promotion"}
	return promotion, api.Key{Kind: api.KindRollback, Namespace: "prod", Name: promotion.Name, Gate: api.DefaultGate}
}

// decideUntilKilled makes one decision after the other about each canary, until it is killed. It prints
// each decision when it is made: CANARY NUMBER.
func decideUntilKilled(dir string) error {
	b, err := gate.Open(gate.Config{Dir: dir})
	if err != nil {
		return err
	}
	for canary := range canaries {
		go func() {
			k, _ := keysOf(canary)
			for n := lastDecision(b, canary) + 1; ; n++ {
				if err := decide(b, k, n); err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
				fmt.Println(canary, n)
			}
		}()
	}
	_, err = io.Copy(io.Discard, os.Stdin) // until the parent ends
	return err
}

// lastDecision returns the number of the last decision about a canary.
func lastDecision(b *gate.Store, canary int) (n int) {
	k, _ := keysOf(canary)
	fmt.Sscan(b.Gate(k).Reason, &n)
	return n
}

// TestKill repeatedly kills a process with SIGKILL while it changes gates. All acknowledged
// decisions are there afterwards; the one decision about each canary that was under way is
// there wholly or not at all.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	for round := range rounds {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), crashDir+"="+dir)
		cmd.Stderr = os.Stderr
		stdin, err := cmd.StdinPipe()
		must(t, err)
		defer stdin.Close()
		stdout, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		acknowledged := [canaries]int{}
		lines := bufio.NewScanner(stdout)
		for n := 0; lines.Scan(); n++ {
			var canary, number int
			if _, err := fmt.Sscan(lines.Text(), &canary, &number); err != nil {
				break // a line that was cut off
			}
			if acknowledged[canary] = number; n == 17*round {
				cmd.Process.Kill()
			}
		}
		cmd.Wait()
		b := open(t, gate.Config{Dir: dir})
		for canary, last := range acknowledged {
			k, rollback := keysOf(canary)
			g, r, n := b.Gate(k), b.Gate(rollback), lastDecision(b, canary)
			if last > 0 && n != last && n != last+1 {
				t.Errorf("%d was acknowledged, and %d is there", last, n)
			}
			if n%2 == 0 && n > 0 && (g.Open || !r.Open || r.Checksum != fmt.Sprint(n) || r.Reason != g.Reason) {
				t.Errorf("half of a rejection: %+v, %+v", g, r)
			}
			if n%2 == 1 && (!g.Open || n == last && g.Checksum != fmt.Sprint(n) || n > 1 && r.Checksum != fmt.Sprint(n-1)) {
				t.Errorf("half of an opening: %+v, %+v", g, r)
			}
		}
		for i, e := range b.Audit(api.Filter{Limit: 1000}, nil) {
			testenv.Equal(t, e.ID, b.Audit(api.Filter{Limit: 1}, nil)[0].ID-uint64(i), "an entry is missing")
		}
		must(t, b.Close())
	}
}

// TestOneShotRace opens a gate for one revision while many checks come at once.
func TestOneShotRace(t *testing.T) {
	b := open(t, gate.Config{Dir: t.TempDir()})
	for round := range 20 {
		if _, err := b.Change("open", key, api.Change{Mode: api.OneShot}); err != nil {
			t.Fatal(err)
		}
		var passed atomic.Int32
		var group sync.WaitGroup
		for i := range 50 {
			group.Go(func() {
				sum := fmt.Sprint(i)
				if round%2 == 1 {
					sum = "" // older callers send none: each counts as another
				}
				if check(b, key, sum) == "pass" {
					passed.Add(1)
				}
			})
		}
		group.Wait()
		testenv.Equal(t, passed.Load(), 1, "round %d", round)
	}
}

// TestRace calls all methods concurrently, for the race detector. The last acknowledged
// change holds.
func TestRace(t *testing.T) {
	b := open(t, gate.Config{Dir: t.TempDir(), MaxKeys: 100})
	changes := b.Watch(t.Context())
	go func() {
		for range changes {
		}
	}()
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			ownKey := key
			ownKey.Gate = fmt.Sprint("own", worker)
			for i := range 5 {
				check(b, key, fmt.Sprint(i%3))
				b.List(api.Filter{Waiting: true})
				b.Change("open", key, api.Change{Mode: api.OneShot, TTL: "1"})
				b.Change("reject", key, api.Change{})
				b.Issue(key, 0, "")
				g, err := b.Change("open", ownKey, api.Change{Reason: fmt.Sprint(i)})
				if err != nil || b.Gate(ownKey) != g {
					t.Errorf("got %+v, want %+v: %v", b.Gate(ownKey), g, err)
				}
			}
		})
	}
	group.Wait()
	last := ^uint64(0)
	for _, e := range b.Audit(api.Filter{Limit: 1000}, nil) {
		if e.ID >= last {
			t.Errorf("entry %d after %d", e.ID, last)
		}
		last = e.ID
	}
}
