// Package remote has the tasks that other servers do: load tests of nGrinder
// (delegated-load) and processes of Concord (workflow).
//
// A task starts one, asks how it is going until it has ended, and ends it when
// its own context ends first. The rules:
//
//   - Only servers that the configuration allows are asked: see Servers. User
//     information in a URL is refused, its path is kept.
//   - No address is connected to at which a machine is told about itself, nor
//     one of its own link, unless that very address is allowed; nor one of this
//     machine for a name that only a pattern allows.
//   - Nobody else sees credentials: a redirect is followed only on the same
//     origin, and only for what reads.
//   - An answer counts when its status is 200 to 299 and its JSON says what it
//     should. 401, 403 and 404 end a task. Other failures to tell how it is going
//     are borne for a minute and at least three times in a row.
//   - A request takes at most 60 s, its answer 1 MiB with 64 KiB of header, the
//     request that ends what was started 10 s.
//   - Connections end with the task.
//
// What a task writes is for people: what was started, each change of its state,
// where its result is. Neither that nor an error has a secret in it, and what
// servers say is shortened, without control characters.
package remote

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"net/url"

	"github.com/headgate-io/headgate/rollout/tester/run"
)

// Servers say which servers may be asked, and with which credentials. It is not
// changed while tasks are made or run. A copy is as good.
type Servers struct {
	// Hosts are HOST or HOST:PORT that may be asked, *.DOMAIN for all below it,
	// with any scheme; nil for none but the origins of the next two, each for
	// its own type.
	Hosts      []string
	LoadURL    string // base URL of nGrinder when metadata names none
	ProcessURL string // base URL of Concord when metadata names none
	Keys       string // directory of API keys and passwords, one file each; "" for none

	Proxy func(*http.Request) (*url.URL, error) // as in http.Transport; nil for none. It looks up names itself, and is not judged
	TLS   *tls.Config                           // CAs and client certificate; nil for the system's CAs and none

	Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error) // addresses of a name; nil for the system's resolver
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)  // connects to an address that may be asked; nil for a net.Dialer
}

// NGrinder returns the task of metadata of type ngrinder, and the secrets that it
// uses, to be masked, with an error too. That is about metadata (reference A.5, A.7):
//
//	server        base URL; LoadURL when absent
//	clone         number of the test to clone and start
//	username      of the account
//	passwd        its password in base64
//	passwdFrom    instead of it, the name of a file in Keys that holds the password
//	pollInterval  between questions how it is going: seconds or a duration, default 1s, at least 100ms
func (s *Servers) NGrinder(metadata map[string]string) (task run.Task, secrets []string, err error) {
	t, secrets, err := s.ngrinder(metadata)
	if err != nil {
		return nil, secrets, safe(err, secrets)
	}
	return t, secrets, nil
}

// Concord returns the task of metadata of type concord, and the secrets that it
// uses, to be masked, with an error too. That is about metadata (reference A.5, A.7):
//
//	server        base URL; ProcessURL when absent
//	org, project, repo, entrypoint
//	              of the process
//	apiKeyPath    name of the file in Keys that holds the API key, or its absolute path
//	endpoint      argument of the process: what it is to test
//	arguments.K   argument K of the process
//	pollInterval  between questions how it is going: seconds or a duration, default 5s, at least 100ms
//	pollTimeout   how long the process may take, default 30s
func (s *Servers) Concord(metadata map[string]string) (task run.Task, secrets []string, err error) {
	t, secrets, err := s.concord(metadata)
	if err != nil {
		return nil, secrets, safe(err, secrets)
	}
	return t, secrets, nil
}
