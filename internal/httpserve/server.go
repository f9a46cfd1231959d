package httpserve

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
)

// An Endpoint is the configuration of a [Listener].
type Endpoint struct {
	Addr      string        // HOST:PORT; default 127.0.0.1:8080; port 0 takes a free one
	Socket    string        // path of a socket of mode 0600, whose callers may do everything; "" for none
	Cert, Key string        // PEM files for TLS, both or none; read again when they change
	ClientCA  string        // PEM file with the CA of client certificates, which clients then need
	Optional  bool          // clients without a certificate need a token
	Insecure  bool          // callers need not authenticate even if other machines can reach Addr
	Grace     time.Duration // for open requests at the end; default 30 s
}

// ErrExposed is the error of an address that other machines can reach if callers need not authenticate.
var ErrExposed = errors.New("other machines can reach it, without a token or a client certificate")

// A Listener listens on an address, and on a socket if there is one.
type Listener struct {
	net.Listener
	URL string // as http://127.0.0.1:8080

	socket net.Listener // nil for none
	hosts  []string     // allowed hosts of requests besides this machine; nil allows all
	grace  time.Duration
}

// Listen begins to listen. If authRequired is false and the address is a loopback address, only requests for this
// machine or for the host of baseURL are answered. A host name is resolved only once, so that Listen listens on the
// very address that it checked.
func Listen(e Endpoint, authRequired bool, baseURL string, warn func(error)) (*Listener, error) {
	e.Addr = cmp.Or(e.Addr, "127.0.0.1:8080")
	config, err := e.TLS(time.Now, warn)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(e.Addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return nil, fmt.Errorf("listen at %s: want HOST:PORT, as [::1]:8080; for PORT want a number from 0 to 65535", e.Addr)
	}
	addr, err := net.ResolveTCPAddr("tcp", e.Addr)
	if err != nil {
		return nil, err
	}
	open := addr.IP.IsLoopback() && !authRequired && !e.Insecure // for all processes of this machine
	switch {
	case e.ClientCA != "" && !authRequired:
		return nil, errors.New("client certificates are asked for, and nothing says who has them: open the guard with Certificates")
	case !addr.IP.IsLoopback() && !authRequired && !e.Insecure:
		return nil, fmt.Errorf("listen at %s: %w", e.Addr, ErrExposed)
	}
	raw, err := net.ListenTCP("tcp", addr)
	if err != nil {
		return nil, err
	}
	l := &Listener{URL: "http://" + raw.Addr().String(), Listener: raw, grace: cmp.Or(e.Grace, 30*time.Second)}
	if config != nil {
		l.URL, l.Listener = "https://"+raw.Addr().String(), tls.NewListener(raw, config)
	}
	if open {
		l.hosts = []string{host}
		if u, err := url.Parse(baseURL); err == nil {
			l.hosts = append(l.hosts, u.Hostname())
		}
	}
	if e.Socket != "" {
		if l.socket, err = listenSocket(e.Socket); err != nil {
			return nil, errors.Join(err, raw.Close())
		}
	}
	return l, nil
}

// TLS returns the TLS configuration, nil without TLS. The files are read again when they change, at most once a
// second. If they are invalid then, the previous ones stay in use and warn, unless nil, is called with the error.
func (e Endpoint) TLS(now func() time.Time, warn func(error)) (*tls.Config, error) {
	switch {
	case (e.Cert == "") != (e.Key == ""):
		return nil, errors.New("a certificate and its key go together")
	case e.ClientCA != "" && e.Cert == "":
		return nil, errors.New("certificates of clients need TLS: a certificate and its key")
	case e.Optional && e.ClientCA == "":
		return nil, errors.New("certificates of clients that may be missing need a CA")
	case e.Cert == "":
		return nil, nil
	}
	names := []string{e.Cert, e.Key}
	if e.ClientCA != "" {
		names = append(names, e.ClientCA)
	}
	files, err := newReloaded(now, warn, e.read, names...)
	if err != nil {
		return nil, fmt.Errorf("read certificates: %w", err)
	}
	config := files.Value().Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return files.Value(), nil }
	return config, nil
}

func (e Endpoint) read(contents [][]byte) (*tls.Config, []error, error) {
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return nil, nil, fmt.Errorf("certificate %s with key %s: %w", e.Cert, e.Key, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	if e.ClientCA == "" {
		return config, nil, nil
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(contents[2]) {
		return nil, nil, fmt.Errorf("%s: it holds no certificate in PEM form", e.ClientCA)
	}
	config.SessionTicketsDisabled = true // resuming a session would accept a client of a previous CA
	config.ClientAuth = tls.RequireAndVerifyClientCert
	if e.Optional {
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return config, nil, nil
}

// otherHostAnswer is the answer to requests for other hosts, with 403.
const otherHostAnswer = "Forbidden: this server does not authenticate callers, so it answers only requests for this machine: " +
	"call it by its IP address or as localhost, or name the host in the base URL"

type listenerKey struct{}

// HostAllowed reports whether a request is for this machine, or the [Listener] that serves it allows all hosts.
func HostAllowed(r *http.Request) bool {
	l, served := r.Context().Value(listenerKey{}).(*Listener)
	if !served || l.hosts == nil || viaSocket(r) {
		return true
	}
	name := (&url.URL{Host: r.Host}).Hostname()
	if ip, err := netip.ParseAddr(name); err == nil {
		return ip.Unmap().IsLoopback()
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") ||
		slices.ContainsFunc(l.hosts, func(host string) bool { return host != "" && strings.EqualFold(host, name) })
}

// Serve serves until ctx ends, and then shuts down gracefully: it calls stop, which ends the work of the
// handler, refuses new connections, and waits for open requests. It returns an error and closes all
// connections if that takes longer than the grace of the endpoint. Connection errors are logged.
func (l *Listener) Serve(ctx context.Context, h http.Handler, to *slog.Logger, stop func(context.Context) error) error {
	server := &http.Server{
		Handler: h, ErrorLog: log.New(problemWriter{to}, "", 0),
		ReadHeaderTimeout: ioTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		HTTP2:       &http.HTTP2Config{MaxConcurrentStreams: 64},
		BaseContext: func(net.Listener) context.Context { return context.WithValue(context.Background(), listenerKey{}, l) },
	}
	at := []net.Listener{l.Listener}
	if l.socket != nil {
		server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			_, local := c.(*net.UnixConn)
			return context.WithValue(ctx, viaSocketKey{}, local)
		}
		at = append(at, l.socket)
	}
	ended := make(chan error, len(at))
	for _, one := range at {
		go func() { ended <- server.Serve(one) }()
	}
	var err error
	select {
	case err = <-ended:
		ended <- nil
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.grace)
	defer cancel()
	err = errors.Join(err, stop(grace))
	if late := server.Shutdown(grace); late != nil {
		err = errors.Join(err, fmt.Errorf("answers took longer than %s: %w", l.grace, late), server.Close())
	}
	for range at {
		<-ended // http.ErrServerClosed
	}
	return err
}

// A problemWriter logs the messages of net/http about connections.
type problemWriter struct{ to *slog.Logger }

func (w problemWriter) Write(text []byte) (int, error) {
	line, _, _ := strings.Cut(string(text), "\n") // without the stack of a panic
	w.to.Warn("connection", "problem", redact.String(strings.TrimPrefix(line, "http: ")))
	return len(text), nil
}

// Close closes a listener on which Serve was not called.
func (l *Listener) Close() error {
	err := l.Listener.Close()
	if l.socket != nil {
		err = errors.Join(err, l.socket.Close())
	}
	return err
}
