package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A serveProcess is a running headgate serve.
type serveProcess struct {
	cmd *exec.Cmd
	url string
}

// buildCommand builds the command and returns its path.
func buildCommand(ctx context.Context, dir string) (string, error) {
	command := filepath.Join(dir, "headgate")
	build := exec.CommandContext(ctx, "go", "build", "-C", "..", "-trimpath", "-o", command, "./cmd/headgate")
	build.Stderr = os.Stderr
	return command, build.Run()
}

// startServe starts headgate serve for the objects in dir, with its store in dir,
// and waits until it listens.
func startServe(ctx context.Context, command, dir string) (*serveProcess, error) {
	k := &serveProcess{cmd: exec.CommandContext(ctx, command,
		"serve", "-f", filepath.Join(dir, "objects"), "--store", filepath.Join(dir, "store"), "--addr", "127.0.0.1:0", "--log-level", "error")}
	k.cmd.Stderr, k.cmd.WaitDelay = os.Stderr, 30*time.Second
	k.cmd.Cancel = func() error { return k.cmd.Process.Signal(os.Interrupt) }
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := k.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("headgate serve: %w", errors.Join(err, k.cmd.Wait()))
	}
	k.url = strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:])
	return k, nil
}

// end terminates the process with SIGTERM.
func (k *serveProcess) end() error {
	return errors.Join(k.cmd.Process.Signal(syscall.SIGTERM), k.cmd.Wait())
}

// await waits until all objects are ready.
func (k *serveProcess) await(ctx context.Context, objects int) error {
	for {
		var stats struct{ Ready map[string]int }
		if err := k.read(ctx, "/api/v1/stats", func(r *http.Response) error {
			return json.NewDecoder(r.Body).Decode(&stats)
		}); err != nil {
			return err
		}
		if stats.Ready["True"] == objects {
			return nil
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func (k *serveProcess) read(ctx context.Context, path string, use func(*http.Response) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	return use(resp)
}

// peak returns the peak memory of the process so far in bytes, or 0 if the system
// does not report it.
func (k *serveProcess) peak() int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", k.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10
		}
	}
	return 0
}

// serveMetrics are the metrics that the benchmark reads.
type serveMetrics struct {
	Late   map[float64]float64 // number of checks by maximum lateness in seconds
	Polls  float64
	Failed float64
}

// metrics returns the current metrics of the process.
func (k *serveProcess) metrics(ctx context.Context) (t serveMetrics, err error) {
	t.Late = map[float64]float64{}
	return t, k.read(ctx, "/metrics", func(r *http.Response) error {
		in := bufio.NewScanner(r.Body)
		for in.Scan() {
			if err := t.add(in.Text()); err != nil {
				return err
			}
		}
		return in.Err()
	})
}

// add adds the value of a line of metrics.
func (t *serveMetrics) add(line string) error {
	if strings.HasPrefix(line, "#") {
		return nil
	}
	cut := strings.LastIndexByte(line, ' ')
	series := line[:max(cut, 0)]
	number, err := strconv.ParseFloat(line[cut+1:], 64)
	if err != nil {
		return fmt.Errorf("metric %q: %w", line, err)
	}
	name, labels, _ := strings.Cut(series, "{")
	switch name {
	case "headgate_reconcile_lateness_seconds_bucket":
		_, bound, _ := strings.Cut(labels, `le="`)
		at, err := strconv.ParseFloat(strings.TrimSuffix(bound, `"}`), 64)
		if err != nil {
			return fmt.Errorf("metric %q: %w", line, err)
		}
		t.Late[at] += number
	case "headgate_reconcile_lateness_seconds_count":
		t.Polls += number
	case "headgate_reconcile_total":
		if strings.Contains(labels, `outcome="failed"`) {
			t.Failed += number
		}
	}
	return nil
}

// since returns the metrics since before.
func (t serveMetrics) since(before serveMetrics) serveMetrics {
	late := map[float64]float64{}
	for at, n := range t.Late {
		late[at] = n - before.Late[at]
	}
	return serveMetrics{late, t.Polls - before.Polls, t.Failed - before.Failed}
}

// latenessQuantile returns the lateness in seconds that the given part of the checks did not
// exceed. It is the upper bound of a histogram bucket.
func (t serveMetrics) latenessQuantile(part float64) float64 {
	within := math.Inf(1)
	for at, n := range t.Late {
		if n >= part*t.Polls {
			within = min(within, at)
		}
	}
	return within
}
