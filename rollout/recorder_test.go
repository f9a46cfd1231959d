package rollout_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A recorder is a server that keeps requests as they came, byte for byte.
type recorder struct {
	URL    string
	answer func(n int) string // the answer to the request with number n, from 0 on, as it is sent; it hangs up after one with Connection: close, or ""

	mu       sync.Mutex
	requests []string
	conns    int
}

// record runs a recorder until the test ends.
func record(t *testing.T, answer func(n int) string) *recorder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{URL: "http://" + l.Addr().String(), answer: answer}
	var all sync.WaitGroup
	open := map[net.Conn]bool{}
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.conns++
			open[conn] = true
			r.mu.Unlock()
			all.Go(func() { r.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		r.mu.Lock()
		for conn := range open {
			conn.Close()
		}
		r.mu.Unlock()
		all.Wait()
	})
	return r
}

func (r *recorder) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		request, err := readRaw(in)
		if err != nil {
			return
		}
		r.mu.Lock()
		n := len(r.requests)
		r.requests = append(r.requests, request)
		r.mu.Unlock()
		answer := r.answer(n)
		if answer == "" {
			return
		}
		if _, err := io.WriteString(conn, answer); err != nil || strings.Contains(answer, "Connection: close") {
			return
		}
	}
}

// readRaw reads a request with a Content-Length.
func readRaw(in *bufio.Reader) (string, error) {
	var text strings.Builder
	length := 0
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return "", err
		}
		text.WriteString(line)
		if value, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return "", err
			}
		}
		if line == "\r\n" {
			break
		}
	}
	_, err := io.CopyN(&text, in, int64(length))
	return text.String(), err
}

// seen returns the requests so far, and how many connections they came by.
func (r *recorder) seen() ([]string, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests, r.conns
}

// reply is an answer with a body.
func reply(status int, body string, headers ...string) string {
	text := fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: %d\r\n", status, len(body))
	for _, h := range headers {
		text += h + "\r\n"
	}
	return text + "\r\n" + body
}

// always answers each request alike.
func always(answer string) func(int) string { return func(int) string { return answer } }

// inTurn answers with one after the other, and with the last for ever.
func inTurn(answers ...string) func(int) string {
	return func(n int) string { return answers[min(n, len(answers)-1)] }
}
