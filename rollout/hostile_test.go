package rollout_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

// TestHostileAnswers calls hostile and broken servers. The timeout for answers that do not end is a second.
func TestHostileAnswers(t *testing.T) {
	megabyte, bomb := strings.Repeat("x", 1<<20), bomb()
	for name, test := range map[string]struct {
		answer    http.HandlerFunc
		status    int
		body      int // bytes
		truncated bool
		judged    rollout.Verdict
		says      string
	}{
		"exactly what is kept": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, megabyte[:rollout.MaxBody]) },
			200, rollout.MaxBody, false, rollout.Pass, ""},
		"one byte more": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, megabyte[:rollout.MaxBody+1]) },
			200, rollout.MaxBody, true, rollout.Pass, ""},
		"endless body": {endless, 200, rollout.MaxBody, true, rollout.Pass, ""},
		"endless body of a failure": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(403); endless(w, r) },
			403, rollout.MaxBody, true, rollout.Halt, "status 403: xxx"},
		"bomb": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(bomb)
		},
			200, rollout.MaxBody, true, rollout.Pass, ""},
		"no gzip": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			io.WriteString(w, "text")
		},
			200, 0, true, rollout.Halt, "status 200, then its body: "},
		"body that trickles": {func(w http.ResponseWriter, r *http.Request) { stall(w, r, 200) },
			200, 4, true, rollout.Halt, "no answer within 1s"},
		"body of a failure that trickles": {func(w http.ResponseWriter, r *http.Request) { stall(w, r, 403) },
			403, 4, true, rollout.Halt, "status 403: half"},
		"header that does not come": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			0, 0, false, rollout.Halt, "no answer within 1s"},
		"reset in mid body": {func(w http.ResponseWriter, _ *http.Request) {
			reset(w, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
		},
			200, 4, true, rollout.Halt, "status 200, then its body: "},
		"reset in the header": {func(w http.ResponseWriter, _ *http.Request) { reset(w, "HTTP/1.1 200 OK\r\nCont") },
			0, 0, false, rollout.Halt, ""},
		"header bomb": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", megabyte)
			w.WriteHeader(200)
		}, 0, 0, false, rollout.Halt, "header"},
		"other protocol": {func(w http.ResponseWriter, r *http.Request) {
			hold(w, r, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhello")
		}, 101, 0, false, rollout.Halt, "status 101"},
		"escapes": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			io.WriteString(w, "\x1b]0;owned\x07one\r\n\u202etwo\x00 https://user:pass@host/?token=secret")
		}, 500, 59, false, rollout.Halt, "status 500: one; \ufffdtwo\ufffd https://host/?token=***"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client has disconnected
				test.answer(w, r)
			}))
			defer srv.Close()
			defer srv.CloseClientConnections()
			timeout := time.Minute
			if strings.Contains(name, "trickles") || strings.Contains(name, "not come") {
				timeout = time.Second
			}
			var c rollout.Caller
			defer c.Close()
			answer, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: srv.URL, Timeout: rollout.Duration(timeout)}, small)
			for timeout < time.Minute && len(answer.Body) < test.body { // on a slow machine even the first half may miss the timeout
				answer, err = c.Call(t.Context(), rollout.Hook{Name: "a", URL: srv.URL, Timeout: rollout.Duration(timeout)}, small)
			}
			if answer.Status != test.status && test.status != 0 || len(answer.Body) != test.body || answer.Truncated != test.truncated {
				t.Errorf("got status %d, %d bytes, truncated %v: %v", answer.Status, len(answer.Body), answer.Truncated, err)
			}
			if got := rollout.HookRollout.Judge(err); got != test.judged {
				t.Errorf("judged %s: %v", got, err)
			}
			if err != nil && (!strings.Contains(err.Error(), test.says) || len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\x1b\r\n\x00\u202e")) {
				t.Errorf("error %q", err)
			}
		})
	}
}

func endless(w http.ResponseWriter, r *http.Request) {
	part := []byte(strings.Repeat("x", 32<<10))
	for r.Context().Err() == nil {
		if _, err := w.Write(part); err != nil {
			return
		}
	}
}

// stall sends half of a body and waits until the client disconnects.
func stall(w http.ResponseWriter, r *http.Request, status int) {
	w.WriteHeader(status)
	io.WriteString(w, "half")
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// reset sends text and resets the connection.
func reset(w http.ResponseWriter, text string) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	io.WriteString(conn, text)
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

// hold sends text and keeps the connection open until the client closes it.
func hold(w http.ResponseWriter, _ *http.Request, text string) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	io.WriteString(conn, text)
	io.Copy(io.Discard, conn)
	conn.Close()
}

// bomb returns 64 MiB, compressed to few bytes.
func bomb() []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	part := make([]byte, 1<<20)
	for range 64 {
		w.Write(part)
	}
	w.Close()
	return out.Bytes()
}
