package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const (
	user     = "bench"
	password = "bench-password"
	region   = "us-east-1"
)

// A store is a running MinIO on loopback.
type store struct {
	host string
	cmd  *exec.Cmd
}

// serveMinIO starts MinIO on a directory and fills the bucket, unless that was
// done before.
func serveMinIO(ctx context.Context, p programs, dir string) (*store, error) {
	data := filepath.Join(dir, "minio")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &store{host: l.Addr().String()}
	l.Close()
	s.cmd = exec.CommandContext(ctx, p.minio, "server", "--quiet", "--address", s.host, data)
	s.cmd.Env = append(os.Environ(), "MINIO_ROOT_USER="+user, "MINIO_ROOT_PASSWORD="+password, "MINIO_BROWSER=off", "MINIO_UPDATE=off")
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	if err = s.ready(); err == nil {
		err = s.fill(ctx, p.self, filepath.Join(dir, "filled"))
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *store) ready() error {
	for range 200 {
		if r, err := http.Get("http://" + s.host + "/minio/health/ready"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return nil
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("MinIO does not answer at %s", s.host)
}

// fill fills the bucket and creates the file note, unless the file exists.
func (s *store) fill(ctx context.Context, self, note string) error {
	if _, err := os.Stat(note); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	fmt.Fprintln(os.Stderr, "filling the bucket")
	if err := childCommand(ctx, self, os.Stderr, "-fill", s.host).Run(); err != nil {
		return fmt.Errorf("fill the bucket: %w", err)
	}
	return os.WriteFile(note, nil, 0o644)
}

// Close kills MinIO.
func (s *store) Close() error {
	s.cmd.Process.Kill()
	s.cmd.Wait()
	return nil
}
