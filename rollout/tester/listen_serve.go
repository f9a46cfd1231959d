package tester

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/internal/redact"
)

// Serve serves until ctx ends, and then ends gracefully: new work is refused,
// runs are stopped and recorded, and callers that wait get their answers. What
// takes longer than Grace is cut off, with an error.
func (l *Listener) Serve(ctx context.Context) error {
	server := &http.Server{
		Handler:        l.local(l.server.handler(0)),
		ReadTimeout:    l.request,
		IdleTimeout:    idleTime,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       log.New(connectionLog{l.server}, "", 0),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l.listener) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.grace)
	defer cancel()
	err = errors.Join(err, l.server.Shutdown(grace)) // which has the callers that wait answered
	if late := server.Shutdown(grace); late != nil {
		err = errors.Join(err, fmt.Errorf("answers took longer than %s: %w", l.grace, late), server.Close())
	}
	return err
}

// Close ends the listening of one that does not serve.
func (l *Listener) Close() error { return l.listener.Close() }

// local refuses requests for hosts that are not this machine, where that matters.
func (l *Listener) local(next http.Handler) http.Handler {
	if l.hosts == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.here(r.Host) {
			next.ServeHTTP(w, r)
			return
		}
		l.server.observeDenial(r, misdirected(r.Host))
		answer.Text(w, http.StatusForbidden, "Forbidden: callers need not say who they are here, so this answers requests for this machine alone: "+
			"call it by its IP address or as localhost, or name the host in the base URL")
	})
}

// here reports whether a host that a request names is this machine.
func (l *Listener) here(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	if ip, err := netip.ParseAddr(name); err == nil {
		return ip.Unmap().IsLoopback()
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") || slices.ContainsFunc(l.hosts, func(own string) bool {
		return strings.EqualFold(own, name)
	})
}

// A misdirected request is for a host that is not this machine.
type misdirected string

func (m misdirected) Error() string { return fmt.Sprintf("the request is for the host %q", string(m)) }

// hostOf returns the host of a URL, if it has one.
func hostOf(text string) []string {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	return []string{u.Hostname()}
}

// A connectionLog takes what net/http says of connections, a line or more at a time.
type connectionLog struct{ server *Server }

func (c connectionLog) Write(line []byte) (int, error) {
	first, _, _ := strings.Cut(string(line), "\n") // a panic has a stack below
	c.server.logger().Warn("connection", "problem", redact.String(strings.TrimPrefix(first, "http: ")))
	return len(line), nil
}
