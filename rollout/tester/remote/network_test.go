package remote_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// Nobody but the server sees credentials, or is asked anything at all.
func TestRedirects(t *testing.T) {
	leading := func(to string, status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, status) }
	}
	for _, to := range []string{"http://other.example/x", "https://load.example:8080/x", "http://load.example:8081/x", "//other.example/x", "http://u:p@other.example/x?token=abc", "http://load.example:8080/elsewhere"} {
		for _, status := range []int{301, 302, 303, 307, 308} {
			synctest.Test(t, func(t *testing.T) {
				n, s := world(t)
				s.Hosts = append(s.Hosts, "other.example")
				asked := 0
				spy := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ })
				for _, address := range []string{otherIP + ":80", publicIP + ":443", publicIP + ":8081"} {
					n.serve(t, address, spy)
				}
				n.serve(t, publicIP+":8080", answering(spy, "POST", "clone_and_start", leading(to, status)))
				_, err := runLoad(t, t.Context(), s, load)
				if !strings.Contains(text(err), "a redirect is not followed to ") || strings.Contains(text(err), "abc") || strings.Contains(text(err), "u:p") || asked != 0 {
					t.Errorf("%d to %s: %v, asked %d times", status, to, err, asked)
				}
			})
		}
	}
	for to, want := range map[string]string{
		"http://other.example/x":             "a redirect is not followed to http://other.example/x",
		"http://load.example:8080/elsewhere": "",
		"status":                             "a redirect is not followed more than 5 times",
	} {
		synctest.Test(t, func(t *testing.T) {
			n, s := world(t)
			asked := 0
			n.serve(t, otherIP+":80", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
			moved := answering(newGrinder("x"), "GET", "/elsewhere", saying(200, "", `{"status": "FINISHED"}`))
			n.serve(t, publicIP+":8080", answering(moved, "GET", "/status", leading(to, 307)))
			_, err := runLoad(t, t.Context(), s, load)
			if (err == nil) != (want == "") || !strings.Contains(text(err), want) || asked != 0 {
				t.Errorf("GET to %s: %v, asked %d times", to, err, asked)
			}
		})
	}
}

// A proxy is the configuration's choice, and looks up names itself.
func TestProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := world(t)
		s.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse("http://proxy.example:3128") }
		n.serve(t, "proxy.example:3128", newGrinder("FINISHED"))
		if _, err := runLoad(t, t.Context(), s, load); err != nil || !slices.Equal(n.dialled, []string{"proxy.example:3128"}) {
			t.Errorf("%v, connected to %v", err, n.dialled)
		}
	})
}
