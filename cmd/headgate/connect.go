package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/redact"
)

// serverFlags say where a server is, and who calls it.
type serverFlags struct {
	server  string
	token   string
	ca      string
	cert    string
	key     string
	request time.Duration
}

// register adds the flags; what says which server is meant, and what is taken
// when none is named.
func (f *serverFlags) register(c *cobra.Command, what string) {
	f.registerPlace(c, what)
	spanVar(c, &f.request, "timeout", 30*time.Second, "bound of a request")
}

// registerPlace adds those that say where it is, and not how long a request may last.
func (f *serverFlags) registerPlace(c *cobra.Command, what string) {
	fl := c.Flags()
	fl.StringVar(&f.server, "server", "", "`URL` of "+what)
	fl.StringVar(&f.token, "token-file", "", "`FILE` of the token that it is shown; default the token in the variable HEADGATE_TOKEN")
	fl.StringVar(&f.ca, "ca-file", "", "`FILE` of the certificates that its certificate is verified with")
	fl.StringVar(&f.cert, "cert", "", "`FILE` of the client certificate; with --key")
	fl.StringVar(&f.key, "key", "", "`FILE` of the key of --cert")
}

// bounded is the context of one request.
func (f *serverFlags) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.request <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, f.request, fmt.Errorf("no answer within %s", f.request))
}

// A connection is how a server is called.
type connection struct {
	base, token string
	client      *http.Client
}

// connect returns how the server of the flags is called. Where they name none it
// is that of a variable, or else at the URL fallback, which may be "".
func (p *program) connect(f *serverFlags, variable, fallback string) (c connection, err error) {
	if c.base = f.server; c.base == "" {
		c.base, _ = p.lookup(variable)
	}
	if c.base == "" {
		c.base = fallback
	}
	if c.base != "" && !strings.HasPrefix(c.base, "http://") && !strings.HasPrefix(c.base, "https://") {
		return c, usage("--server %q is no URL with http or https", redact.Password(c.base))
	}
	if c.token, _ = p.lookup("HEADGATE_TOKEN"); f.token != "" {
		data := map[string][]byte{}
		if err := readKeys(data, []keyFile{{"token-file", f.token, "token", true}}); err != nil {
			return c, err
		}
		c.token = string(data["token"])
	}
	if strings.ContainsAny(c.token, "\r\n") {
		return c, usage("the token has more than one line")
	}
	config, err := f.tls()
	if err != nil {
		return c, err
	}
	c.client = &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, ForceAttemptHTTP2: true}}
	return c, nil
}

// tls returns the settings that the flags describe.
func (f *serverFlags) tls() (*tls.Config, error) {
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
