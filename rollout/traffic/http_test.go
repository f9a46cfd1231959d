package traffic_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// request returns an adapter that sends r for op.
func request(op traffic.Operation, r traffic.Request) *traffic.Adapter {
	return &traffic.Adapter{Canary: podinfo, Driver: &traffic.HTTP{Requests: map[traffic.Operation]traffic.Request{op: r}}}
}

func TestHTTPRequest(t *testing.T) {
	got := make(chan string, 1)
	server := serve(t, func(_ http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		got <- strings.Join([]string{req.Method, req.RequestURI, req.Host, req.Header.Get("X-Weight"), string(body)}, " ")
	})
	a := request(traffic.SetRoutes, traffic.Request{
		Method: http.MethodPut,
		URL:    server.URL + "/{{.Namespace}}/{{.Revision}}?r={{.Revision}}&c={{.Canary}}",
		Header: map[string]string{"X-Weight": "{{.Canary}}", "host": "admin.example"},
		Body:   `{"primary":{{.Primary}},"revision":{{json .Revision}}}`,
	})
	a.ID = `a/../b?c=d&e#"é +%`
	if err := a.SetRoutes(t.Context(), rollout.Routes{Primary: 80, Canary: 20}); err != nil {
		t.Fatal(err)
	}
	const text = "a%2F..%2Fb%3Fc%3Dd%26e%23%22%C3%A9%20%2B%25"
	want := "PUT /test/" + text + "?r=" + text + `&c=20 admin.example 20 {"primary":80,"revision":"a/../b?c=d\u0026e#\"é +%"}`
	if text := <-got; text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// A revision does not make another path of a URL.
func TestHTTPPathThatLeadsElsewhere(t *testing.T) {
	server := serve(t, func(_ http.ResponseWriter, req *http.Request) { t.Errorf("%s was asked for", req.RequestURI) })
	for _, id := range []string{".", ".."} {
		a := request(traffic.ScaleDown, traffic.Request{URL: server.URL + "/v1/{{.Revision}}/down"})
		a.ID = id
		if err := a.ScaleDown(t.Context()); err == nil || !strings.Contains(err.Error(), "url: ") {
			t.Error(err)
		}
	}
}

func TestHTTPMethods(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/routes" {
			io.WriteString(w, `{"primary":50,"canary":50}`)
		} else {
			io.WriteString(w, req.Method)
		}
	})
	h := &traffic.HTTP{Requests: map[traffic.Operation]traffic.Request{
		traffic.Revision:   {URL: server.URL},
		traffic.ReadRoutes: {URL: server.URL + "/routes"},
	}}
	a := &traffic.Adapter{Driver: h}
	if id, err := a.Revision(t.Context()); id != http.MethodGet || err != nil {
		t.Error(id, err)
	}
	if r, err := a.Routes(t.Context()); r != (rollout.Routes{Primary: 50, Canary: 50}) || err != nil {
		t.Error(r, err)
	}
}

func TestHTTPStatus(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, req *http.Request) {
		var status int
		fmt.Sscan(req.URL.Query().Get("s"), &status)
		w.WriteHeader(status)
		io.WriteString(w, "be\x1bcause")
	})
	tests := []struct {
		status       int
		ready, stuck bool
	}{{200, true, false}, {204, true, false}, {299, true, false}, {304, false, false}, {404, false, false}, {408, false, false}, {410, false, true}, {500, false, false}, {503, false, false}}
	for _, test := range tests {
		a := request(traffic.CanaryReady, traffic.Request{URL: fmt.Sprintf("%s/?s=%d", server.URL, test.status)})
		err := a.CanaryReady(t.Context())
		if (err == nil) != test.ready || errors.Is(err, rollout.ErrStuck) != test.stuck {
			t.Errorf("status %d: %v", test.status, err)
		}
		if err != nil && (!strings.Contains(err.Error(), fmt.Sprint("status ", test.status)) || strings.Contains(err.Error(), "\x1b")) {
			t.Errorf("status %d: %q", test.status, err)
		}
	}
	if err := request(traffic.Promote, traffic.Request{URL: server.URL + "/?s=410"}).Promote(t.Context()); err == nil || errors.Is(err, rollout.ErrStuck) {
		t.Error(err)
	}
}

