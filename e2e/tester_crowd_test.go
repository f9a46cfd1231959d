package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestTesterCrowd has many callers come at a time: 1,000 connections that send nothing,
// 300 bodies of 1 MB and 500 streams that are dropped.
func TestTesterCrowd(t *testing.T) {
	t.Parallel()
	s := startTester(t)
	address := strings.TrimPrefix(s.url, "http://")
	metric := func(name string) string {
		_, text := ask(t, "GET", s.url+"/metrics", "")
		found := regexp.MustCompile(`(?m)^` + name + ` (.*)$`).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("there is no %s", name)
		}
		return found[1]
	}
	dial := func(head string) net.Conn {
		c, err := net.Dial("tcp", address)
		must(t, err)
		fmt.Fprint(c, head+"\r\nHost: 127.0.0.1\r\n")
		return c
	}
	// Connections that send a part of a head, and then nothing.
	var slow []net.Conn
	for range 1000 {
		c := dial("POST / HTTP/1.1")
		defer c.Close()
		slow = append(slow, c)
	}
	longest := time.Duration(0)
	for range 50 {
		at := time.Now()
		if status, _ := ask(t, "GET", s.url+"/healthz", ""); status != 200 {
			t.Fatalf("a probe: %d", status)
		}
		longest = max(longest, time.Since(at))
	}
	t.Logf("beside 1,000 slow connections a probe took at most %s", longest)
	// Long bodies: those that are too many at a time are refused, and none costs more than itself.
	long := payload("long", keys{"type": "bash", "cmd": "true", "text": strings.Repeat("x", 1<<20-1000)})
	statuses := atOnce(300, func(int) int { status, _, _ := send(t.Context(), "POST", s.url, long); return status })
	if statuses[200]+statuses[503] != 300 || statuses[200] == 0 {
		t.Errorf("bodies of 1 MB: %v", statuses)
	}
	if peak := s.peak(); peak > 400<<10 {
		t.Errorf("it took %d kB of memory", peak)
	}
	check4000 := payload("many", keys{})
	if statuses := atOnce(4000, func(int) int {
		status, _, _ := send(t.Context(), "POST", s.url+"/gate/check", check4000)
		return status
	}); statuses[403] != 4000 {
		t.Errorf("4,000 requests at a time: %v", statuses)
	}
	// Streams whose callers leave.
	for range 500 {
		c := dial("GET /api/v1/watch HTTP/1.1")
		fmt.Fprint(c, "\r\n")
		_, err := c.Read(make([]byte, 1))
		must(t, err)
		must(t, c.Close())
	}
	until(t, "the end of dropped streams", func() bool { return metric("headgate_tester_http_requests_in_flight") == "1" })
	for _, c := range slow {
		c.SetReadDeadline(time.Now().Add(2 * time.Minute))
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Fatalf("a slow connection is not cut off: %v", err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	until(t, "the end of all connections", func() bool { n, _ := strconv.Atoi(metric("go_goroutines")); return n < 50 })
}

// peak returns the most memory that the process had, in kB.
func (s *testRunner) peak() int {
	s.t.Helper()
	_, peak, _ := strings.Cut(read(s.t, fmt.Sprintf("/proc/%d/status", s.pid)), "VmHWM:")
	kb, err := strconv.Atoi(strings.Fields(peak)[0])
	must(s.t, err)
	return kb
}

// atOnce calls do so many times at a time, and counts what it returned.
func atOnce(n int, do func(int) int) map[int]int {
	var mu sync.Mutex
	var group sync.WaitGroup
	counts := map[int]int{}
	for i := range n {
		group.Go(func() {
			got := do(i)
			mu.Lock()
			defer mu.Unlock()
			counts[got]++
		})
	}
	group.Wait()
	return counts
}
