package answer_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/answer"
)

// A wire is a listener of one connection of this process.
type wire struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (w wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.conn:
		return c, nil
	case <-w.closed:
		return nil, net.ErrClosed
	}
}
func (w wire) Close() error   { close(w.closed); return nil }
func (w wire) Addr() net.Addr { return &net.TCPAddr{} }

// TestSlowReader has whoever is slow, and lives, get all of an answer, also by
// HTTP/2, where a deadline is of a stream and not of what a connection takes.
func TestSlowReader(t *testing.T) {
	const size, portion = 12 << 20, 64 << 10 // 3 minutes, with a portion a second
	for name, serve := range map[string]http.HandlerFunc{
		"file": func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "x.gz", time.Time{}, bytes.NewReader(make([]byte, size)))
		},
		"text": func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, size)) },
		"late": func(w http.ResponseWriter, _ *http.Request) {
			for range size / portion {
				w.Write(make([]byte, portion))
				time.Sleep(time.Second)
			}
		},
	} {
		for _, version := range []int{1, 2} {
			synctest.Test(t, func(t *testing.T) {
				var protocols http.Protocols
				protocols.SetHTTP1(version == 1)
				protocols.SetUnencryptedHTTP2(version == 2)
				l := wire{make(chan net.Conn), make(chan struct{})}
				s := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(answer.Writing(w), r) })}
				go s.Serve(l)
				defer s.Close()
				transport := &http.Transport{Protocols: &protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
					here, there := net.Pipe()
					l.conn <- there
					return here, nil
				}}
				defer transport.CloseIdleConnections()
				resp, err := (&http.Client{Transport: transport}).Get("http://slow.example/")
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				total := int64(0)
				for err == nil {
					var n int64
					n, err = io.CopyN(io.Discard, resp.Body, portion)
					total += n
					time.Sleep(time.Second)
				}
				if err != io.EOF || total != size || resp.ProtoMajor != version {
					t.Errorf("%s by HTTP/%d: %d of %d bytes, %v", name, resp.ProtoMajor, total, size, err)
				}
			})
		}
	}
}
