package metric_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/metric"
)

// TestPrometheusAnswers lists the answers of a Prometheus, or of another server at its address.
func TestPrometheusAnswers(t *testing.T) {
	data := func(kind, result string) string {
		return `{"status":"success","data":{"resultType":"` + kind + `","result":` + result + `}}`
	}
	const none = "no values found: "
	tests := map[string]struct {
		status int
		body   string
		want   float64
		err    string // a part of the error; "" for a value
	}{
		"vector":                   {200, vector("99.5"), 99.5, ""},
		"scalar":                   {200, data("scalar", `[1700000000.1,"7"]`), 7, ""},
		"the last of several":      {200, vector("1", "2", "3"), 3, ""},
		"+Inf":                     {200, vector("+Inf"), math.Inf(1), ""},
		"-Inf":                     {200, vector("-Inf"), math.Inf(-1), ""},
		"warnings":                 {200, `{"status":"success","warnings":["remote read failed"],"infos":["x"],"data":{"resultType":"vector","result":[{"metric":{},"value":[1,"5"]}]}}`, 5, ""},
		"empty vector":             {200, vector(), 0, none + "prometheus URL answered an empty vector"},
		"NaN":                      {200, vector("NaN"), 0, none + "prometheus URL answered NaN"},
		"NaN scalar":               {200, data("scalar", `[1,"NaN"]`), 0, none},
		"matrix":                   {200, data("matrix", `[{"metric":{},"values":[[1,"1"],[2,"2"]]}]`), 0, "prometheus URL: the query gives a range of values"},
		"string":                   {200, data("string", `[1,"up"]`), 0, "gives a string"},
		"histogram":                {200, data("vector", `[{"metric":{},"histogram":[1,{"count":"4","sum":"2"}]}]`), 0, "gives a histogram"},
		"bad query":                {400, `{"status":"error","errorType":"bad_data","error":"invalid parameter \"query\": 1:4: parse error"}`, 0, `status 400: bad_data: invalid parameter "query": 1:4: parse error`},
		"cannot be executed":       {422, `{"status":"error","errorType":"execution","error":"found duplicate series"}`, 0, "status 422: execution: found duplicate series"},
		"error of type less":       {500, `{"status":"error","error":"boom"}`, 0, "status 500: boom"},
		"error with status 200":    {200, `{"status":"error","errorType":"internal","error":"boom"}`, 0, "prometheus URL: internal: boom"},
		"text":                     {502, "bad gateway\n", 0, "status 502: bad gateway"},
		"nothing":                  {502, "", 0, "status 502: Bad Gateway"},
		"control characters":       {500, "\x1b[31mred\x1b[0m\x07", 0, "status 500: red\ufffd"},
		"no content":               {204, "", 0, "is it Prometheus?"},
		"a page":                   {200, "<html>log in</html>", 0, `answered "application/json": is it Prometheus?`},
		"truncated":                {200, vector("1")[:60], 0, "is it Prometheus?"},
		"two documents":            {200, vector("1") + vector("2"), 0, "is it Prometheus?"},
		"null":                     {200, `null`, 0, "is it Prometheus?"},
		"another status":           {200, `{"status":"ok","data":{"resultType":"scalar","result":[1,"5"]}}`, 0, "is it Prometheus?"},
		"no data":                  {200, `{"status":"success"}`, 0, "has no result"},
		"no result":                {200, `{"status":"success","data":{"resultType":"vector"}}`, 0, "a vector that is none"},
		"sample without value":     {200, data("vector", `[{"metric":{}}]`), 0, "no pair"},
		"long sample":              {200, data("scalar", `[1,"2","3"]`), 0, "no pair"},
		"sample that is an object": {200, data("scalar", `{"0":1}`), 0, "no pair"},
		"sample with a word":       {200, vector("up"), 0, `"up" is no number`},
		"out of range":             {200, vector("1e999"), 0, `"1e999" is no number`},
		"deep":                     {200, strings.Repeat("[", 1<<19), 0, "is it Prometheus?"},
		"huge":                     {200, `{"status":"success","pad":"` + strings.Repeat("x", 2<<20) + `"}`, 0, "longer than 1024 KiB"},
		"huge error":               {500, strings.Repeat("x", 2<<20), 0, "status 500: xxx"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := serve(t, respond(test.status, test.body))
			q := querier(t, &metric.Querier{})
			got, err := q.Query(t.Context(), p.canary(), rollout.Metric{Name: "m", Query: "up"})
			text := strings.ReplaceAll(fmt.Sprint(err), p.URL+"/prom", "URL")
			switch {
			case test.err == "" && (err != nil || got != test.want):
				t.Errorf("got %v, %v, want %v", got, err, test.want)
			case test.err != "" && (err == nil || !strings.Contains(text, test.err)):
				t.Errorf("got %v, %v\nwant %s", got, err, test.err)
			case errors.Is(err, rollout.ErrNoValues) != strings.HasPrefix(test.err, none):
				t.Errorf("%v: no values: %v", err, errors.Is(err, rollout.ErrNoValues))
			case len(text) > 2<<10:
				t.Errorf("the error has %d bytes", len(text))
			}
		})
	}
}

