package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

// boardFlags say where gates are.
type boardFlags struct {
	server  string
	token   string
	ca      string
	cert    string
	key     string
	state   string
	request time.Duration
}

const defaultServer = "http://127.0.0.1:8080"

func (f *boardFlags) register(c *cobra.Command, local bool) {
	fl := c.Flags()
	fl.StringVar(&f.server, "server", "", "`URL` of the test runner; default the variable HEADGATE_TESTER, or "+defaultServer)
	fl.StringVar(&f.token, "token-file", "", "`FILE` of the token that it is shown; default the token in the variable HEADGATE_TOKEN")
	fl.StringVar(&f.ca, "ca-file", "", "`FILE` of the certificates that its certificate is verified with")
	fl.StringVar(&f.cert, "cert", "", "`FILE` of the client certificate; with --key")
	fl.StringVar(&f.key, "key", "", "`FILE` of the key of --cert")
	fl.DurationVar(&f.request, "timeout", 30*time.Second, "bound of a request")
	if local {
		fl.StringVar(&f.state, "state", "", "`DIR` of the state of a test runner that does not run, instead of --server")
	}
}

// bounded is the context of one request.
func (f *boardFlags) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.request <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, f.request, fmt.Errorf("no answer within %s", f.request))
}

// A board is where gates are.
type board interface {
	gate(ctx context.Context, k api.Key) (api.Gate, error)
	gates(ctx context.Context, f api.Filter) ([]api.Gate, error)
	change(ctx context.Context, action string, k api.Key, c api.Change) (api.Gate, error)
	audit(ctx context.Context, f api.Filter) ([]api.Entry, error)
	close() error
}

// openBoard returns the board that the flags name.
func (p *program) openBoard(f *boardFlags) (board, error) {
	if f.state == "" {
		return p.runner(f)
	}
	if f.server != "" {
		return nil, usage("--state and --server exclude each other: with --server it is the test runner that has the state")
	}
	if _, err := os.Stat(filepath.Join(f.state, "gates.db")); err != nil {
		return nil, usage("--state %s: %w", f.state, pathless(err))
	}
	b, err := gate.Open(gate.Config{Dir: f.state})
	switch {
	case errors.Is(err, gate.ErrInUse):
		return nil, fmt.Errorf("--state %s: a test runner is running there: use --server with its URL", f.state)
	case err != nil:
		return nil, fmt.Errorf("--state: %w", err)
	}
	return &shelved{b}, nil
}

// pathless says what is wrong with the gates of a directory.
func pathless(err error) error {
	if os.IsNotExist(err) {
		return fmt.Errorf("no test runner has kept gates there: gates.db: %w", fs.ErrNotExist)
	}
	return err
}

// A runner is the board of a test runner.
type runner struct{ client *api.Client }

// runner returns the client that the flags describe.
func (p *program) runner(f *boardFlags) (*runner, error) {
	c := &api.Client{URL: f.server}
	if c.URL == "" {
		c.URL, _ = p.lookup("HEADGATE_TESTER")
	}
	if c.URL == "" {
		c.URL = defaultServer
	}
	if !strings.HasPrefix(c.URL, "http://") && !strings.HasPrefix(c.URL, "https://") {
		return nil, usage("--server %q is no URL with http or https", redact.Password(c.URL))
	}
	if c.Token, _ = p.lookup("HEADGATE_TOKEN"); f.token != "" {
		data := map[string][]byte{}
		if err := readKeys(data, []keyFile{{"token-file", f.token, "token", true}}); err != nil {
			return nil, err
		}
		c.Token = string(data["token"])
	}
	if strings.ContainsAny(c.Token, "\r\n") {
		return nil, usage("the token has more than one line")
	}
	config, err := f.tls()
	if err != nil {
		return nil, err
	}
	c.HTTP = &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, ForceAttemptHTTP2: true}}
	return &runner{c}, nil
}

// tls returns the settings that the flags describe.
func (f *boardFlags) tls() (*tls.Config, error) {
	if (f.cert == "") != (f.key == "") {
		return nil, usage("--cert and --key go together")
	}
	data := map[string][]byte{}
	if err := readKeys(data, []keyFile{{"ca-file", f.ca, "ca", false}, {"cert", f.cert, "cert", false}, {"key", f.key, "key", false}}); err != nil {
		return nil, err
	}
	config := new(tls.Config)
	if f.ca != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(data["ca"]) {
			return nil, usage("--ca-file: %s has no certificates in PEM form", f.ca)
		}
	}
	if f.cert != "" {
		pair, err := tls.X509KeyPair(data["cert"], data["key"])
		if err != nil {
			return nil, usage("--cert, --key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func (r *runner) gate(ctx context.Context, k api.Key) (api.Gate, error) { return r.client.Gate(ctx, k) }
func (r *runner) gates(ctx context.Context, f api.Filter) ([]api.Gate, error) {
	return r.client.Gates(ctx, f)
}
func (r *runner) audit(ctx context.Context, f api.Filter) ([]api.Entry, error) {
	return r.client.Audit(ctx, f)
}
func (r *runner) close() error { return nil }

func (r *runner) change(ctx context.Context, action string, k api.Key, c api.Change) (api.Gate, error) {
	switch action {
	case "open":
		return r.client.Open(ctx, k, c)
	case "reject":
		return r.client.Reject(ctx, k, c)
	}
	return r.client.Close(ctx, k, c)
}

// shelved is the board of a test runner that does not run.
type shelved struct{ book *gate.Book }

func (s *shelved) gate(_ context.Context, k api.Key) (api.Gate, error) { return s.book.Gate(k), nil }
func (s *shelved) gates(_ context.Context, f api.Filter) ([]api.Gate, error) {
	return s.book.List(f), nil
}
func (s *shelved) audit(_ context.Context, f api.Filter) ([]api.Entry, error) {
	return s.book.Audit(f), nil
}
func (s *shelved) close() error { return s.book.Close() }

func (s *shelved) change(_ context.Context, action string, k api.Key, c api.Change) (api.Gate, error) {
	switch action {
	case "open":
		return s.book.Open(k, c)
	case "reject":
		return s.book.Reject(k, c)
	}
	return s.book.Shut(k, c)
}
