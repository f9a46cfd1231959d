package exchange_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

func TestJobToken(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.Header.Get("Authorization") != "Bearer runner-canary" || r.Method != http.MethodGet {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"message":"not `+r.Header.Get("Authorization")+`"}`)
			return
		}
		fmt.Fprintf(w, `{"count":1,"value":%q}`, q.Get("kind")+q.Get("audience"))
	}))
	defer s.Close()
	client := exchange.Client(nil)
	defer client.CloseIdleConnections()
	for name, c := range map[string]struct {
		url, token string
		want, say  string
	}{
		"plain":                {s.URL, "runner-canary", "api://a b&c=d", ""},
		"with a query":         {s.URL + "/x?kind=k-&audience=other", "runner-canary", "k-api://a b&c=d", ""},
		"refused":              {s.URL, "other-canary", "", "status 401"},
		"in the clear":         {"http://runner.example/", "runner-canary", "", "ACTIONS_ID_TOKEN_REQUEST_URL is not an https URL"},
		"with credentials":     {"https://canary:canary@runner.example/", "runner-canary", "", "is not an https URL"},
		"no URL":               {"https://canary:x", "runner-canary", "", "is not an https URL"},
		"another kind of URL":  {"file:///etc/canary", "runner-canary", "", "is not an https URL"},
		"line break in header": {s.URL, "runner\r\ncanary", "", "invalid header"},
	} {
		env := exchange.Environment(func(name string) (string, bool) {
			v, ok := map[string]string{"ACTIONS_ID_TOKEN_REQUEST_URL": c.url, "ACTIONS_ID_TOKEN_REQUEST_TOKEN": c.token}[name]
			return v, ok
		})
		if !env.Has(exchange.JobVariables...) {
			t.Errorf("%s: not in a job", name)
		}
		got, err := exchange.JobToken(t.Context(), client, env, "api://a b&c=d")
		if got != c.want || (err != nil) != (c.say != "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if err != nil && (!strings.Contains(err.Error(), c.say) || strings.Contains(err.Error(), "canary")) {
			t.Errorf("%s: %v: want %s, and no canary", name, err, c.say)
		}
	}
}

func TestNoJobToken(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"count":0}`) }))
	defer s.Close()
	client := exchange.Client(nil)
	defer client.CloseIdleConnections()
	_, err := exchange.JobToken(t.Context(), client, func(name string) (string, bool) { return s.URL, true }, "a")
	if err == nil || !strings.Contains(err.Error(), "holds none") {
		t.Error(err)
	}
}