// 307 and 308 are repeated on the same origin, with the body. Nothing else is
// followed, and credentials go nowhere else.
func TestHTTPRedirects(t *testing.T) {
	other := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("another origin was asked") })
	tests := map[string]struct {
		status int
		to     string
		want   string
	}{
		"307":                {307, "/end", ""},
		"308":                {308, "/end", ""},
		"301":                {301, "/end", "redirect to /end refused"},
		"302":                {302, "/end", "redirect to /end refused"},
		"303":                {303, "/end", "redirect to /end refused"},
		"307, other origin":  {307, other.URL + "/end?t=tok3n", "redirect to " + other.URL + "/end?t=*** refused"},
		"308, other scheme":  {308, "https://127.0.0.1/end", "refused"},
		"307, no scheme":     {307, "//" + other.Listener.Addr().String() + "/", "refused"},
		"307 for ever":       {307, "/", "status 307"},
		"307, not a URL":     {307, "http://%zz", "Location"},
		"307 without a word": {307, "", "status 307"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := ""
			server := serve(t, func(w http.ResponseWriter, req *http.Request) {
				if req.URL.Path == "/end" {
					body, _ := io.ReadAll(req.Body)
					got = req.Method + " " + req.Header.Get("Authorization") + " " + string(body)
					return
				}
				if test.to != "" {
					w.Header().Set("Location", test.to)
				}
				w.WriteHeader(test.status)
			})
			err := request(traffic.Promote, traffic.Request{
				URL: server.URL + "/", Header: map[string]string{"Authorization": "Bearer tok3n"}, Body: "hello",
			}).Promote(t.Context())
			switch {
			case test.want == "" && (err != nil || got != "POST Bearer tok3n hello"):
				t.Errorf("%q, %v", got, err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "tok3n") || got != ""):
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

func TestHTTPErrorsAreClean(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, req *http.Request) {
		http.Error(w, "no: "+req.Header.Get("Authorization")+" "+req.Header.Get("X-Key")+" p4ssw0rd", http.StatusForbidden)
	})
	a := request(traffic.Promote, traffic.Request{URL: strings.Replace(server.URL, "://", "://user:pa55@", 1) + "/?k=k3y", Header: map[string]string{"X-Key": "s3cret-key", "Authorization": "Bearer tok3n"}})
	a.Driver.(*traffic.HTTP).Secrets = []string{"p4ssw0rd"}
	gone := request(traffic.Promote, traffic.Request{URL: "http://user:pa55@127.0.0.1:1/?k=k3y"})
	for _, err := range []error{a.Promote(t.Context()), gone.Promote(t.Context())} {
		if err == nil {
			t.Fatal("no error")
		}
		for _, secret := range []string{"pa55", "k3y", "s3cret-key", "tok3n", "p4ssw0rd"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%q leaks in %q", secret, err)
			}
		}
	}
}

func TestHTTPAnswersWithoutEnd(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/forbidden" {
			w.WriteHeader(http.StatusForbidden)
		}
		for {
			if _, err := w.Write([]byte(strings.Repeat("a", 32<<10))); err != nil {
				return
			}
		}
	})
	if _, err := request(traffic.Revision, traffic.Request{URL: server.URL}).Revision(t.Context()); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Error(err)
	}
	if err := request(traffic.ScaleUp, traffic.Request{URL: server.URL}).ScaleUp(t.Context()); err != nil {
		t.Error(err)
	}
	if err := request(traffic.ScaleUp, traffic.Request{URL: server.URL + "/forbidden"}).ScaleUp(t.Context()); err == nil || len(err.Error()) > 1000 {
		t.Error(err)
	}
}

