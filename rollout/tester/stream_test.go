package tester_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// get sends a GET whose answer is read as it comes.
func get(t *testing.T, url string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// notices reads a stream of changes.
type notices struct{ lines *bufio.Scanner }

// next returns the next change; comments are passed over.
func (n notices) next(t *testing.T) (notice api.Notice) {
	t.Helper()
	for n.lines.Scan() {
		if data, is := strings.CutPrefix(n.lines.Text(), "data: "); is {
			if err := json.Unmarshal([]byte(data), &notice); err != nil {
				t.Fatal(err)
			}
			return notice
		}
	}
	t.Fatal("the stream has ended")
	return notice
}

func TestWatch(t *testing.T) {
	s := newServer(t)
	s.Guard = guard(t, wireCallers)
	url := "http://" + serve(t, s)
	resp := get(t, url+"/api/v1/watch", "Authorization", "Bearer team-token-0123456789")
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("Content-Type %s", kind)
	}
	changes := notices{bufio.NewScanner(resp.Body)}
	changes.lines.Scan() // the stream has begun
	all := []string{"Authorization", "Bearer all-of-it-0123456789"}
	mustPost(t, url+"/gate/traffic/open", payload("hidden", "{}"), all...)
	mustPost(t, url+"/gate/traffic/open", `{"name":"seen","namespace":"team-a"}`, all...)
	if g := changes.next(t).Gate; g == nil || g.Name != "seen" || !g.Open {
		t.Errorf("%+v", g)
	}
	mustPost(t, url, `{"name":"seen","namespace":"team-a","metadata":{"type":"bash","cmd":"echo secret output"}}`, all...)
	for {
		r := changes.next(t).Run
		if r == nil || r.Name != "seen" || r.Output != "" || !strings.HasPrefix(r.URL, url+"/ui/#/runs/") {
			t.Fatalf("%+v", r)
		}
		if r.State == api.Succeeded {
			break
		}
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Errorf("the stream does not end well: %v", err)
	}
}

// TestOutput follows a run that waits until what it wrote was read.
func TestOutput(t *testing.T) {
	s := newServer(t)
	url := "http://" + serve(t, s)
	gate := filepath.Join(t.TempDir(), "gate")
	mustPost(t, url, payload("followed", fmt.Sprintf(`{"cmd":"echo one; until [ -e %s ]; do sleep 0.05; done; echo two"}`, gate)))
	r := until(t, s, "followed", is(api.Running))
	resp := get(t, url+"/api/v1/runs/"+r.ID+"/output?follow=true")
	if kind := resp.Header.Get("Content-Type"); kind != "text/plain; charset=utf-8" || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("Content-Type %s", kind)
	}
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || lines.Text() != "one" {
		t.Fatalf("%q", lines.Text())
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != "two" || lines.Scan() || lines.Err() != nil {
		t.Errorf("%q %v", lines.Text(), lines.Err())
	}
	text, err := io.ReadAll(get(t, url+"/api/v1/runs/"+r.ID+"/output").Body)
	if err != nil || string(text) != "one\ntwo\n" {
		t.Errorf("%q %v", text, err)
	}
}

// TestReaderThatReadsNothing holds up no run, and no change.
func TestReaderThatReadsNothing(t *testing.T) {
	s := newServer(t)
	address := serve(t, s)
	url := "http://" + address
	gate := filepath.Join(t.TempDir(), "gate")
	mustPost(t, url, payload("loud", fmt.Sprintf(`{"cmd":"until [ -e %s ]; do sleep 0.05; done; head -c 20000000 /dev/zero | tr '\\0' x"}`, gate)))
	r := until(t, s, "loud", is(api.Running))
	for _, path := range []string{"/api/v1/runs/" + r.ID + "/output?follow=true", "/api/v1/watch"} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, address)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if ended := until(t, s, "loud", is(api.Succeeded)); ended.Bytes != 20000000 {
		t.Errorf("%d bytes", ended.Bytes)
	}
	for i := range 1000 {
		if status, text := mustPost(t, fmt.Sprintf("%s/gate/g%d/open", url, i%10), payload("loud", "{}")); status != http.StatusAccepted {
			t.Fatal(status, text)
		}
	}
}

func TestCancel(t *testing.T) {
	s := newServer(t)
	url := "http://" + serve(t, s)
	answered := make(chan string, 1)
	go func() {
		status, text := mustPost(t, url, payload("cancelled", `{"type":"bash","cmd":"sleep 60"}`))
		answered <- fmt.Sprint(status, " ", text)
	}()
	r := until(t, s, "cancelled", is(api.Running))
	status, text := mustPost(t, url+"/api/v1/runs/"+r.ID+"/cancel", "")
	if status != http.StatusOK || !strings.Contains(text, `"state":"cancelled"`) {
		t.Errorf("%d %s", status, text)
	}
	if text := <-answered; !strings.HasPrefix(text, "422 command sleep 60 failed: : cancelled") {
		t.Errorf("%q", text)
	}
}
