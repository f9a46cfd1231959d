// Package e2e runs the headgate command against real servers and its
// artifacts against real clients: nginx with fcgiwrap and git http-backend,
// OpenSSH's sshd with git-shell, git-lfs, tinyproxy, microsocks, the registries
// distribution and olareg, oras, crane, cosign 2 and 3, notation, helm 3 and 4,
// chartmuseum, Prometheus, hey, the load tester of Flagger, the flux command, Chromium, the object stores MinIO (with slapd behind it), versitygw,
// Azurite and fake-gcs-server, and the fetchers that Flux's controllers use.
//
// It is a module of its own, so that go test ./... at the root needs none of
// them; make e2e installs them. Every server listens on loopback at a port of
// its own, or in a network namespace where nothing else is; it lives below a
// temporary directory and ends with the test that started it. Chromium alone is shared by all tests.
package e2e
