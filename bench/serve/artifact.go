package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/bench/contest"
	"github.com/headgate-io/headgate/source/serve"
)

const (
	artifactBytes = 30 << 20
	downloaders   = 64
	turn          = 2 * time.Second // of each server, in a round
	leastShare    = 0.8             // of the throughput of nginx
)

// storeEnv is the variable with the directory of the child's store.
const storeEnv = "HEADGATE_BENCH_STORE"

// A contestant is a server of the artifact.
type contestant struct {
	name, addr string
	stop       func() error
	rates      []float64 // bytes per second in each turn
}

// artifactRow compares the throughput of headgate and nginx, each in its own
// processes: 64 clients download an artifact of 30 MiB from each in turn.
func artifactRow(ctx context.Context, o contest.Options) (missed int, err error) {
	temp, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(temp)
	a, err := storeArtifact(ctx, temp)
	if err != nil {
		return 0, err
	}
	sites, err := startContestants(ctx, temp, o.OnlyHeadgate)
	defer func() {
		for _, s := range sites {
			err = errors.Join(err, s.stop())
		}
	}()
	if err != nil {
		return 0, err
	}
	for round := -1; round < o.Runs; round++ {
		for _, s := range sites {
			if err := s.compare(a); round < 0 && err != nil {
				return 0, err
			}
			rate, err := download(s.addr, a.Path, downloaders, turn)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", s.name, err)
			}
			if round >= 0 {
				s.rates = append(s.rates, rate)
			}
		}
	}
	return reportContestants(sites), nil
}

// storeArtifact creates a store with an incompressible artifact.
func storeArtifact(ctx context.Context, dir string) (artifact.Artifact, error) {
	s, err := artifact.OpenStore(artifact.StoreConfig{Dir: filepath.Join(dir, "store")})
	if err != nil {
		return artifact.Artifact{}, err
	}
	defer s.Close()
	return s.Put(ctx, "gitrepository/default/app", "app.tar.gz", func(w io.Writer) error {
		_, err := io.CopyN(w, rand.NewChaCha8([32]byte{1}), artifactBytes)
		return err
	})
}

func startContestants(ctx context.Context, temp string, only bool) (sites []*contestant, err error) {
	ours, err := startHeadgate(ctx, temp)
	if err != nil {
		return nil, err
	}
	sites = append(sites, ours)
	if only {
		return sites, nil
	}
	theirs, err := startNginx(ctx, temp)
	if err == nil {
		sites = append(sites, theirs)
	}
	return sites, err
}

// startHeadgate starts this program as a server of the store.
func startHeadgate(ctx context.Context, temp string) (*contestant, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "artifact-server")
	cmd.Env = append(os.Environ(), storeEnv+"="+filepath.Join(temp, "store"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &contestant{name: "headgate", stop: func() error { return errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()) }}
	if _, err := fmt.Fscanln(out, &s.addr); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// artifactServer serves a store like headgate serve until it receives SIGTERM.
func artifactServer() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: os.Getenv(storeEnv)})
	if err != nil {
		return err
	}
	defer store.Close()
	s, err := serve.New(serve.Config{Store: store})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	served := &http.Server{Handler: s.Handler()}
	defer context.AfterFunc(ctx, func() { served.Close() })()
	if err := served.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

const nginxConfig = `daemon off; worker_processes auto; pid %[1]s/nginx.pid; error_log %[1]s/nginx.log warn;
%[3]s
events { worker_connections 1024; }
http {
  access_log off; sendfile on; tcp_nopush on; default_type application/octet-stream;
  client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
  server { listen %[2]s; root %[1]s/store; }
}
`

func startNginx(ctx context.Context, temp string) (*contestant, error) {
	path, err := exec.LookPath("nginx")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			return nil, fmt.Errorf("%w: .ci/servers installs it; -headgate does without", err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // finds a free port
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	l.Close()
	user := ""
	if os.Getuid() == 0 {
		user = "user root;" // its workers read the store
	}
	config := filepath.Join(temp, "nginx.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, nginxConfig, temp, addr, user), 0o600); err != nil {
		return nil, err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, path, "-c", config, "-e", filepath.Join(temp, "nginx.log"))
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &contestant{name: "nginx", addr: addr, stop: func() error { return errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()) }}
	for range 500 {
		if c, err := net.Dial("tcp", addr); err == nil {
			return s, c.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, errors.Join(fmt.Errorf("nginx does not listen: %s", said.String()), s.stop())
}

// compare checks that a site serves the stored artifact.
func (s *contestant) compare(a artifact.Artifact) error {
	resp, err := http.Get("http://" + s.addr + "/" + a.Path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	h := sha256.New()
	n, err := io.Copy(h, resp.Body)
	if got := "sha256:" + hex.EncodeToString(h.Sum(nil)); err != nil || got != a.Digest {
		return fmt.Errorf("%s: %s, %d bytes, %s, %w", s.name, resp.Status, n, got, err)
	}
	return nil
}

func reportContestants(sites []*contestant) (missed int) {
	fmt.Printf("\nAn artifact of %d MiB, %d clients, turns of %s:\n\n", artifactBytes>>20, downloaders, turn)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tMB/s\tleast\tmost\t")
	for _, s := range sites {
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t\n", s.name, contest.Median(s.rates)/1e6, slices.Min(s.rates)/1e6, slices.Max(s.rates)/1e6)
	}
	w.Flush()
	goal := contest.Goal{What: "bytes a second of nginx to those of headgate", Number: -1, Limit: 1 / leastShare}
	if len(sites) == 2 {
		goal.Number = contest.Median(sites[1].rates) / contest.Median(sites[0].rates)
		fmt.Printf("\nheadgate sends %.2f × what nginx does, at least %.2f\n", 1/goal.Number, leastShare)
	}
	return contest.Judge(os.Stdout, []contest.Goal{goal})
}
