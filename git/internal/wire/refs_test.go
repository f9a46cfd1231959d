package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate-io/headgate/git/internal/wire"
	"github.com/headgate-io/headgate/internal/testenv/measure"
)

// metered counts the requests of a client, and the bytes it reads.
type metered struct{ requests, bytes atomic.Int64 }

func (m *metered) client() *http.Client {
	return &http.Client{Transport: &meteredTransport{m, &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &meteredConn{c, m}, err
		},
	}}}
}

type meteredTransport struct {
	m *metered
	*http.Transport
}

func (t *meteredTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.m.requests.Add(1)
	return t.Transport.RoundTrip(r)
}

type meteredConn struct {
	net.Conn
	m *metered
}

func (c *meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.m.bytes.Add(int64(n))
	return n, err
}

// The branch release beside 10,000 branches release-… costs two requests and
// 8 KB, although ref-prefix cannot tell them apart.
func TestUnchangedIsCheap(t *testing.T) {
	repo := newRepo(t)
	tip := repo.commits[2].String()
	packed := &strings.Builder{}
	fmt.Fprintln(packed, "# pack-refs with: peeled fully-peeled sorted ")
	fmt.Fprintf(packed, "%s refs/heads/main\n%s refs/heads/release\n", tip, tip)
	for i := range 10_000 {
		fmt.Fprintf(packed, "%s refs/heads/release-%05d\n", tip, i)
	}
	if err := os.WriteFile(filepath.Join(repo.bare(), "packed-refs"), []byte(packed.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	_, u := serve(t, backend(t, repo.dir))
	m := &metered{}
	client := m.client()
	defer client.CloseIdleConnections()
	r := open(t, wire.HTTP(client, u))
	refs, err := r.Refs(context.Background(), true, "refs/heads/release")
	if err != nil || len(refs) != 1 || refs[0].ID != repo.commits[2] {
		t.Fatalf("%v, %v", refs, err)
	}
	if m.requests.Load() > 2 || m.bytes.Load() > 8<<10 {
		t.Errorf("%d requests, %d bytes", m.requests.Load(), m.bytes.Load())
	}
	t.Logf("%d requests, %d bytes", m.requests.Load(), m.bytes.Load())

	key := newKey(t, "ed25519")
	s := (&sshServer{dir: repo.dir, env: true}).start(t, key.signer.PublicKey(), "ed25519")
	r, err = s.dial(t, wire.SSHConfig{Identity: key.pem, KnownHosts: s.known(s.keys...)})
	if err != nil {
		t.Fatal(err)
	}
	if refs, err = r.Refs(context.Background(), true, "refs/heads/release"); err != nil || len(refs) != 1 {
		t.Fatalf("%v, %v", refs, err)
	}
	fetch(t, r, wire.FetchRequest{Wants: ids(refs[0]), Depth: 1}) // in a second session
	if len(s.conns) != 1 || len(s.commands) != 2 {
		t.Errorf("%d connections, %d sessions", len(s.conns), len(s.commands))
	}
}

// A list of a million refs is read in the memory of those that match, whatever
// the version.
func TestMillionRefs(t *testing.T) {
	const n = 1_000_000
	var list []byte
	for i := range n {
		list = strconv.AppendInt(append(list, "0047"+ones+" refs/heads/branch-"...), int64(n+i), 10)
		list = append(list, '\n')
	}
	list = append(list, flush...)
	for version, greeting := range map[int]string{0: pkt(ones + " HEAD\x00x\n"), 2: greeting2} {
		var read []int64 // what is live at nine tenths of the list
		give := func(w http.ResponseWriter) {
			most := len(list) / 10 * 9
			w.Write(list[:most])
			read = append(read, measure.Live())
			w.Write(list[most:])
		}
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
				give(w)
				return
			}
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			io.WriteString(w, greeting)
			if version == 0 {
				give(w)
			}
		})
		client, u := serve(t, h)
		before := measure.Live()
		r := wire.New(wire.HTTP(client, u), "")
		defer r.Close()
		refs, err := r.Refs(context.Background(), false, "refs/heads/branch-1999")
		if err != nil || len(refs) != 1000 {
			t.Fatalf("version %d: %d refs, %v", version, len(refs), err)
		}
		if len(read) != 1 || read[0]-before > 16<<20 {
			t.Errorf("version %d: the heap grew from %d bytes to %d", version, before, read)
		}
		_, err = r.Refs(context.Background(), false)
		if !errors.Is(err, wire.ErrLimit) {
			t.Errorf("version %d: all refs: %v", version, err)
		}
	}
}

// Several questions to a version 0 server over one SSH connection.
func TestVersion0Again(t *testing.T) {
	repo := newRepo(t)
	key := newKey(t, "ed25519")
	s := (&sshServer{dir: repo.dir}).start(t, key.signer.PublicKey(), "ed25519")
	r, err := s.dial(t, wire.SSHConfig{Identity: key.pem, KnownHosts: s.known(s.keys...)})
	if err != nil {
		t.Fatal(err)
	}
	q := wire.FetchRequest{Wants: repo.commits[2:], Depth: 1}
	fetch(t, r, q) // without Refs before
	fetch(t, r, q)
	for range 2 {
		if refs, err := r.Refs(context.Background(), true, "HEAD"); err != nil || len(refs) != 1 {
			t.Errorf("%v, %v", refs, err)
		}
	}
	fetch(t, r, q)
	if len(s.conns) != 1 {
		t.Errorf("%d connections, want 1", len(s.conns))
	}
}
