package wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/crypto/ssh"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/wire"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
)

// serve starts a server that is closed when the test ends.
func serve(t testing.TB, h http.Handler) (*http.Client, *url.URL) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Client(), testenv.URL(t, s.URL+"/repo.git")
}

// An sshServer is an ssh server with the configuration of a client that may log in.
type sshServer struct {
	*testenv.SSHServer
	config wire.SSHConfig
	dials  int
}

func serveSSH(t testing.TB, c testenv.SSHConfig, repo *testenv.Repo) *sshServer {
	t.Helper()
	identity, public := testenv.UserKey(t, "")
	if c.Users == nil {
		c.Users = []ssh.PublicKey{public}
	}
	s := &sshServer{SSHServer: testenv.ServeSSH(t, c, map[string]*testenv.Repo{"repo.git": repo})}
	s.config = wire.SSHConfig{Identity: identity, KnownHosts: s.KnownHosts(false)}
	return s
}

// to returns a transport to a repository of the server.
func (s *sshServer) to(t testing.TB, path string) wire.Transport {
	t.Helper()
	return wire.SSH(s.config, testenv.URL(t, "ssh://"+s.Addr+path))
}

// program returns a program that writes to standard output and standard error, and
// exits.
func program(out, complaint string, status uint32) func(ssh.Channel) uint32 {
	return func(ch ssh.Channel) uint32 {
		io.WriteString(ch, out)
		io.WriteString(ch.Stderr(), complaint)
		return status
	}
}

// dial requests the greeting of the repository that tr leads to.
func dial(ctx context.Context, tr wire.Transport) (*wire.Remote, error) {
	r := wire.New(tr, "")
	if err := r.Greet(ctx, false); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func open(t testing.TB, tr wire.Transport) *wire.Remote {
	t.Helper()
	r, err := dial(context.Background(), tr)
	must(t, err)
	t.Cleanup(r.Close)
	return r
}

func id(t testing.TB, hex string) object.ID {
	t.Helper()
	id, err := object.ParseID(hex)
	must(t, err)
	return id
}

const (
	zeros = "0000000000000000000000000000000000000000"
	ones  = "1111111111111111111111111111111111111111"
	caps2 = "version 2\nagent=x\nls-refs=unborn\nfetch=shallow filter\nserver-option\nobject-format=sha1"
	flush = "0000"
	delim = "0001"
)

// pkt returns each line of s as a pkt-line.
func pkt(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		fmt.Fprintf(&b, "%04x%s", len(line)+4, line)
	}
	return b.String()
}

// band returns b as a pkt-line of a band.
func band(n byte, b string) string { return fmt.Sprintf("%04x%c%s", len(b)+5, n, b) }

var (
	greeting2 = pkt(caps2) + flush
	mainOnly  = pkt(ones+" refs/heads/main\n") + flush // a list of refs
)

// A scriptedServer is a server that answers with fixed texts. After an answer that ends in
// stall it waits until the client disconnects.
type scriptedServer struct {
	greeting, refs, fetch string
	stalled               chan struct{}
}

const stall = "STALL"

func (s *scriptedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, kind := s.greeting, "advertisement"
	if r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		text, kind = s.answer(body), "result"
	}
	w.Header().Set("Content-Type", "application/x-git-upload-pack-"+kind)
	text, stalls := strings.CutSuffix(text, stall)
	if stalls && text == "" { // not even the status
		s.stalled <- struct{}{}
		<-r.Context().Done()
		return
	}
	io.WriteString(w, text)
	if stalls {
		w.(http.Flusher).Flush()
		s.stalled <- struct{}{}
		<-r.Context().Done()
	}
}

func (s *scriptedServer) answer(request []byte) string {
	if bytes.Contains(request, []byte("command=ls-refs")) {
		return s.refs
	}
	return s.fetch
}

// readAll reads r byte by byte.
func readAll(r io.Reader) ([]byte, error) { return io.ReadAll(iotest.OneByteReader(r)) }

// runSSH plays the scriptedServer (or leave: "script" is a word there) in a session, where requests end in a flush.
func (s *scriptedServer) runSSH(ch ssh.Channel) uint32 {
	text, stalls := strings.CutSuffix(s.greeting, stall)
	io.WriteString(ch, text)
	if stalls {
		s.stalled <- struct{}{}
		io.Copy(io.Discard, ch)
		return 1
	}
	request := make([]byte, 1<<16)
	n, err := ch.Read(request)
	if err != nil {
		return 0
	}
	s.greeting = s.answer(request[:n])
	return s.runSSH(ch)
}

var must = testenv.Must

// A stallTest is a test of a server that stops answering. It signals at that point, and
// the test then cancels the context.
type stallTest struct {
	name      string
	phase     wire.Phase
	transport func(t *testing.T, at chan struct{}) wire.Transport
}

