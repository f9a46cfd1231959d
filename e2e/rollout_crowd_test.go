package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// A crowd sends requests without a pause until it is sent home.
type crowd struct {
	t       *testing.T
	client  *http.Client
	stop    chan struct{}
	members sync.WaitGroup
	sent    atomic.Int64
	mu      sync.Mutex
	faults  []string
}

// gather sends GET and POST requests, slow and fast ones, to a proxy.
func gather(t *testing.T, proxy string) *crowd {
	t.Helper()
	c := &crowd{t: t, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}, stop: make(chan struct{})}
	for i := range 12 {
		method, path := http.MethodGet, "/"
		if i%2 == 1 {
			method = http.MethodPost
		}
		if i < 4 {
			path = "/slow"
		}
		c.members.Go(func() {
			for {
				select {
				case <-c.stop:
					return
				default:
					c.ask(method, "http://"+proxy+path)
				}
			}
		})
	}
	t.Cleanup(c.home)
	return c
}

func (c *crowd) ask(method, url string) {
	fault := ""
	req, err := http.NewRequest(method, url, bytes.NewReader(make([]byte, 4<<10)))
	if err == nil {
		var resp *http.Response
		if resp, err = c.client.Do(req); err == nil {
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusOK || string(body) != "primary" && string(body) != "canary" {
				fault = fmt.Sprintf("%s %s: %s, %q, %v", method, url, resp.Status, body, err)
			}
		}
	}
	if err != nil {
		fault = err.Error()
	}
	c.sent.Add(1)
	if fault != "" {
		c.mu.Lock()
		c.faults = append(c.faults, fault)
		c.mu.Unlock()
	}
}

// home sends the crowd home; nothing that it asked for was lost.
func (c *crowd) home() {
	c.t.Helper()
	select {
	case <-c.stop:
		return
	default:
		close(c.stop)
	}
	c.members.Wait()
	c.client.CloseIdleConnections()
	c.t.Logf("%d requests, %d lost", c.sent.Load(), len(c.faults))
	if len(c.faults) > 0 || c.sent.Load() < 50 {
		c.t.Errorf("%d of %d requests were lost: %q", len(c.faults), c.sent.Load(), c.faults[:min(len(c.faults), 5)])
	}
}
