package wire_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
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
)

// serve starts a server that ends with the test.
func serve(t testing.TB, h http.Handler) (*http.Client, *url.URL) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Client(), parse(t, s.URL+"/repo.git")
}

func parse(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	must(t, err)
	return u
}

// An sshServer is an ssh server, and what a client needs that may log in.
type sshServer struct {
	*testenv.SSHServer
	config wire.SSHConfig
	dials  int
}

func serveSSH(t testing.TB, c testenv.SSH, repo *testenv.Repo) *sshServer {
	t.Helper()
	identity, public := testenv.UserKey(t, "")
	if c.Users == nil {
		c.Users = []ssh.PublicKey{public}
	}
	s := &sshServer{SSHServer: testenv.ServeSSH(t, c, repo)}
	s.config = wire.SSHConfig{Identity: identity, KnownHosts: s.KnownHosts(false)}
	return s
}

// to leads to a repository of the server.
func (s *sshServer) to(t testing.TB, path string) wire.Transport {
	t.Helper()
	return wire.SSH(s.config, parse(t, "ssh://"+s.Addr+path))
}

// program is a program that answers, on standard output and standard error, and exits.
func program(out, complaint string, status uint32) func(ssh.Channel) uint32 {
	return func(ch ssh.Channel) uint32 {
		io.WriteString(ch, out)
		io.WriteString(ch.Stderr(), complaint)
		return status
	}
}

// dial greets the repository that tr leads to.
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

// pkt frames each line of s.
func pkt(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		fmt.Fprintf(&b, "%04x%s", len(line)+4, line)
	}
	return b.String()
}

// band frames b in a band.
func band(n byte, b string) string { return fmt.Sprintf("%04x%c%s", len(b)+5, n, b) }

var (
	greeting2 = pkt(caps2) + flush
	mainOnly  = pkt(ones+" refs/heads/main\n") + flush // a list of refs
)

// A script is a server that answers with fixed texts. After an answer that ends
// in stall it waits until the client is gone.
type script struct {
	greeting, refs, fetch string
	stalled               chan struct{}
}

const stall = "STALL"

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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

func (s *script) answer(request []byte) string {
	if bytes.Contains(request, []byte("command=ls-refs")) {
		return s.refs
	}
	return s.fetch
}

// readAll reads by single bytes.
func readAll(r io.Reader) ([]byte, error) { return io.ReadAll(iotest.OneByteReader(r)) }

// runSSH plays the script in a session, where requests end in a flush.
func (s *script) runSSH(ch ssh.Channel) uint32 {
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

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
