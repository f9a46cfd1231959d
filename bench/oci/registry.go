package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A server is a running distribution registry on loopback.
type server struct {
	host string
	dir  string
	cmd  *exec.Cmd
}

// A stored is a layer in the registry.
type stored struct {
	name   string
	repo   string
	Digest string
	Size   int64
}

// serve starts the registry on a directory and waits until it answers.
func serve(ctx context.Context, bin, dir string) (*server, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{host: l.Addr().String(), dir: dir}
	l.Close()
	config := filepath.Join(dir, "registry.yaml")
	text := fmt.Sprintf("version: 0.1\nlog:\n  level: error\n  accesslog:\n    disabled: true\nstorage:\n  filesystem:\n    rootdirectory: %s\nhttp:\n  addr: %s\n", filepath.Join(dir, "registry"), s.host)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, err
	}
	s.cmd = exec.CommandContext(ctx, filepath.Join(bin, "registry"), "serve", config)
	s.cmd.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=none")
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for range 200 {
		if r, err := http.Get("http://" + s.host + "/v2/"); err == nil {
			r.Body.Close()
			return s, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.Close()
	return nil, fmt.Errorf("the registry does not answer at %s", s.host)
}

// Close kills the registry.
func (s *server) Close() error {
	s.cmd.Process.Kill()
	s.cmd.Wait()
	return nil
}

// layer pushes a layer and its manifest, unless the registry has them.
func (s *server) layer(ctx context.Context, kind layerKind) (stored, error) {
	repo := strings.ReplaceAll(kind.name, " ", "-")
	note := filepath.Join(s.dir, repo+".json")
	var known stored
	if text, err := os.ReadFile(note); err == nil && json.Unmarshal(text, &known) == nil {
		known.name, known.repo = kind.name, repo
		return known, nil
	}
	fmt.Fprintf(os.Stderr, "making a layer of %s\n", kind.name)
	file, err := os.CreateTemp(s.dir, "layer-")
	if err != nil {
		return stored{}, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	sum := sha256.New()
	if err := makeApart(ctx, io.MultiWriter(file, sum), kind.name); err != nil {
		return stored{}, err
	}
	size, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return stored{}, err
	}
	l := stored{name: kind.name, repo: repo, Digest: fmt.Sprintf("sha256:%x", sum.Sum(nil)), Size: size}
	if err := s.pushBlob(ctx, repo, l.Digest, io.NewSectionReader(file, 0, size), size); err != nil {
		return stored{}, err
	}
	if err := s.pushManifest(ctx, l); err != nil {
		return stored{}, err
	}
	text, err := json.Marshal(l)
	if err != nil {
		return stored{}, err
	}
	return l, os.WriteFile(note, text, 0o644)
}

func (s *server) pushManifest(ctx context.Context, l stored) error {
	const empty = "{}"
	config := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(empty)))
	if err := s.pushBlob(ctx, l.repo, config, strings.NewReader(empty), int64(len(empty))); err != nil {
		return err
	}
	const kind = "application/vnd.oci.image.manifest.v1+json"
	text := fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":%q,"size":%d},`+
		`"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":%q,"size":%d}]}`, kind, config, len(empty), l.Digest, l.Size)
	_, err := s.ask(ctx, http.MethodPut, "http://"+s.host+"/v2/"+l.repo+"/manifests/latest", kind, bytes.NewReader(text), int64(len(text)))
	return err
}

func (s *server) pushBlob(ctx context.Context, repo, digest string, content io.Reader, size int64) error {
	const kind = "application/octet-stream"
	to, err := s.ask(ctx, http.MethodPost, "http://"+s.host+"/v2/"+repo+"/blobs/uploads/", kind, nil, 0)
	if err != nil {
		return err
	}
	q := to.Query()
	q.Set("digest", digest)
	to.RawQuery = q.Encode()
	_, err = s.ask(ctx, http.MethodPut, to.String(), kind, content, size)
	return err
}

// ask sends a request and returns the Location of the response.
func (s *server) ask(ctx context.Context, method, to, kind string, content io.Reader, size int64) (*url.URL, error) {
	r, err := http.NewRequestWithContext(ctx, method, to, content)
	if err != nil {
		return nil, err
	}
	r.ContentLength = size
	r.Header.Set("Content-Type", kind)
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	if a.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s: %s", method, to, a.Status)
	}
	return a.Location()
}
