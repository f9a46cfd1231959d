package metric

import (
	"errors"
	"math"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/command"
	"github.com/headgate-io/headgate/internal/placeholder"
	"github.com/headgate-io/headgate/rollout"
)

// sound fails the test unless the result is either a number or an error.
func sound(t *testing.T, value float64, err error) {
	t.Helper()
	if math.IsNaN(value) || err != nil && value != 0 || errors.Is(err, rollout.ErrNoValues) && !strings.HasPrefix(err.Error(), "no values found: ") {
		t.Errorf("got %v, %v", value, err)
	}
}

func FuzzPath(f *testing.F) {
	f.Add(".data.items[0].value", `{"data":{"items":[{"value":1}]}}`)
	f.Add(`["a\"b"][""]`, `{"a\"b":{"":"2"}}`)
	f.Add("", "NaN")
	f.Add("[1]", "[1,null]")
	f.Fuzz(func(t *testing.T, text, doc string) {
		p, err := parsePath(text)
		if err != nil {
			return
		}
		if n := len(p); n > 0 && !strings.HasSuffix(p[n-1].text, strings.TrimSpace(text)) {
			t.Errorf("%q became %q", text, p)
		}
		value, err := p.number([]byte(doc))
		sound(t, value, err)
	})
}

// FuzzQuery checks that the length of an accepted query stays within its limit, and
// that an accepted command line has a program.
func FuzzQuery(f *testing.F) {
	for _, text := range []string{
		"sum(rate(x{a=\"{{ target }}\"}[{{ interval }}]))", `{{ if eq variables.a "b" }}{{ name }}{{ else }}{{ index variables "a" }}{{ end }}`,
		`prog "a {{ variables.a }}" 'b' c\ d`, "{{ range 9999999999 }}{{ end }}", "{{ $x := name }}{{ printf \"%9999d\" 1 }}", "{{ (variables).a.b }}", "{{ define \"line\" }}{{ end }}",
	} {
		f.Add(text, "it's \"odd\" {{ name }}")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		v := valuesOf(new(rollout.Canary), rollout.Metric{TemplateVariables: map[string]string{"a": value}})
		v.words["name"], v.words["target"] = value, value
		if checkQuery(text) == nil {
			if out, err := render(text, v, url.QueryEscape); err == nil && len(out) > placeholder.Max {
				t.Errorf("%d bytes", len(out))
			}
		}
		if checkCommand(text) != nil {
			return
		}
		args, err := command.Words(text)
		if err != nil || len(args) == 0 || args[0] == "" {
			t.Errorf("%q is accepted as a command line: %q, %v", text, args, err)
		}
	})
}
