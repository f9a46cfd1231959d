package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/rollout/tester"
	"github.com/headgate-io/headgate/rollout/tester/access"
)

// testerAccessFlags say who may call the test runner, and how.
type testerAccessFlags struct {
	tokens      string
	cert, key   string
	clientCA    string
	optional    bool
	insecure    bool
	openMetrics bool
	maxConns    int
}

func (f *testerAccessFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.tokens, "tokens", "", "`FILE` of tokens and client certificates, and what each allows: callers have to have one; read again when it changes")
	fl.StringVar(&f.cert, "tls-cert", "", "`FILE` with the certificate of the server: it speaks TLS; read again when it changes")
	fl.StringVar(&f.key, "tls-key", "", "`FILE` with its key")
	fl.StringVar(&f.clientCA, "client-ca", "", "`FILE` with the CA of client certificates, one of which callers have to have")
	fl.BoolVar(&f.optional, "client-cert-optional", false, "callers without a certificate have to have a token")
	fl.BoolVar(&f.insecure, "insecure-listen", false, "listen where others can reach it although nobody is asked who they are: whoever does runs commands here")
	fl.BoolVar(&f.openMetrics, "open-metrics", false, "metrics need no token although everything else does")
	fl.IntVar(&f.maxConns, "max-connections", 10000, "connections at a time; those beyond wait")
}

func (f *testerAccessFlags) check() error {
	switch {
	case (f.cert == "") != (f.key == ""):
		return usage("--tls-cert and --tls-key go together")
	case f.clientCA != "" && f.cert == "":
		return usage("--client-ca needs --tls-cert and --tls-key")
	case f.optional && (f.clientCA == "" || f.tokens == ""):
		return usage("--client-cert-optional needs --client-ca and --tokens")
	case f.maxConns <= 0:
		return usage("--max-connections: want more than 0")
	}
	return nil
}

// guard returns who knows the callers, nil when nobody is asked.
func (f *testerAccessFlags) guard(log *slog.Logger) (*access.Guard, error) {
	if f.tokens == "" && f.clientCA == "" {
		return nil, nil
	}
	guard, err := access.Open(access.Config{File: f.tokens, Certificates: f.clientCA != "",
		Warn: func(err error) { log.Warn("tokens", "problem", err.Error()) }})
	if err != nil {
		return nil, usage("--tokens: %w", err)
	}
	return guard, nil
}

func (f *testerAccessFlags) endpoint(t *testerFlags) tester.Endpoint {
	return tester.Endpoint{Addr: t.addr, Cert: f.cert, Key: f.key, ClientCA: f.clientCA, Optional: f.optional, Insecure: f.insecure,
		MaxConns: f.maxConns, Grace: t.grace}
}
