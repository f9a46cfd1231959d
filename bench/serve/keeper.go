package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/controller"
)

// A tally is what a keeper did and needed in a span of time.
type tally struct {
	Runs, Failed int
	Late         [3]time.Duration // median, 99th percentile and maximum
	CPU          time.Duration
	Mallocs      uint64
	Bytes        uint64
}

// A keeper keeps objects with the library, as headgate serve does.
type keeper struct {
	controller *controller.Controller
	objects    int

	mu     sync.Mutex
	late   []time.Duration
	failed int
	usage  tally
}

// static is a feed that never changes.
type static struct{ objects []source.Object }

// Follow implements [controller.Feed].
func (s static) Follow(ctx context.Context, set func(controller.Desired)) error {
	set(controller.Desired{Objects: s.objects})
	<-ctx.Done()
	return nil
}

// keeperRole is runKeeper with the flags of this process.
func keeperRole(apart bool) error {
	if err := flag.CommandLine.Parse(os.Args[2:]); err != nil {
		return err
	}
	return runKeeper(flag.Arg(0), apart)
}

// runKeeper keeps the objects of a file, with everything in dir. It answers each
// line of standard input by one: ready waits until all are ready, begin has it
// count, and end returns the tally.
func runKeeper(dir string, apart bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := profile("start"); err != nil {
		return err
	}
	k, end, err := openKeeper(dir, apart)
	if err != nil {
		return err
	}
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- k.controller.Run(ctx) }()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if err := k.obey(ctx, in.Text()); err != nil {
			return err
		}
	}
	stop()
	return <-ended
}

func openKeeper(dir string, apart bool) (*keeper, func(), error) {
	file, err := os.Open(filepath.Join(dir, "objects.yaml"))
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	var set source.Set
	if err := set.Decode(file.Name(), file); err != nil {
		return nil, nil, err
	}
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: filepath.Join(dir, "store"), BaseURL: "http://127.0.0.1:9090"})
	if err != nil {
		return nil, nil, err
	}
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: filepath.Join(dir, "cache")})
	if err != nil {
		return nil, nil, err
	}
	k := &keeper{objects: len(set.Objects)}
	k.controller = &controller.Controller{
		Feed: static{set.Objects}, Store: store, Ledger: &source.Ledger{Dir: filepath.Join(dir, "status")},
		Env: source.Env{Cache: cache, Limits: artifact.Limits{Temp: store.Temp}},
		Origin: func(obj source.Object, env source.Env) (source.Origin, error) {
			return git.New(obj.(*source.GitRepository), env), nil
		},
		Apart: apart, Observe: k.observe,
	}
	return k, func() { cache.Close(); store.Close() }, nil
}

func (k *keeper) observe(r controller.Run) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.late = append(k.late, r.Started.Sub(r.Due))
	if r.Err != nil {
		if k.failed++; k.failed < 4 {
			fmt.Fprintln(os.Stderr, "bench:", r.Object, r.Err)
		}
	}
}

func (k *keeper) obey(ctx context.Context, order string) error {
	switch order {
	case "ready":
		if err := k.await(ctx); err != nil {
			return err
		}
		if err := endProfile("start"); err != nil {
			return err
		}
		fmt.Println("ready")
	case "begin":
		k.mu.Lock()
		defer k.mu.Unlock()
		k.late, k.failed, k.usage = make([]time.Duration, 0, 8*k.objects), 0, used()
		if err := profile("polls"); err != nil {
			return err
		}
		fmt.Println("begun")
	case "end":
		t := k.tally()
		if err := endProfile("polls"); err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(t)
	}
	return nil
}

// await waits until all objects are ready.
func (k *keeper) await(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ready := map[source.Reference]bool{}
	err := k.controller.Watch(ctx, func(v controller.View) {
		if v.Object.Artifact() != nil && v.Object.Common().Condition(source.ReadyCondition).Status == "True" {
			ready[source.ReferenceTo(v.Object)] = true
		}
		if len(ready) == k.objects && k.controller.Ready() {
			stop()
		}
	})
	if len(ready) < k.objects {
		return fmt.Errorf("%d of %d objects are ready: %w", len(ready), k.objects, cmp.Or(err, ctx.Err()))
	}
	return nil
}

func (k *keeper) tally() tally {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := used()
	t := tally{Runs: len(k.late), Failed: k.failed, CPU: now.CPU - k.usage.CPU, Mallocs: now.Mallocs - k.usage.Mallocs, Bytes: now.Bytes - k.usage.Bytes}
	if slices.Sort(k.late); t.Runs > 0 {
		t.Late = [3]time.Duration{k.late[t.Runs/2], k.late[t.Runs*99/100], k.late[t.Runs-1]}
	}
	return t
}

// used returns what the process has needed so far.
func used() tally {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return tally{CPU: time.Duration(u.Utime.Nano() + u.Stime.Nano()), Mallocs: m.Mallocs, Bytes: m.TotalAlloc}
}
