package metric_test

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/metric"
)

// A prometheus is a server that answers queries as Prometheus does, and records
// them.
type prometheus struct {
	*httptest.Server
	mu      sync.Mutex
	queries []string
	headers []http.Header
}

// serve starts a server with handle below the path /prom.
func serve(t *testing.T, handle http.HandlerFunc) *prometheus {
	t.Helper()
	p := &prometheus{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /prom/api/v1/query", func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.queries = append(p.queries, r.URL.Query().Get("query"))
		p.headers = append(p.headers, r.Header)
		p.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		handle(w, r)
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func (p *prometheus) last(t *testing.T) (string, http.Header) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queries) == 0 {
		t.Fatal("nothing was asked")
	}
	return p.queries[len(p.queries)-1], p.headers[len(p.headers)-1]
}

// respond returns a handler that always sends the same answer.
func respond(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// vector returns an answer with one series for each sample.
func vector(values ...string) string {
	samples := make([]string, len(values))
	for i, value := range values {
		samples[i] = fmt.Sprintf(`{"metric":{"__name__":"m","i":"%d"},"value":[1700000000.781,%q]}`, i, value)
	}
	return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(samples, ",") + `]}}`
}

// canary returns a canary of the target app, changed by edit.
func canary(edit func(*rollout.Canary)) *rollout.Canary {
	c := &rollout.Canary{Metadata: rollout.Metadata{Name: "shop", Namespace: "test"}}
	c.Spec.TargetRef.Name = "app"
	if edit != nil {
		edit(c)
	}
	return c
}

// canary returns a canary whose metrics server is p.
func (p *prometheus) canary() *rollout.Canary {
	return canary(func(c *rollout.Canary) { c.Spec.MetricsServer = p.URL + "/prom" })
}

// querier returns q and closes it at the end of the test.
func querier(t *testing.T, q *metric.Querier) *metric.Querier {
	t.Cleanup(q.Close)
	return q
}

// template returns a template m in namespace test, and a metric that refers to it.
func template(p metric.Provider, query string) (*metric.Template, rollout.Metric) {
	return &metric.Template{
		Metadata: rollout.Metadata{Name: "m", Namespace: "test"},
		Spec:     metric.TemplateSpec{Provider: p, Query: query},
	}, rollout.Metric{Name: "custom", TemplateRef: &rollout.ObjectRef{Name: "m"}}
}

// secrets returns a function that has one Secret, test/auth.
func secrets(data map[string]string) rollout.Secrets {
	return func(_ context.Context, namespace, name string) (map[string][]byte, error) {
		if namespace != "test" || name != "auth" {
			return nil, fmt.Errorf("secret %s/%s: %w", namespace, name, fs.ErrNotExist)
		}
		out := map[string][]byte{}
		for key, value := range data {
			out[key] = []byte(value)
		}
		return out, nil
	}
}

var must = testenv.Must
