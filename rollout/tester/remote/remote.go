// Package remote implements the tasks that run on other servers: load tests of nGrinder
// (delegated-load) and processes of Concord (workflow).
//
// A task starts a test or a process, polls its state until it has ended, and stops it if
// the context of the task ends first. The rules:
//
//   - A task calls only servers that the configuration allows: see [Servers]. User
//     information in a URL is refused; its path is kept.
//   - A task does not connect to the metadata services of clouds, nor to link-local
//     addresses, unless that very address is allowed; nor to a loopback address for a
//     name that only a pattern allows.
//   - Credentials are sent to no other server: redirects are followed only within the
//     origin, and only for GET requests.
//   - A request succeeds if the status is 200 to 299 and the JSON has the expected form.
//     401, 403 and 404 end a task. Other failures to poll the state are tolerated until
//     they have lasted for a minute, with at least three in a row.
//   - A request takes at most 60 s, the request that stops a test or process 10 s. An
//     answer has at most 1 MiB, and its header 64 KiB.
//   - Connections are closed with the task.
//
// The output of a task is for people: what it started, each change of the state, and where
// the result is. Output and errors contain no secrets; text from servers in them is
// shortened, and without control characters.
package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate-io/headgate/internal/origin"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/internal/zone"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

// Servers says which servers may be called, and with which credentials. It must not be
// modified while tasks are made or run. It may be copied.
type Servers struct {
	// Hosts lists each HOST or HOST:PORT that may be called, with any scheme; *.DOMAIN
	// allows all hosts below DOMAIN. The origins of LoadURL and ProcessURL are always
	// allowed, each for its own type.
	Hosts      []string
	LoadURL    string // base URL of nGrinder when metadata names none
	ProcessURL string // base URL of Concord when metadata names none
	Keys       string // directory of API keys and passwords, one file each; "" for none

	Proxy func(*http.Request) (*url.URL, error) // as in http.Transport; nil for none. The proxy looks up names: no addresses are checked then

	Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error) // addresses of a name; nil for the system's resolver
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)  // connects to an allowed address; nil for a net.Dialer
}

// NGrinder returns the task that metadata of type ngrinder describes, and the secrets to
// mask, also with an error. An error is about metadata (reference A.5, A.7):
//
//	server        base URL; LoadURL when absent
//	clone         number of the test to clone and start
//	username      of the account
//	passwd        its password in base64
//	passwdFrom    instead of passwd, the name of a file in Keys that holds the password
//	pollInterval  interval at which the state is polled: seconds or a duration, default 1s, at least 100ms
func (s *Servers) NGrinder(metadata map[string]string) (task run.Task, secrets []string, err error) {
	t, err := s.nGrinderJob(metadata)
	return t.asTask(err)
}

// Concord returns the task that metadata of type concord describes, and the secrets to
// mask, also with an error. An error is about metadata (reference A.5, A.7):
//
//	server        base URL; ProcessURL when absent
//	org, project, repo, entrypoint
//	              of the process
//	apiKeyPath    name of the file in Keys that holds the API key, or its absolute path
//	endpoint      argument of the process: what it is to test
//	arguments.K   argument K of the process
//	pollInterval  interval at which the state is polled: seconds or a duration, default 5s, at least 100ms
//	pollTimeout   how long the process may take, default 30s
func (s *Servers) Concord(metadata map[string]string) (task run.Task, secrets []string, err error) {
	t, err := s.concordJob(metadata)
	return t.asTask(err)
}

// A server is a server that may be called.
type server struct {
	url *url.URL // base

	// How the host was allowed tells which of its addresses may be connected to.
	literal bool // by its address
	pattern bool // by a pattern alone
}

// parse reads the URL of a server.
func parse(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("it cannot be read") // the cause quotes the text, which may have a password
	case u.User != nil:
		return nil, fmt.Errorf("it has user information: use the keys for credentials")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("it must begin with http:// or https://")
	case u.Hostname() == "":
		return nil, fmt.Errorf("it has no host")
	case strings.Contains(u.Hostname(), "%"):
		return nil, fmt.Errorf("it has an address with a zone")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return nil, fmt.Errorf("it has a query or a fragment")
	}
	return u, nil
}