func TestPrometheusRequest(t *testing.T) {
	p := serve(t, respond(200, vector("1")))
	q := querier(t, &metric.Querier{Server: p.URL + "/prom/?tenant=a"})
	if _, err := q.Query(t.Context(), canary(nil), rollout.Metric{Name: "m", Query: " sum(up) + 1 & x\n"}); err != nil {
		t.Fatal(err)
	}
	query, header := p.last(t)
	if query != "sum(up) + 1 & x" || header.Get("Authorization") != "" {
		t.Errorf("asked %q with %v", query, header)
	}
}

// Credentials are sent in each form, and no error shows them even if the server
// echoes them.
func TestCredentials(t *testing.T) {
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("alice:s3cretpass"))
	tests := map[string]struct {
		secret map[string]string
		header string // of the request, NAME: value
		err    string
	}{
		"basic":       {map[string]string{"username": "alice", "password": "s3cretpass"}, "Authorization: " + basic, ""},
		"token":       {map[string]string{"token": "t0ken-canary"}, "Authorization: Bearer t0ken-canary", ""},
		"bearerToken": {map[string]string{"bearerToken": "t0ken-canary"}, "Authorization: Bearer t0ken-canary", ""},
		"headers":     {map[string]string{"headers": "X-Scope-OrgID: t3nant-canary\n\n x-b:c\n"}, "X-Scope-Orgid: t3nant-canary", ""},
		"none":        {map[string]string{"other": "x"}, "Authorization: ", ""},
		"both":        {map[string]string{"token": "t0ken-canary", "username": "alice", "password": "s3cretpass"}, "", "exclude each other"},
		"no user":     {map[string]string{"password": "s3cretpass"}, "", "username is missing"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(401)
				fmt.Fprintf(w, `{"status":"error","errorType":"refused","error":"you sent %q %q and s3cretpass t0ken-canary"}`, r.Header.Get("Authorization"), r.Header.Get("X-Scope-OrgID"))
			})
			tpl, m := template(metric.Provider{Address: p.URL + "/prom", SecretRef: &rollout.SecretRef{Name: "auth"}}, "up")
			q := querier(t, &metric.Querier{Templates: []*metric.Template{tpl}, Secrets: secrets(test.secret)})
			_, err := q.Query(t.Context(), canary(nil), m)
			if err == nil || test.err != "" && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("got %v, want %s", err, test.err)
			}
			for _, value := range test.secret {
				for _, word := range strings.Fields(value) {
					if word = strings.TrimSuffix(word, ":"); strings.ContainsAny(word, "03") && strings.Contains(err.Error(), word) {
						t.Errorf("%v shows %q", err, word)
					}
				}
			}
			if test.err != "" {
				return
			}
			_, header := p.last(t)
			if name, value, _ := strings.Cut(test.header, ": "); header.Get(name) != value {
				t.Errorf("%s: %q, want %q", name, header.Get(name), value)
			}
		})
	}
}

// The server answers with the credential instead of a number.
func TestValueThatIsASecret(t *testing.T) {
	bodies := map[string]http.HandlerFunc{
		"vector":   respond(200, vector("t0ken-canary")),
		"document": respond(200, `{"a":"t0ken-canary"}`),
		"text":     respond(200, "t0ken-canary"),
		"field":    respond(200, `{"t0ken-canary":{}}`),
	}
	for name, body := range bodies {
		p := serve(t, body)
		tpl, m := template(metric.Provider{Address: p.URL + "/prom", SecretRef: &rollout.SecretRef{Name: "auth"}}, "up")
		if name != "vector" {
			tpl.Spec.Provider.Type, tpl.Spec.Provider.Address = "http", p.URL+"/prom/api/v1/query"
			tpl.Spec.Query = map[string]string{"document": ".a", "field": `["t0ken-canary"]`}[name]
		}
		q := querier(t, &metric.Querier{Templates: []*metric.Template{tpl}, Secrets: secrets(map[string]string{"token": "t0ken-canary"})})
		if _, err := q.Query(t.Context(), canary(nil), m); err == nil || strings.Contains(err.Error(), "t0ken") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestUserInformationOfTheAddress(t *testing.T) {
	p := serve(t, respond(500, "alice s3cretpass"))
	u, _ := url.Parse(p.URL + "/prom")
	u.User = url.UserPassword("alice", "s3cretpass")
	q := querier(t, &metric.Querier{Server: u.String()})
	_, err := q.Query(t.Context(), canary(nil), rollout.Metric{Query: "up"})
	if err == nil || strings.Contains(err.Error(), "s3cretpass") || strings.Contains(err.Error(), "alice") {
		t.Errorf("got %v", err)
	}
	if _, header := p.last(t); header.Get("Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte("alice:s3cretpass")) {
		t.Errorf("sent %v", header)
	}
}

func TestSecretThatIsNotThere(t *testing.T) {
	tpl, m := template(metric.Provider{Address: "http://127.0.0.1:1", SecretRef: &rollout.SecretRef{Name: "other"}}, "up")
	for name, q := range map[string]*metric.Querier{
		"test/other": {Templates: []*metric.Template{tpl}, Secrets: secrets(nil)},
		"no Secrets": {Templates: []*metric.Template{tpl}},
	} {
		if _, err := querier(t, q).Query(t.Context(), canary(nil), m); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %s", err, name)
		}
	}
}

// A redirect is followed within the origin. Another origin gets no request.
func TestRedirects(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("another origin was asked %s with %v", r.URL, r.Header)
		fmt.Fprint(w, vector("1"))
	}))
	defer other.Close()
	for target, want := range map[string]string{
		"/prom/api/v1/query?query=up&there=1":      "",
		other.URL + "/prom/api/v1/query?token=abc": "redirect to " + other.URL + "/prom/api/v1/query refused",
		"/prom/api/v1/query?query=up":              "redirect to /prom/api/v1/query refused",
		"ftp://h/":                                 "refused",
	} {
		p := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("there") != "" {
				fmt.Fprint(w, vector("1"))
				return
			}
			http.Redirect(w, r, target, http.StatusTemporaryRedirect)
		})
		tpl, m := template(metric.Provider{Address: p.URL + "/prom", SecretRef: &rollout.SecretRef{Name: "auth"}}, "up")
		q := querier(t, &metric.Querier{Templates: []*metric.Template{tpl}, Secrets: secrets(map[string]string{"token": "t0ken", "headers": "X-Key: k3y"})})
		got, err := q.Query(t.Context(), canary(nil), m)
		if want == "" && (err != nil || got != 1) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, %v, want %s", target, got, err, want)
		}
		if want == "" {
			if _, header := p.last(t); header.Get("X-Key") != "k3y" {
				t.Errorf("%s: sent %v", target, header)
			}
		}
	}
}

