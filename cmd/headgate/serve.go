package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/httpserve"
)

func (p *program) artifactServe() *cobra.Command {
	var dir string
	var at httpserve.Endpoint
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

func (p *program) runArtifactServe(ctx context.Context, dir string, at httpserve.Endpoint, logs *logFlags) error {
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
	at.Grace = 10 * time.Second
	l, err := httpserve.Listen(ctx, at, false, "", nil)
	switch {
	case errors.Is(err, httpserve.ErrExposed):
		return usage("--addr: %w: give --insecure-listen, or serve with headgate serve and --tokens", err)
	case err != nil:
		return listenError(err)
	}
	fmt.Fprintf(p.stdout, "serving %s at %s\n", dir, l.URL)
	handler := store.Handler()
	answer := func(w http.ResponseWriter, r *http.Request) {
		if l.Here(r) {
			handler.ServeHTTP(httpserve.Answering(w, r), r)
			return
		}
		http.Error(w, fmt.Sprintf("Forbidden: the request is for the host %q, and this answers those for this machine alone: "+
			"call it by its IP address or as localhost, or serve with --insecure-listen", r.Host), http.StatusForbidden)
	}
	return l.Serve(ctx, http.HandlerFunc(answer), log, func(context.Context) error { return nil })
}
