package metric_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout/metric"
)

func TestDecode(t *testing.T) {
	const stream = `
apiVersion: flagger.app/v1beta1
kind: MetricTemplate
metadata:
  name: latency
  namespace: istio-system
  labels: {a: b}
  annotations: {c: d}
spec:
  provider:
    type: prometheus
    address: http://prometheus:9090
    secretRef: {name: auth}
    insecureSkipVerify: true
    headers: {X-Scope-OrgID: [a]}
  query: |
    up{app="{{ target }}"}
status: {conditions: []}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: x}
---
apiVersion: v1
kind: List
items:
- apiVersion: rollout.headgate.dev/v1beta1
  kind: MetricTemplate
  metadata: {name: web}
  spec: {provider: {type: http, address: "https://h/{{ target }}"}, query: .a}
- apiVersion: rollout.headgate.dev/v1beta1
  kind: MetricTemplate
  metadata: {name: shell}
  spec: {provider: {type: exec}, query: "check {{ target }}"}
---
apiVersion: flagger.app/v1beta1
kind: MetricTemplateList
items:
- metadata: {name: default-type}
  spec: {provider: {address: "http://h"}, query: up}
`
	templates, err := metric.Decode("t.yaml", strings.NewReader(stream))
	if err != nil || len(templates) != 4 {
		t.Fatalf("got %d, %v", len(templates), err)
	}
	first := templates[0]
	if p := first.Spec.Provider; first.Metadata.Name != "latency" || first.Metadata.Namespace != "istio-system" || p.Address != "http://prometheus:9090" ||
		p.SecretRef.Name != "auth" || !p.InsecureSkipVerify || p.Headers["X-Scope-OrgID"][0] != "a" || first.Spec.Query != "up{app=\"{{ target }}\"}\n" {
		t.Errorf("got %+v", first)
	}
}

// The error of each defect says where it is and what to do.
func TestDecodeFindsDefects(t *testing.T) {
	const head = "apiVersion: flagger.app/v1beta1\nkind: MetricTemplate\nmetadata: {name: m}\n"
	tests := map[string]struct{ text, want string }{
		"no spec":              {head, "t.yaml:1: document 1: MetricTemplate/default/m: spec: is required"},
		"unknown field":        {head + "spec:\n  provider: {address: http://h}\n  querry: up\n", "t.yaml:6: document 1: MetricTemplate/default/m: spec.querry: unknown field"},
		"no query":             {head + "spec:\n  provider: {address: http://h}\n", "spec.query: is required"},
		"no address":           {head + "spec:\n  provider: {type: prometheus}\n  query: up\n", "spec.provider.address: is required: the URL of the server"},
		"another scheme":       {head + "spec:\n  provider: {address: 'file:///etc'}\n  query: up\n", "spec.provider.address: must begin with http:// or https://"},
		"no host":              {head + "spec:\n  provider: {address: 'http:///x'}\n  query: up\n", "spec.provider.address: has no host"},
		"fragment":             {head + "spec:\n  provider: {address: 'http://h/#x'}\n  query: up\n", "has a fragment"},
		"placeholder":          {head + "spec:\n  provider: {address: 'http://h/{{ name }}'}\n  query: up\n", "has placeholders, which only type http knows"},
		"datadog":              {head + "spec:\n  provider:\n    type: datadog\n    region: eu\n  query: up\n", `t.yaml:6: document 1: MetricTemplate/default/m: spec.provider.type: "datadog" is not supported: use prometheus, http or exec, or a webhook`},
		"region":               {head + "spec:\n  provider: {address: http://h, region: eu}\n  query: up\n", "spec.provider.region: is not for type prometheus"},
		"bad query":            {head + "spec:\n  provider: {address: http://h}\n  query: |\n    up\n    {{ nam }}\n", `spec.query: line:2: function "nam" not defined`},
		"bad path":             {head + "spec:\n  provider: {type: http, address: http://h}\n  query: .a..b\n", `spec.query: is no path at "..b": write it as`},
		"large index":          {head + "spec:\n  provider: {type: http, address: http://h}\n  query: .a[99999999999]\n", `is no path at "[99999999999]"`},
		"odd name":             {head + "spec:\n  provider: {type: http, address: http://h}\n  query: .a$b\n", `is no path at "$b"`},
		"host by placeholder":  {head + "spec:\n  provider: {type: http, address: 'http://{{ target }}/x'}\n", "may have placeholders in its path and query only"},
		"all by placeholder":   {head + "spec:\n  provider: {type: http, address: '{{ variables.address }}'}\n", "may have placeholders in its path and query only"},
		"host and query":       {head + "spec:\n  provider: {type: http, address: 'http://h?a={{ name }}'}\n", "may have placeholders in its path and query only: write https://HOST/"},
		"bad address":          {head + "spec:\n  provider: {type: http, address: 'http://h/{{ nam }}'}\n", `spec.provider.address: line:1: function "nam" not defined`},
		"exec with address":    {head + "spec:\n  provider: {type: exec, address: http://h, insecureSkipVerify: true}\n  query: x\n", "spec.provider.address: is not for type exec"},
		"exec with Secret":     {head + "spec:\n  provider: {type: exec, secretRef: {name: a}}\n  query: x\n", "spec.provider.secretRef: is not for type exec"},
		"exec without program": {head + "spec:\n  provider: {type: exec}\n", "spec.query: is required: the command line"},
		"program placeholder":  {head + "spec:\n  provider: {type: exec}\n  query: '{{ name }} x'\n", "has a placeholder in the name of the program"},
		"open quote":           {head + "spec:\n  provider: {type: exec}\n  query: 'x \"y'\n", `spec.query: is no command line: a " has no end`},
		"if over arguments":    {head + "spec:\n  provider: {type: exec}\n  query: 'x {{ if true }} y {{ end }}'\n", "spec.query: line:1: unexpected EOF"},
		"version":              {strings.Replace(head, "v1beta1", "v1", 1), `version "v1" is not read: set apiVersion to flagger.app/v1beta1`},
		"twice":                {head + "spec: {provider: {address: http://h}, query: up}\n---\n" + head + "spec: {provider: {address: http://other}, query: up}\n", "t.yaml:6: document 2: MetricTemplate/default/m: there is another of this name: rename one"},
		"no YAML":              {"a: [", "t.yaml"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			templates, err := metric.Decode("t.yaml", strings.NewReader(test.text))
			if err == nil || len(templates) != strings.Count(test.text, "\n---\n") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %d, %v\nwant %s", len(templates), err, test.want)
			}
			for line := range strings.Lines(err.Error()) {
				if strings.ContainsRune(line, '\x1b') || !strings.HasPrefix(line, "t.yaml") {
					t.Errorf("the error has the line %q", line)
				}
			}
		})
	}
}
