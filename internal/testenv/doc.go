// Package testenv serves real protocols inside a test: Git over HTTP by git's
// own http-backend, Git over ssh by git's own upload-pack, the API of
// GitHub for apps, a registry of OCI artifacts, a repository of charts, object
// stores, and http, https and socks5 proxies; handlers that answer like nGrinder
// and Concord. Everything listens on loopback at
// a port of its own and ends with the test. Only tests import it.
//
// Repositories are made by the git binary, in an environment without any
// configuration of the machine; the same calls give the same ids everywhere.
//
// Servers record what they were asked, enforce the credentials they were
// configured with, and misbehave in one named way when a [Defect] says so.
package testenv

import (
	"io"
	"log"
)

// quiet is where servers put what they have to say about clients that misbehave.
var quiet = log.New(io.Discard, "", 0)
