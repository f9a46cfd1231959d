package traffic_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// This proxy sends a fifth of the requests to the canary.
func ExampleProxy() {
	version := func(name string) *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, name) }))
	}
	primary, canary := version("v1"), version("v2")
	defer primary.Close()
	defer canary.Close()
	proxy := &traffic.Proxy{Primary: primary.URL, Canary: canary.URL}
	defer proxy.Close()
	if err := proxy.SetRoutes(context.Background(), rollout.Routes{Primary: 80, Canary: 20}); err != nil {
		log.Fatal(err)
	}
	answers := map[string]int{}
	for range 100 {
		w := httptest.NewRecorder()
		proxy.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		answers[w.Body.String()]++
	}
	fmt.Println(answers)
	// Output:
	// map[v1:80 v2:20]
}
