package tester_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

// TestLaunchEndsWithItsCallers has a k6 run that is waited for end when the last
// of its callers leaves, and not before.
func TestLaunchEndsWithItsCallers(t *testing.T) {
	shared := make(chan struct{}, 1)
	s := newServerOf(t, run.Config{Observe: func(_ api.Run, again bool) {
		if again {
			shared <- struct{}{}
		}
	}})
	handler, served := s.Handler(), make(chan struct{}, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
		served <- struct{}{}
	}))
	defer server.Close()
	url := server.URL + "/launch-test"
	body := payload("left", `{"script":"linger"}`)
	type caller struct {
		leave context.CancelFunc
		gone  chan error
	}
	enter := func() caller {
		ctx, leave := context.WithCancel(t.Context())
		c := caller{leave, make(chan error, 1)}
		go func() {
			_, _, err := post(t, ctx, url, body)
			c.gone <- err
		}()
		return c
	}
	first := enter()
	r := until(t, s, "left", is(api.Running))
	second := enter()
	<-shared
	first.leave()
	<-first.gone
	<-served
	if now, _ := s.Runs.Run(r.ID); now.State != api.Running {
		t.Errorf("the run is %s", now.State)
	}
	second.leave()
	<-second.gone
	if ended := until(t, s, "left", is(api.Cancelled)); ended.ID != r.ID || !strings.Contains(ended.Reason, "caller") {
		t.Errorf("%+v", ended)
	}
}

// TestLaunchIsBusy answers 429 with the time to try again after.
func TestLaunchIsBusy(t *testing.T) {
	s := newServerOf(t, run.Config{Concurrency: 1, Queue: -1})
	url := "http://" + serve(t, s)
	if status, text := mustPost(t, url+"/launch-test", payload("other", `{"script":"pass"}`)); status != http.StatusOK {
		t.Fatal(status, text)
	}
	mustPost(t, url, payload("busy", `{"cmd":"sleep 60"}`))
	for path, test := range map[string]struct{ body, after string }{
		"/launch-test": {payload("other", `{"script":"pass"}`), "1"}, // as the one before
		"/":            {payload("other", `{"type":"bash","cmd":"true"}`), "5"},
	} {
		resp, err := http.Post(url+path, "application/json", strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != test.after {
			t.Errorf("%s: %d %q", path, resp.StatusCode, resp.Header.Get("Retry-After"))
		}
	}
}
