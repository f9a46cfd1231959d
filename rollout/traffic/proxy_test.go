package traffic_test

import (
	"errors"
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
	return do(t, req, header...)
}

// do returns the answer to req: its body, after the status when that is not 200.
func do(t *testing.T, req *http.Request, header ...string) string {
	t.Helper()
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

func TestProxyThatIsWrong(t *testing.T) {
	const ok = "http://127.0.0.1:1"
	match := func(h map[string]rollout.StringMatch) []rollout.Match { return []rollout.Match{{Headers: h}} }
	tests := map[string]struct {
		proxy *traffic.Proxy
		want  string
	}{
		"no URLs":        {&traffic.Proxy{}, "primary of the proxy"},
		"no canary":      {&traffic.Proxy{Primary: ok}, "canary of the proxy"},
		"not a URL":      {&traffic.Proxy{Primary: "http://user:s3cr3t@%zz", Canary: ok}, "not a URL"},
		"scheme":         {&traffic.Proxy{Primary: "ftp://h", Canary: ok}, "http"},
		"credentials":    {&traffic.Proxy{Primary: "http://user:s3cr3t@h", Canary: ok}, "no user"},
		"routes":         {&traffic.Proxy{Primary: ok, Canary: ok, Start: rollout.Routes{Primary: 1}}, "100"},
		"no condition":   {&traffic.Proxy{Primary: ok, Canary: ok, Match: match(map[string]rollout.StringMatch{"a": {}})}, `match[0].headers["a"]`},
		"two conditions": {&traffic.Proxy{Primary: ok, Canary: ok, Match: match(map[string]rollout.StringMatch{"a": {Exact: "a", Prefix: "a"}})}, "one of"},
		"expression":     {&traffic.Proxy{Primary: ok, Canary: ok, Match: match(map[string]rollout.StringMatch{"a": {Regex: "("}})}, "regex"},
		"half of it":     {&traffic.Proxy{Primary: ok, Canary: ok, Match: match(map[string]rollout.StringMatch{"a": {Regex: "a)|(b"}})}, "regex"},
		"no headers":     {&traffic.Proxy{Primary: ok, Canary: ok, Match: match(nil)}, "no headers"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := test.proxy.Routes(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "s3cr3t") {
				t.Error(err)
			}
			for _, err := range []error{test.proxy.SetRoutes(t.Context(), mirrored), test.proxy.Target(new(traffic.Adapter)).ScaleDown(t.Context())} {
				if err == nil {
					t.Error("no error")
				}
			}
			if _, err := test.proxy.Query(t.Context(), nil, rollout.Metric{Name: "request-duration"}); err == nil || errors.Is(err, rollout.ErrNoValues) {
				t.Error(err)
			}
			if got := ask(t, serve(t, test.proxy.ServeHTTP).URL); got != "500 the proxy is not set up" {
				t.Errorf("got %q", got)
			}
			test.proxy.Stats()
			test.proxy.Close()
		})
	}
}
