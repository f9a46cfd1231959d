package main

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/bench/contest"
)

// A server serves a folder of repositories by git http-backend on loopback.
type server struct {
	url      string
	http     http.Server
	requests atomic.Int64
	sent     atomic.Int64
	lag      atomic.Int64 // nanoseconds before each answer
}

func serve(dir string) (*server, error) {
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return nil, err
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{url: "http://" + l.Addr().String()}
	quiet := log.New(io.Discard, "", 0)
	backend := &cgi.Handler{
		Path:   filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env:    append(env(), "GIT_PROJECT_ROOT="+dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=uploadpack.allowFilter", "GIT_CONFIG_VALUE_0=true"),
		Logger: quiet, Stderr: io.Discard,
	}
	s.http = http.Server{ErrorLog: quiet, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		time.Sleep(time.Duration(s.lag.Load()))
		backend.ServeHTTP(&counter{w, &s.sent}, r)
	})}
	go s.http.Serve(l)
	return s, nil
}

// prepare begins to count for a contestant.
func (s *server) prepare(c contest.Contestant) {
	s.reset()
	s.lag.Store(int64(c.Lag))
}

func (s *server) reset() {
	s.sent.Store(0)
	s.requests.Store(0)
}

// counted notes what was counted.
func (s *server) counted(r *contest.Result) { r.Sent, r.Asked = s.sent.Load(), s.requests.Load() }

// Close ends the server.
func (s *server) Close() error { return s.http.Close() }

type counter struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c *counter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return c.ResponseWriter.Write(b)
}
