package metric_test

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/metric"
)

// queryHTTP queries an HTTP endpoint that returns the given answer.
func queryHTTP(t *testing.T, status int, body, path string) (float64, error) {
	t.Helper()
	server := httptest.NewServer(respond(status, body))
	defer server.Close()
	tpl, m := template(metric.Provider{Type: "http", Address: server.URL + "/value"}, path)
	q := querier(t, &metric.Querier{Templates: []*metric.Template{tpl}})
	got, err := q.Query(t.Context(), canary(nil), m)
	if err != nil && !strings.Contains(err.Error(), "template test/m (http "+server.URL+"/value)") {
		t.Errorf("%v does not say where it comes from", err)
	}
	return got, err
}

func TestHTTP(t *testing.T) {
	const doc = `{"data":{"items":[{"value":1},{"value":"2.5"},{"value":null}],"a.b c":{"":3}},"big":12345678901234567890,"yes":true,"s":"x","m":-0.5e1}`
	tests := map[string]struct {
		status           int
		body, path, want string // want is a number or a part of the error
	}{
		"bare number":          {200, "99.5\n", "", "99.5"},
		"bare infinity":        {200, "+Inf", "", "+Inf"},
		"bare string":          {200, `"7"`, ".", "7"},
		"number":               {200, doc, ".data.items[0].value", "1"},
		"names in brackets":    {200, doc, `["data"]["a.b c"][""]`, "3"},
		"negative":             {200, doc, " .m\n", "-5"},
		"null":                 {200, doc, ".data.items[2].value", "no values found: "},
		"behind the end":       {200, doc, ".data.items[3].value", "answered nothing at .data.items[3].value"},
		"null document":        {200, "null", "", "no values found: "},
		"bare NaN":             {200, "NaN", "", "no values found: "},
		"NaN in a string":      {200, `{"v":"NaN"}`, ".v", "no values found: "},
		"no such field":        {200, doc, ".data.itemz", "there is no .data.itemz in the answer"},
		"a word":               {200, doc, ".s", `"x" is no number`},
		"a list for a number":  {200, doc, ".data.items", "there is a list at .data.items"},
		"field of a list":      {200, doc, ".data.items.value", "there is a list at .data.items, not an object"},
		"item of an object":    {200, doc, ".data[0]", "there is an object at .data, not a list"},
		"field of a number":    {200, doc, ".m.x", "there is a value at .m, not an object"},
		"no JSON":              {200, "<html>", ".a", "no JSON document"},
		"no number":            {200, "<html>", "", `"<html>" is no number`},
		"truncated":            {200, `{"a":1`, ".a", "no JSON document"},
		"two documents":        {200, `{"a":1}{"a":2}`, ".a", "more than one JSON document"},
		"out of range":         {200, "1e999", "", "is no number"},
		"huge":                 {200, `{"a":1,"b":"` + strings.Repeat("x", 2<<20), ".a", "longer than 1024 KiB"},
		"deep":                 {200, strings.Repeat(`{"a":`, 1<<17), ".a", "no JSON document"},
		"no content":           {204, "", "", "status 204: No Content"},
		"error":                {500, `{"error":"broken\u001b[31m"}`, "", "status 500: broken"},
		"control characters":   {200, "\x1b]0;x\x07", "", "is no number"},
		"a field that is long": {200, doc, "." + strings.Repeat("x", 10_000), "there is no .xxx"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := queryHTTP(t, test.status, test.body, test.path)
			text := fmt.Sprint(got)
			if err != nil {
				text = err.Error()
			}
			if err == nil && text != test.want || err != nil && !strings.Contains(text, test.want) || len(text) > 3<<10 || strings.Contains(text, "\x1b") {
				t.Errorf("got %.300q, want %s", text, test.want)
			}
			if none := strings.Contains(test.want, "no values") || strings.Contains(test.want, "answered nothing"); none != errors.Is(err, rollout.ErrNoValues) {
				t.Errorf("%v: no values: %v", err, !none)
			}
		})
	}
	if got, _ := queryHTTP(t, 200, "-Inf", ""); got != math.Inf(-1) {
		t.Errorf("got %v", got)
	}
}

// The values of a canary are escaped in the address of a template.
func TestAddressWithPlaceholders(t *testing.T) {
	var path, query string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, query = r.URL.EscapedPath(), r.URL.RawQuery
		fmt.Fprint(w, `{"app":4}`)
	}))
	defer server.Close()
	tpl, m := template(metric.Provider{Type: "http", Address: server.URL + "/{{ namespace }}/{{ variables.v }}?of={{ index variables \"v\" }}&for={{ interval }}"}, ".{{ target }}")
	m.TemplateVariables = map[string]string{"v": "a/a b?c=d&e#f@g"}
	got, err := querier(t, &metric.Querier{Templates: []*metric.Template{tpl}}).Query(t.Context(), canary(nil), m)
	const escaped = "a%2Fa%20b%3Fc%3Dd%26e%23f%40g"
	if err != nil || got != 4 || path != "/test/"+escaped || query != "of="+escaped+"&for=1m" {
		t.Errorf("got %v, %v: %s ? %s", got, err, path, query)
	}
	m.TemplateVariables = nil
	if _, err := querier(t, &metric.Querier{Templates: []*metric.Template{tpl}}).Query(t.Context(), canary(nil), m); err == nil || !strings.Contains(err.Error(), `spec.provider.address line:1`) {
		t.Errorf("got %v", err)
	}
}

// A value cannot select another path of the server: many servers resolve dot
// segments, even between escaped slashes.
func TestAddressWithDots(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("asked %s", r.URL)
	}))
	defer server.Close()
	tpl, m := template(metric.Provider{Type: "http", Address: server.URL + "/tenants/{{ variables.a }}{{ variables.b }}/value"}, "")
	for _, of := range [][2]string{{"..", ""}, {".", "."}, {"", "."}, {"x/..", ""}, {"../..", "/admin"}, {`..\`, "x"}} {
		m.TemplateVariables = map[string]string{"a": of[0], "b": of[1]}
		_, err := querier(t, &metric.Querier{Templates: []*metric.Template{tpl}}).Query(t.Context(), canary(nil), m)
		if err == nil || !strings.Contains(err.Error(), "spec.provider.address has the path segment") {
			t.Errorf("%q: got %v", of, err)
		}
	}
}