func TestHTTPThatHangs(t *testing.T) {
	arrived := make(chan struct{}, 1)
	server := serve(t, func(_ http.ResponseWriter, req *http.Request) {
		arrived <- struct{}{}
		<-req.Context().Done()
	})
	a := request(traffic.CanaryReady, traffic.Request{URL: server.URL})
	cause := errors.New("because")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-arrived; cancel(cause) }()
	if err := a.CanaryReady(ctx); !errors.Is(err, cause) {
		t.Error(err)
	}
	a.Driver.(*traffic.HTTP).Timeout = 20 * time.Millisecond
	if err := a.CanaryReady(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not done after 20ms") {
		t.Error(err)
	}
}

func TestHTTPCheck(t *testing.T) {
	h := &traffic.HTTP{Requests: map[traffic.Operation]traffic.Request{
		"scale":              {URL: "http://h"},
		traffic.ScaleUp:      {URL: "h/x"},
		traffic.ScaleDown:    {URL: "http://h/{{.Nothing}}"},
		traffic.Promote:      {URL: "http://h", Body: "{{"},
		traffic.CanaryReady:  {URL: "http://h", Header: map[string]string{"A": "{{range .Name}}{{end}}"}},
		traffic.PrimaryReady: {URL: "http://h/{{.Name}}"},
		traffic.Revision:     {URL: "ftp://user:pa55@h"},
	}}
	err := h.Check()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`"scale" is not`, "scale-up: url", "scale-down: url", "promote: body", "canary-ready: header A", "revision: url"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "primary-ready:") || strings.Contains(err.Error(), "pa55") {
		t.Error(err)
	}
}

// Templates that would run for ever or need all memory are refused.
func TestTemplatesThatAreHostile(t *testing.T) {
	nest := func(n int, f string) string {
		return "{{" + strings.Repeat("("+f+" ", n) + `"\\\\"` + strings.Repeat(")", n) + "}}"
	}
	tests := map[string]string{
		"missing":   "{{.Nothing}}",
		"deeper":    "{{.Name.First}}",
		"range":     "{{range 9223372036854775807}}{{end}}",
		"recursion": `{{define "a"}}{{template "a"}}{{end}}{{template "a"}}`,
		"block":     `{{block "a" .}}{{end}}`,
		"with":      "{{with .Name}}{{.}}{{end}}",
		"variable":  `{{$a := .Name}}{{$a}}`,
		"in if":     `{{if true}}{{range 5}}{{end}}{{end}}`,
		"in else":   `{{if true}}{{else if true}}{{range 5}}{{end}}{{end}}`,
		"if sets":   `{{if $a := .Name}}{{$a}}{{end}}`,
		"printf":    `{{printf "%999999999d" 1}}`,
		"json":      nest(60, "json"),
		"js":        nest(60, "js"),
		"long":      strings.Repeat("{{.Name}}", 64<<10),
		"longer":    `{{urlquery "` + strings.Repeat("%", 60<<10) + `"}}`,
		"open":      "{{",
		"unknown":   "{{env}}",
		"call":      "{{call .Name}}",
		"nil":       "{{nil}}",
	}
	for name, text := range tests {
		e := &traffic.Exec{Commands: map[traffic.Operation][]string{traffic.ScaleUp: {"x", text}}}
		if err := e.Check(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	plain := map[string]string{"comment": "{{/* nothing */}}", "comparison": `{{if and (ge .Canary 0) (eq .Name "")}}a{{end}}`, "trim": "a {{- .Canary -}} b", "braces": "{ }} {", "percent": "%s"}
	for name, text := range plain {
		e := &traffic.Exec{Commands: map[traffic.Operation][]string{traffic.ScaleUp: {"x", text}}}
		if err := e.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
