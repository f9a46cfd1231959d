package main

import (
	"errors"
	"net"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

// listenFlags say where a server listens, and who may call it.
type listenFlags struct {
	addr        string
	baseURL     string
	tokens      string
	cert, key   string
	clientCA    string
	optional    bool
	insecure    bool
	openMetrics bool
	grace       time.Duration
}

// listenWords are what differs between servers.
type listenWords struct {
	addr    string // the default
	baseURL string // what it is for
	open    string // what others can do where nobody is asked who he is
	grace   time.Duration
	ending  string // what has that long
}

func (f *listenFlags) register(c *cobra.Command, words listenWords) {
	fl := c.Flags()
	fl.StringVar(&f.addr, "addr", words.addr, "`HOST:PORT` to listen on; port 0 takes a free one")
	fl.StringVar(&f.baseURL, "base-url", "", "`URL` "+words.baseURL)
	fl.StringVar(&f.tokens, "tokens", "", "`FILE` of tokens and client certificates, and what each allows: callers have to have one; read again when it changes")
	fl.StringVar(&f.cert, "tls-cert", "", "`FILE` with the certificate of the server: it speaks TLS; read again when it changes")
	fl.StringVar(&f.key, "tls-key", "", "`FILE` with its key")
	fl.StringVar(&f.clientCA, "client-ca", "", "`FILE` with the CA of client certificates, one of which callers have to have")
	fl.BoolVar(&f.optional, "client-cert-optional", false, "callers without a certificate have to have a token")
	fl.BoolVar(&f.insecure, "insecure-listen", false, "listen where others can reach it although nobody is asked who they are: whoever does "+words.open)
	fl.BoolVar(&f.openMetrics, "open-metrics", false, "metrics need no token although everything else does")
	spanVar(c, &f.grace, "shutdown-grace", words.grace, "how long "+words.ending+" when it is told to end")
}

// guarded reports whether callers have to say who they are.
func (f *listenFlags) guarded() bool { return f.tokens != "" || f.clientCA != "" }

func (f *listenFlags) check() error {
	switch {
	case (f.cert == "") != (f.key == ""):
		return usage("--tls-cert and --tls-key go together")
	case f.clientCA != "" && f.cert == "":
		return usage("--client-ca needs --tls-cert and --tls-key")
	case f.optional && (f.clientCA == "" || f.tokens == ""):
		return usage("--client-cert-optional needs --client-ca and --tokens")
	case !isHostPort(f.addr):
		return usage("--addr %q: want HOST:PORT, as 127.0.0.1:8080, [::1]:8080 or :8080", f.addr)
	case f.grace <= 0:
		return usage("--shutdown-grace %s: want a positive time", f.grace)
	case f.baseURL == "":
		return nil
	}
	if err := checkWebURL(f.baseURL); err != nil {
		return usage("--base-url: %w", err)
	}
	return nil
}

func isHostPort(addr string) bool {
	_, _, err := net.SplitHostPort(addr)
	return err == nil
}

// checkWebURL wants the URL of a server.
func checkWebURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("want http:// or https://, a host, and perhaps a path")
	}
	return nil
}
