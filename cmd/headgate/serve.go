package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

func (p *program) serve() *cobra.Command {
	var dir, addr string
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve the artifacts of a store over HTTP",
		Long: `Serve answers GET and HEAD of artifacts, with ranges and conditional requests, and nothing else. It
listens on loopback unless told otherwise; there is no authentication.`,
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return asFailure(p.runServe(c.Context(), dir, addr))
		},
	}
	registerStore(c, &dir)
	c.Flags().StringVar(&addr, "addr", "127.0.0.1:9090", "`HOST:PORT` to listen on; port 0 takes a free one")
	return c
}

func (p *program) runServe(ctx context.Context, dir, addr string) error {
	store, err := openExisting(dir)
	if err != nil {
		return err
	}
	defer store.Close()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return listenError(err)
	}
	server := &http.Server{
		Handler:           store.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	fmt.Fprintf(p.stdout, "serving %s at http://%s\n", dir, l.Addr())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(grace); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(err, server.Close())
	}
	return nil
}