func TestStalls(t *testing.T) {
	good := pkt(ones+" refs/heads/main\n") + flush
	version0 := pkt(ones + " HEAD\x00shallow side-band-64k\n")
	scripts := []struct {
		name  string
		phase wire.Phase
		s     scriptedServer
	}{
		{"before the greeting", wire.Advertisement, scriptedServer{greeting: stall}},
		{"in the greeting", wire.Advertisement, scriptedServer{greeting: pkt(caps2) + stall}},
		{"before the refs", wire.LsRefs, scriptedServer{greeting: greeting2, refs: stall}},
		{"in the refs", wire.LsRefs, scriptedServer{greeting: greeting2, refs: pkt(ones+" refs/heads/main\n") + stall}},
		{"in the refs of version 0", wire.LsRefs, scriptedServer{greeting: version0 + stall}},
		{"before the fetch", wire.Fetch, scriptedServer{greeting: greeting2, refs: good, fetch: stall}},
		{"before the pack", wire.Fetch, scriptedServer{greeting: greeting2, refs: good, fetch: pkt("shallow-info\n") + stall}},
		{"in the pack", wire.Pack, scriptedServer{greeting: greeting2, refs: good, fetch: pkt("packfile\n") + "0100\x01PACK" + stall}},
		{"before the end of the pack", wire.Pack, scriptedServer{greeting: greeting2, refs: good, fetch: pkt("packfile\n") + band(1, "PACK") + stall}},
	}
	tests := []stallTest{
		{"http: dial", wire.Dial, func(t *testing.T, at chan struct{}) wire.Transport {
			c := &http.Client{Transport: &http.Transport{DialContext: stalledDial(at)}}
			return wire.HTTP(c, &url.URL{Scheme: "http", Host: "h", Path: "/p"})
		}},
		{"https: handshake", wire.Handshake, func(t *testing.T, at chan struct{}) wire.Transport {
			c := &http.Client{Transport: &http.Transport{}}
			return wire.HTTP(c, &url.URL{Scheme: "https", Host: silentServer(t, at), Path: "/p"})
		}},
		{"ssh: dial", wire.Dial, func(t *testing.T, at chan struct{}) wire.Transport {
			return wire.SSH(wire.SSHConfig{KnownHosts: anyHost(t), Dial: stalledDial(at)}, &url.URL{Scheme: "ssh", Host: "h", Path: "/p"})
		}},
		{"ssh: handshake", wire.Handshake, func(t *testing.T, at chan struct{}) wire.Transport {
			return wire.SSH(wire.SSHConfig{KnownHosts: anyHost(t)}, &url.URL{Scheme: "ssh", Host: silentServer(t, at), Path: "/p"})
		}},
		{"ssh: session", wire.Advertisement, func(t *testing.T, at chan struct{}) wire.Transport {
			return serveSSH(t, testenv.SSHConfig{Ignore: func() { at <- struct{}{} }}, nil).to(t, "/p")
		}},
		{"ssh: end without exit status", wire.Advertisement, func(t *testing.T, at chan struct{}) wire.Transport {
			return serveSSH(t, testenv.SSHConfig{Run: func(ch ssh.Channel) uint32 {
				ch.CloseWrite()
				at <- struct{}{}
				io.Copy(io.Discard, ch)
				return 1
			}}, nil).to(t, "/p")
		}},
	}
	for _, s := range scripts {
		tests = append(tests, stallTest{"http: " + s.name, s.phase, func(t *testing.T, at chan struct{}) wire.Transport {
			s.s.stalled = at
			client, u := serve(t, &s.s)
			return wire.HTTP(client, u)
		}}, stallTest{"ssh: " + s.name, s.phase, func(t *testing.T, at chan struct{}) wire.Transport {
			s.s.stalled = at
			return serveSSH(t, testenv.SSHConfig{Run: s.s.runSSH}, nil).to(t, "/p")
		}})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			at := make(chan struct{}, 1)
			tr := tt.transport(t, at)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			reached := make(chan struct{})
			go func() { <-at; <-reached; cancel() }()
			err := runAllPhases(ctx, tr, func(p wire.Phase) {
				if p == tt.phase || p == wire.Advertisement && (tt.phase == wire.Dial || tt.phase == wire.Handshake) {
					close(reached)
				}
			})
			e, ok := errors.AsType[*wire.Error](err)
			if ok && strings.HasSuffix(tt.name, "version 0") && e.Phase == wire.Advertisement {
				e.Phase = wire.LsRefs // in version 0 one answer holds greeting and refs
			}
			if !ok || e.Phase != tt.phase || !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want the end of the context in phase %s", err, tt.phase)
			}
			measure.WaitGone(t, "internal/wire.", "ssh.NewClient")
		})
	}
}

// runAllPhases requests the greeting, the refs and a pack, and calls begin at the start
// of each phase.
func runAllPhases(ctx context.Context, tr wire.Transport, begin func(wire.Phase)) error {
	begin(wire.Advertisement)
	begin(wire.LsRefs)
	r := wire.New(tr, "")
	defer r.Close()
	if _, err := r.Refs(ctx, false); err != nil {
		return err
	}
	begin(wire.Fetch)
	want, _ := object.ParseID(ones)
	f, err := r.Fetch(ctx, wire.FetchRequest{Wants: []object.ID{want}, Depth: 1})
	if err != nil {
		return err
	}
	defer f.Close()
	begin(wire.Pack)
	_, err = io.Copy(io.Discard, f)
	return err
}

// anyHost returns a known_hosts that accepts one key for any host.
func anyHost(t *testing.T) []byte {
	_, public := testenv.UserKey(t, "")
	return []byte("* " + text(public))
}

func stalledDial(at chan struct{}) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		at <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
}

// silentServer returns the address of a server that never answers.
func silentServer(t *testing.T, at chan struct{}) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		c.Read(make([]byte, 1))
		at <- struct{}{}
		io.Copy(io.Discard, c)
		c.Close()
	}()
	return l.Addr().String()
}
