package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/listen"
)

func (p *program) artifactServe() *cobra.Command {
	var dir string
	var at listen.Config
	var logs logFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve the artifacts of a store over HTTP",
		Long: `Serve answers GET and HEAD of artifacts, with ranges and conditional requests, and nothing else. It
listens on loopback and asks nobody who they are: an address that others can reach is refused without
--insecure-listen. With tokens, certificates and TLS artifacts are served by headgate serve.`,
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return asFailure(p.runArtifactServe(c.Context(), dir, at, &logs))
		},
	}
	registerStore(c, &dir)
	c.Flags().StringVar(&at.Addr, "addr", "127.0.0.1:9090", "`HOST:PORT` to listen on; port 0 takes a free one")
	c.Flags().BoolVar(&at.Insecure, "insecure-listen", false, "listen where others can reach it: whoever does reads all artifacts")
	logs.register(c)
	return c
}

func (p *program) runArtifactServe(ctx context.Context, dir string, at listen.Config, logs *logFlags) error {
	if !isHostPort(at.Addr) {
		return usage("--addr %q: want HOST:PORT, as 127.0.0.1:9090, [::1]:9090 or :9090", at.Addr)
	}
	log, err := logs.log(p.stderr)
	if err != nil {
		return err
	}
	store, err := openExisting(dir)
	if err != nil {
		return err
	}
	defer store.Close()
	l, err := listen.Open(ctx, at)
	switch {
	case errors.Is(err, listen.ErrExposed):
		return usage("--addr: %w: give --insecure-listen, or serve with headgate serve and --tokens", err)
	case err != nil:
		return listenError(err)
	}
	fmt.Fprintf(p.stdout, "serving %s at %s\n", dir, l.URL)
	return listen.Service{
		Handler: l.Local(store.Handler(), refuseElsewhere),
		Request: 10 * time.Second,
		Grace:   10 * time.Second,
		Problem: func(text string) { log.Warn("connection", "problem", text) },
	}.Serve(ctx, l)
}

// refuseElsewhere answers a request for a host that is not this machine.
func refuseElsewhere(w http.ResponseWriter, _ *http.Request, host listen.Misdirected) {
	http.Error(w, fmt.Sprintf("Forbidden: %v, and this answers those for this machine alone: "+
		"call it by its IP address or as localhost, or serve with --insecure-listen", host), http.StatusForbidden)
}
