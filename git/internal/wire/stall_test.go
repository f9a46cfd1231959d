package wire_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/wire"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
)

// A stalled server says where it stops answering; then the context is cancelled.
type stalled struct {
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
		s     script
	}{
		{"before the greeting", wire.Advertisement, script{greeting: stall}},
		{"in the greeting", wire.Advertisement, script{greeting: pkt(caps2) + stall}},
		{"before the refs", wire.LsRefs, script{greeting: greeting2, refs: stall}},
		{"in the refs", wire.LsRefs, script{greeting: greeting2, refs: pkt(ones+" refs/heads/main\n") + stall}},
		{"in the refs of version 0", wire.LsRefs, script{greeting: version0 + stall}},
		{"before the fetch", wire.Fetch, script{greeting: greeting2, refs: good, fetch: stall}},
		{"before the pack", wire.Fetch, script{greeting: greeting2, refs: good, fetch: pkt("shallow-info\n") + stall}},
		{"in the pack", wire.Pack, script{greeting: greeting2, refs: good, fetch: pkt("packfile\n") + "0100\x01PACK" + stall}},
		{"before the end of the pack", wire.Pack, script{greeting: greeting2, refs: good, fetch: pkt("packfile\n") + band(1, "PACK") + stall}},
	}
	tests := []stalled{
		{"http: dial", wire.Dial, func(t *testing.T, at chan struct{}) wire.Transport {
			c := &http.Client{Transport: &http.Transport{DialContext: stalledDial(at)}}
			return wire.HTTP(c, &url.URL{Scheme: "http", Host: "h", Path: "/p"})
		}},
		{"https: handshake", wire.Handshake, func(t *testing.T, at chan struct{}) wire.Transport {
			c := &http.Client{Transport: &http.Transport{}}
			return wire.HTTP(c, &url.URL{Scheme: "https", Host: silent(t, at), Path: "/p"})
		}},
		{"ssh: dial", wire.Dial, func(t *testing.T, at chan struct{}) wire.Transport {
			return wire.SSH(wire.SSHConfig{KnownHosts: anyHost(t), Dial: stalledDial(at)}, &url.URL{Scheme: "ssh", Host: "h", Path: "/p"})
		}},
		{"ssh: handshake", wire.Handshake, func(t *testing.T, at chan struct{}) wire.Transport {
			return wire.SSH(wire.SSHConfig{KnownHosts: anyHost(t)}, &url.URL{Scheme: "ssh", Host: silent(t, at), Path: "/p"})
		}},
		{"ssh: session", wire.Advertisement, func(t *testing.T, at chan struct{}) wire.Transport {
			return serveSSH(t, testenv.SSH{Ignore: func() { at <- struct{}{} }}, nil).to(t, "/p")
		}},
		{"ssh: end without exit status", wire.Advertisement, func(t *testing.T, at chan struct{}) wire.Transport {
			return serveSSH(t, testenv.SSH{Run: func(ch ssh.Channel) uint32 {
				ch.CloseWrite()
				at <- struct{}{}
				io.Copy(io.Discard, ch)
				return 1
			}}, nil).to(t, "/p")
		}},
	}
	for _, s := range scripts {
		tests = append(tests, stalled{"http: " + s.name, s.phase, func(t *testing.T, at chan struct{}) wire.Transport {
			s.s.stalled = at
			client, u := serve(t, &s.s)
			return wire.HTTP(client, u)
		}}, stalled{"ssh: " + s.name, s.phase, func(t *testing.T, at chan struct{}) wire.Transport {
			s.s.stalled = at
			return serveSSH(t, testenv.SSH{Run: s.s.runSSH}, nil).to(t, "/p")
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
			err := everything(ctx, tr, func(p wire.Phase) {
				if p == tt.phase || p == wire.Advertisement && (tt.phase == wire.Dial || tt.phase == wire.Handshake) {
					close(reached)
				}
			})
			e, ok := errors.AsType[*wire.Error](err)
			if ok && strings.HasSuffix(tt.name, "version 0") && e.Phase == wire.Advertisement {
				e.Phase = wire.LsRefs // one answer holds both
			}
			if !ok || e.Phase != tt.phase || !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want the end of the context in phase %s", err, tt.phase)
			}
			measure.WaitGone(t, "internal/wire.", "ssh.NewClient")
		})
	}
}

// everything opens, lists and fetches, and says so at the start of each phase.
func everything(ctx context.Context, tr wire.Transport, begin func(wire.Phase)) error {
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

// anyHost is a known_hosts that accepts one key of any host.
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

// silent listens, and never answers.
func silent(t *testing.T, at chan struct{}) string {
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

// A deadline is reported as such, and a finished Open does not depend on its context.
func TestDeadline(t *testing.T) {
	at := make(chan struct{}, 1)
	client, u := serve(t, &script{greeting: pkt(ones+" HEAD\x00x\n") + flush, stalled: at})
	ctx, cancel := context.WithCancel(context.Background())
	r, err := dial(ctx, wire.HTTP(client, u))
	must(t, err)
	defer r.Close()
	cancel()
	if refs, err := r.Refs(context.Background(), false); err != nil || len(refs) != 1 {
		t.Errorf("%v, %v", refs, err)
	}
	past, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancel()
	if _, err := r.Refs(past, false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if _, err := dial(past, wire.HTTP(client, u)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
