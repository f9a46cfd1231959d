//go:build unix

package run_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/run"
	programs "github.com/headgate-io/headgate/rollout/tester/task"
)

// stayers is a command line of processes that would stay: one in the background,
// one that ignores to be asked, one that reads from it. All hold a pipe open.
const stayers = `exec 9>"$PIPE"; echo up; sleep 1000 & (trap '' TERM; sleep 1000; sleep 1000) | cat`

// S-8, S-27: a shutdown while much is going on leaves no process and no
// goroutine, and a record of each run.
func TestShutdownUnderLoad(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0) // ends when no process has it
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	tools := programs.Tools{Env: []string{"PATH=" + os.Getenv("PATH"), "PIPE=" + pipe}, Grace: 50 * time.Millisecond}
	c := run.Config{Dir: t.TempDir(), Concurrency: 12}
	d := open(t, c)
	ask := func(i int) (run.Request, run.Task) {
		r := request(stayers)
		r.Name = fmt.Sprint("app", i)
		work, _, err := tools.Cmd(r.Metadata)
		if err != nil {
			t.Error(err)
		}
		return r, work
	}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ups := make(chan bool, 100)
	for i := range 24 { // of which half are queued
		r, work := ask(i)
		got := start(t, d, r, work)
		for range 3 {
			all.Go(func() { follow(ctx, d, got.ID, ups) })
			all.Go(func() { // waits, and would begin again
				for {
					got, err := d.Wait(ctx, r, work)
					if err != nil {
						if !errors.Is(err, run.ErrClosed) {
							t.Error(err)
						}
						return
					}
					if got.State != api.Stopped && got.State != api.Cancelled {
						t.Errorf("got %+v", got)
					}
					d.Deliver(got.ID)
				}
			})
		}
	}
	all.Go(func() {
		for range d.Watch(ctx) {
		}
	})
	for range 3 * c.Concurrency {
		<-ups
	}
	for _, r := range d.Runs(api.Filter{State: api.Running, Limit: 4}) { // the next ones begin while it shuts down
		all.Go(func() { d.Cancel(ctx, r.ID, "eve") })
	}
	if err := d.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	held.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadAll(held); err != nil {
		t.Errorf("processes are left: %v", err)
	}
	all.Wait()
	again := open(t, c)
	for _, r := range again.Runs(api.Filter{Limit: 1000}) {
		if r.State != api.Stopped && r.State != api.Cancelled {
			t.Errorf("recorded %+v", r)
		}
	}
	shutdown(t, again)
	measure.WaitGone(t, "tester/run.", "tester/task", "os/exec.")
}

// follow says when the processes of a run are up.
func follow(ctx context.Context, d *run.Runner, id string, ups chan<- bool) {
	reader, writer := io.Pipe()
	go func() {
		writer.CloseWithError(d.Output(ctx, id, true, writer))
	}()
	text := make([]byte, 100)
	if n, _ := reader.Read(text); strings.HasPrefix(string(text[:n]), "up") {
		ups <- true
	}
	io.Copy(io.Discard, reader)
}
