package answer_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
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

// TestFlushBeginsAnswer has what is flushed first be the beginning of an answer, which there is once.
func TestFlushBeginsAnswer(t *testing.T) {
	var status, before int
	var begun bool
	var log bytes.Buffer
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a := answer.Writing(w)
		a.Before = func(h http.Header) { before++; h.Set("X-Before", "yes") }
		out := answer.NewStream(a)
		out.Begin()
		status, begun = a.Status, answer.Begun(a)
		io.WriteString(out, "x")
		out.Close()
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(&log, nil), slog.LevelError)
	s.Start()
	r, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, r.Body)
	r.Body.Close()
	s.Close()
	if status != http.StatusOK || !begun || before != 1 || r.Header.Get("X-Before") != "yes" || log.Len() > 0 {
		t.Errorf("after the flush: status %d, begun %t, Before called %d times, header %v, log %s", status, begun, before, r.Header, &log)
	}
}
