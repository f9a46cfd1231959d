package main

import (
	"log/slog"

	"github.com/headgate-io/headgate/rollout/tester"
	"github.com/headgate-io/headgate/rollout/tester/access"
)

// guard returns who knows the callers of the test runner, nil when nobody is asked.
func (f *testerFlags) guard(log *slog.Logger) (*access.Guard, error) {
	if !f.guarded() {
		return nil, nil
	}
	guard, err := access.Open(access.Config{File: f.tokens, Certificates: f.clientCA != "",
		Warn: func(err error) { log.Warn("tokens", "problem", err.Error()) }})
	if err != nil {
		return nil, usage("--tokens: %w", err)
	}
	return guard, nil
}

func (f *testerFlags) endpoint() tester.Endpoint {
	return tester.Endpoint{Addr: f.addr, Cert: f.cert, Key: f.key, ClientCA: f.clientCA, Optional: f.optional, Insecure: f.insecure,
		Grace: f.grace}
}
