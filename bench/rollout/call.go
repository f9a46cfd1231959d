package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/headgate-io/headgate/rollout"
)

// These are the ways to call a webhook.
const (
	sharedClient = "shared"   // one Caller
	plain        = "plain"    // one client of net/http
	closedClient = "anew"     // a client for each call, closed after it
	leakedClient = "forsaken" // a client for each call, never closed, as in the reference
)

// A contestantReport holds the measurements of a contestant.
type contestantReport struct {
	Calls      int
	Took       time.Duration // time of all calls
	Opened     int           // number of opened connections
	Left       int           // connections still open at the end
	Goroutines int           // goroutines left at the end
}

const reportFile = "said.json"

func readReport(dir string) (s contestantReport, err error) {
	text, err := os.ReadFile(filepath.Join(dir, reportFile))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	return s, err
}

var payload = rollout.Payload{
	Name: "podinfo", Namespace: "test", Phase: rollout.Progressing, Checksum: rollout.Checksum("abc"),
	Metadata: map[string]string{"type": "cmd", "cmd": "hey -z 1m -q 10 -c 2 http://podinfo-canary.test:9898/"},
}

// call is the main function of a contestant, which makes its calls sequentially.
// Its arguments are the way, the URL, the number of calls, and the URL for the
// numbers of connections.
func call(ctx context.Context, args []string) error {
	way, url := args[0], args[1]
	times, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	before := runtime.NumGoroutine()
	var caller rollout.Caller
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
	post := func() error { return postWithNewClient(ctx, url, way == closedClient) }
	switch way {
	case sharedClient:
		post = func() error {
			_, err := caller.Call(ctx, rollout.Hook{Name: "load-test", URL: url, DisableTLS: true}, payload)
			return err
		}
	case plain:
		post = func() error {
			body, err := json.Marshal(payload)
			if err != nil {
				return err
			}
			resp, err := client.Post(url, "application/json", bytes.NewReader(body))
			if err != nil {
				return err
			}
			return read(resp)
		}
	}
	start := time.Now()
	for range times {
		if err := post(); err != nil {
			return err
		}
	}
	s := contestantReport{Calls: times, Took: time.Since(start)}
	caller.Close()
	client.CloseIdleConnections()
	for range 100 { // closed connections end asynchronously
		s.Goroutines = runtime.NumGoroutine() - before
		if s.Opened, s.Left, err = connections(args[3]); err != nil {
			return err
		}
		if s.Goroutines == 0 && s.Left == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(reportFile, text, 0o600)
}

// postWithNewClient posts with a new client, as the reference does. If end is set, it
// closes the client's connections.
func postWithNewClient(ctx context.Context, url string, end bool) error {
	body, err := json.Marshal(payload)
	if err != nil {
		return err
	}
	client := retryablehttp.NewClient()
	client.RetryMax, client.Logger = 0, nil
	client.HTTPClient.Timeout = 10 * time.Second
	if strings.HasPrefix(url, "https:") { // as for disableTLS; other webhooks use the client's default transport
		client.HTTPClient.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	err = read(resp)
	if end {
		client.HTTPClient.CloseIdleConnections()
	}
	return err
}

// read reads and closes the body of a response. A status other than 200 is an error.
func read(resp *http.Response) error {
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// connections returns how many connections were opened and how many are open. It
// leaves no goroutines.
func connections(url string) (opened, open int, err error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	resp, err := client.Get(url)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	_, err = fmt.Fscan(resp.Body, &opened, &open)
	return opened, open, err
}