// stalls returns a handler that sends the beginning of an answer and waits until the client disconnects.
func stalls(requests chan<- struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		fmt.Fprint(w, `{"status":`)
		w.(http.Flusher).Flush()
		requests <- struct{}{}
		<-r.Context().Done()
	}
}

func TestSlowAnswer(t *testing.T) {
	requests := make(chan struct{}, 1)
	p := serve(t, stalls(requests))
	q := querier(t, &metric.Querier{})
	q.SetTimeout(50 * time.Millisecond)
	_, err := q.Query(t.Context(), p.canary(), rollout.Metric{Query: "up"})
	if err == nil || !strings.Contains(err.Error(), "no answer within 50ms") {
		t.Errorf("got %v", err)
	}
}

func TestContextThatEnds(t *testing.T) {
	requests := make(chan struct{}, 1)
	p := serve(t, stalls(requests))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-requests
		cancel()
	}()
	_, err := querier(t, &metric.Querier{}).Query(ctx, p.canary(), rollout.Metric{Query: "up"})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestServerThatIsAway(t *testing.T) {
	_, err := querier(t, &metric.Querier{Server: "http://127.0.0.1:1"}).Query(t.Context(), canary(nil), rollout.Metric{Query: "up"})
	if err == nil || !strings.Contains(err.Error(), "refused") || errors.Is(err, rollout.ErrNoValues) {
		t.Errorf("got %v", err)
	}
}

func TestCertificates(t *testing.T) {
	server := httptest.NewUnstartedServer(respond(200, vector("1")))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of the handshake that fails
	server.StartTLS()
	defer server.Close()
	for insecure, want := range map[bool]string{false: "certificate", true: ""} {
		tpl, m := template(metric.Provider{Type: "prometheus", Address: server.URL, InsecureSkipVerify: insecure}, "up")
		_, err := querier(t, &metric.Querier{Templates: []*metric.Template{tpl}}).Query(t.Context(), canary(nil), m)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("insecureSkipVerify %v: %v", insecure, err)
		}
	}
}

func TestOnline(t *testing.T) {
	up := serve(t, respond(200, vector("1")))
	other := serve(t, respond(200, vector("2")))
	tpl, m := template(metric.Provider{Address: other.URL + "/prom"}, "up")
	web, n := template(metric.Provider{Type: "http", Address: "http://127.0.0.1:1/"}, "")
	web.Metadata.Name, n.TemplateRef.Name = "web", "web"
	q := querier(t, &metric.Querier{Server: up.URL + "/prom", Templates: []*metric.Template{tpl, web}})
	c := canary(func(c *rollout.Canary) {
		c.Spec.Analysis.Metrics = []rollout.Metric{{Name: "a", Query: "x"}, {Name: rollout.SuccessRate}, n}
	})
	testenv.Equal(t, q.Online(t.Context(), c), nil)
	if query, _ := up.last(t); query != "vector(1)" || len(up.queries) != 1 {
		t.Errorf("asked %q", up.queries)
	}
	c.Spec.Analysis.Metrics = append(c.Spec.Analysis.Metrics, m, rollout.Metric{Name: "b"})
	err := q.Online(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "answered 2 to vector(1)") || !strings.Contains(err.Error(), "metric b: there is no query") {
		t.Errorf("got %v", err)
	}
}
