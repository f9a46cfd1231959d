package traffic_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// serve starts a server that ends with the test.
func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// say is a server that says who it is.
func say(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, name) }
}

// front starts p, by default between servers that say "primary" and "canary".
func front(t *testing.T, p *traffic.Proxy) *httptest.Server {
	t.Helper()
	if p.Primary == "" {
		p.Primary = serve(t, say("primary")).URL
	}
	if p.Canary == "" {
		p.Canary = serve(t, say("canary")).URL
	}
	t.Cleanup(p.Close)
	return serve(t, p.ServeHTTP)
}

func ask(t *testing.T, url string, header ...string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Sprintf("%d %s", resp.StatusCode, strings.TrimSpace(string(body)))
	}
	return string(body)
}

func set(t *testing.T, p *traffic.Proxy, r rollout.Routes) {
	t.Helper()
	if err := p.SetRoutes(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

// Of any 100 requests in a row the canary gets exactly its weight.
func TestWeights(t *testing.T) {
	for _, weight := range []int{0, 1, 3, 10, 33, 50, 67, 99, 100} {
		p := &traffic.Proxy{Start: rollout.Routes{Primary: 100 - weight, Canary: weight}}
		url := front(t, p).URL
		var got []int
		for range 250 {
			n := 0
			if ask(t, url) == "canary" {
				n = 1
			}
			got = append(got, n)
		}
		for from := range len(got) - 100 {
			sum := 0
			for _, n := range got[from : from+100] {
				sum += n
			}
			if sum != weight {
				t.Fatalf("weight %d: %d of 100 requests from %d on", weight, sum, from)
			}
		}
	}
}

func TestWeightsOfRequestsAtOneTime(t *testing.T) {
	p := &traffic.Proxy{Start: rollout.Routes{Primary: 75, Canary: 25}}
	url := front(t, p).URL
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 20 {
				ask(t, url)
			}
		})
	}
	all.Wait()
	if s := p.Stats(); s.Canary.Requests != 100 || s.Primary.Requests != 300 {
		t.Errorf("%+v", s)
	}
}
