// Package e2e runs the headgate command against real servers and its artifacts against real clients:
// nginx with fcgiwrap and git http-backend, OpenSSH's sshd with git-shell, git-lfs, tinyproxy,
// microsocks, the registries distribution and olareg, oras, crane, cosign 2 and 3, notation, helm 3
// and 4, chartmuseum, Prometheus, hey, the load tester of Flagger, the flux command, Chromium, the
// object stores MinIO (with slapd behind it), versitygw, Azurite and fake-gcs-server, and the
// fetchers that Flux's controllers use.
//
// It is a separate module, so that go test ./... at the root needs none of these programs; make e2e
// installs them. Every server listens on its own loopback port, or in its own network namespace.
// Its files are in a temporary directory, and it ends with the test that started it. Only Chromium
// is shared by all tests.
package e2e