// server returns the server with the URL text, or with the configured URL if text is "". The
// error says that the URL is invalid or that its host may not be called.
func (s *Servers) server(text, configured string) (server, error) {
	u, err := parse(cmp.Or(text, configured))
	if err != nil {
		return server{}, err
	}
	host := zone.NormalizeHost(u.Hostname())
	ip, err := netip.ParseAddr(host)
	to := server{url: u, literal: err == nil}
	if ownURL, err := parse(configured); err == nil && origin.Of(ownURL) == origin.Of(u) {
		return to, nil
	}
	for _, entry := range s.Hosts {
		name, port, err := net.SplitHostPort(entry)
		if err != nil {
			name, port = entry, ""
		}
		name = zone.NormalizeHost(strings.Trim(name, "[]"))
		if port != "" && !strings.HasSuffix(origin.Of(u), ":"+port) {
			continue
		}
		if other, err := netip.ParseAddr(name); name == host || err == nil && other == ip {
			to.pattern = false
			return to, nil
		}
		below, wild := strings.CutPrefix(name, "*.")
		to.pattern = to.pattern || wild && !to.literal && strings.HasSuffix(host, "."+below)
	}
	if !to.pattern {
		return server{}, fmt.Errorf("host %s is not one that may be asked: see --hosts", redact.Excerpt(u.Host, maxMessage))
	}
	return to, nil
}

// checkAddress returns an error if the task must not connect to this address of the server.
func (s server) checkAddress(ip netip.Addr) error {
	if s.literal || zone.Of(ip) != zone.Link || ip.Unmap().IsLoopback() && !s.pattern {
		return nil
	}
	return fmt.Errorf("address %s: %s has %s: allow that address itself if it is meant", ip, s.url.Hostname(), zone.Link)
}

// dialer returns a function that connects to a server, at allowed addresses only.
func (s *Servers) dialer(to server) func(ctx context.Context, network, address string) (net.Conn, error) {
	lookup, dial := s.Lookup, s.Dial
	if lookup == nil {
		lookup = net.DefaultResolver.LookupNetIP
	}
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		all := []netip.Addr{}
		if ip, err := netip.ParseAddr(host); err == nil {
			all = append(all, ip)
		} else if all, err = lookup(ctx, "ip", host); err != nil {
			return nil, err
		}
		err = fmt.Errorf("%s has no address", host)
		for _, ip := range all {
			if err = to.checkAddress(ip); err != nil {
				continue
			}
			var conn net.Conn
			if conn, err = dial(ctx, network, net.JoinHostPort(ip.Unmap().String(), port)); err == nil {
				return conn, nil
			}
		}
		return nil, err
	}
}

const maxKey = 16 << 10 // bytes of a file that holds a key

// readKey returns the content of a file in the directory of keys, without white space
// around it. The error is fs.ErrNotExist if there is no file of that name or path, or
// if the path leads out of the directory. Errors never contain content.
func (s *Servers) readKey(name string) (string, error) {
	if s.Keys == "" {
		return "", errors.New("there is no directory of keys: see --keys")
	}
	base, err := filepath.Abs(s.Keys)
	if err == nil {
		base, err = filepath.EvalSymlinks(base)
	}
	root, openErr := os.OpenRoot(base)
	if err != nil || openErr != nil {
		return "", errors.New("the directory of keys cannot be opened")
	}
	defer root.Close()
	if !filepath.IsAbs(name) {
		if !filepath.IsLocal(name) || name == "." || strings.ContainsAny(name, `/\`) {
			return "", errors.New("it is neither the name of a file in the directory of keys nor a path to one")
		}
		name = filepath.Join(base, name)
	}
	if name, err = filepath.EvalSymlinks(name); err == nil { // the files of a mounted Secret are symbolic links
		name, err = filepath.Rel(base, name)
	}
	if err != nil {
		return "", fs.ErrNotExist
	}
	info, err := root.Stat(name)
	if err != nil || !info.Mode().IsRegular() { // opening a pipe would block
		return "", fs.ErrNotExist
	}
	var text []byte // stays empty for a file that is too long
	if info.Size() <= maxKey {
		text, err = root.ReadFile(name)
	}
	if err != nil {
		return "", errors.New("the file of the key cannot be read")
	}
	key := strings.TrimSpace(string(text))
	if key == "" || strings.ContainsFunc(key, isControl) {
		return "", errors.New("the file of the key must hold one line of at most 16 KiB, without control characters")
	}
	return key, nil
}

// isControl reports whether r would end or forge a line of a header.
func isControl(r rune) bool { return r < ' ' || r == 0x7f }
