package traffic_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// BenchmarkProxy compares the proxy with a plain httputil.ReverseProxy over the
// same kind of transport, end to end over loopback.
func BenchmarkProxy(b *testing.B) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		io.WriteString(w, strings.Repeat("x", 1000))
	}))
	defer upstream.Close()
	base, err := url.Parse(upstream.URL)
	if err != nil {
		b.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true}
	defer transport.CloseIdleConnections()
	match := []rollout.Match{{Headers: map[string]rollout.StringMatch{"cookie": {Regex: "(.*; ?)?canary=always(;.*)?"}}}}
	half := rollout.Routes{Primary: 50, Canary: 50}
	handlers := []struct {
		name    string
		handler http.Handler
	}{
		{"plain", &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(base); r.SetXForwarded() }}},
		{"weights", &traffic.Proxy{Primary: upstream.URL, Canary: upstream.URL, Start: half, Transport: transport}},
		{"match", &traffic.Proxy{Primary: upstream.URL, Canary: upstream.URL, Start: half, Match: match, Transport: transport}},
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, h := range handlers {
			b.Run(method+"/"+h.name, func(b *testing.B) {
				front := httptest.NewServer(h.handler)
				defer front.Close()
				load(b, method, front.URL)
			})
		}
	}
}

func load(b *testing.B, method, url string) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512}}
	defer client.CloseIdleConnections()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			var body io.Reader
			if method == http.MethodPost {
				body = strings.NewReader("hello")
			}
			req, err := http.NewRequest(method, url, body)
			if err != nil {
				b.Error(err)
				return
			}
			req.Header.Set("Cookie", "session=0123456789abcdef; theme=dark")
			resp, err := client.Do(req)
			if err != nil {
				b.Error(err)
				return
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
}
