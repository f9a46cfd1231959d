package notify_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/notify"
)

const manifests = `apiVersion: v1
kind: Secret
metadata: {name: on-call}
---
apiVersion: flagger.app/v1beta1
kind: AlertProvider
metadata:
  name: on-call
  namespace: flagger
  labels: {team: a}
  uid: 1-2
spec:
  type: slack
  channel: on-call-alerts
  username: flagger
  address: https://hooks.slack.com/services/YOUR/SLACK/WEBHOOK
  proxy: http://proxy.example:3128
  secretRef: {name: on-call-url}
status:
  conditions: []
---
apiVersion: rollout.headgate.dev/v1beta1
kind: AlertProviderList
items:
- metadata: {name: ops}
  spec: {type: generic, secretRef: {name: a}, certSecretRef: {name: b}}
---
apiVersion: notification.toolkit.fluxcd.io/v1beta1
kind: AlertProvider
metadata: {name: other}
spec: {}
`

func TestDecode(t *testing.T) {
	got, err := notify.Decode("-", strings.NewReader(manifests))
	must(t, err)
	want := []*notify.Provider{{
		APIVersion: "flagger.app/v1beta1", Kind: "AlertProvider", Metadata: rollout.Metadata{Name: "on-call", Namespace: "flagger"},
		Spec: notify.ProviderSpec{Type: notify.Slack, Channel: "on-call-alerts", Username: "flagger", Address: "https://hooks.slack.com/services/YOUR/SLACK/WEBHOOK",
			Proxy: "http://proxy.example:3128", SecretRef: &rollout.SecretRef{Name: "on-call-url"}},
	}, {
		APIVersion: "rollout.headgate.dev/v1beta1", Kind: "AlertProvider", Metadata: rollout.Metadata{Name: "ops", Namespace: "default"},
		Spec: notify.ProviderSpec{Type: notify.Generic, SecretRef: &rollout.SecretRef{Name: "a"}, CertSecretRef: &rollout.SecretRef{Name: "b"}},
	}}
	if !reflect.DeepEqual(got, want) {
		for _, p := range got {
			t.Errorf("%+v", p)
		}
	}
}

// TestDecodeDefects checks that errors name the position of a defect and show no address.
func TestDecodeDefects(t *testing.T) {
	const head = "apiVersion: flagger.app/v1beta1\nkind: AlertProvider\nmetadata: {name: a}\n"
	for text, want := range map[string]string{
		head + "spec: {type: slack, address: 'https://h/x', chanel: x}":                                              "f.yaml:4: document 1: AlertProvider/default/a: spec.chanel: ",
		head + "spec: {type: pigeon, address: 'https://h/x'}":                                                        `spec.type: "pigeon" is not known: use one of [discord gchat generic msteams rocket slack]`,
		head + "spec: {type: \"\\e[31m\", address: 'https://h/x'}":                                                   `spec.type: "" is not known`,
		head + "spec: {type: slack}":                                                                                 "spec.address: is missing",
		head + "spec: {address: 'https://h/x'}":                                                                      "spec.type: ",
		head + "spec: {type: slack, address: 1}":                                                                     "spec.address: must be a string",
		head + "spec: {type: slack, address: hunter2}":                                                               "f.yaml:4: document 1: AlertProvider/default/a: spec.address: must begin with http",
		head + "spec: {type: slack, address: 'https://h/x', proxy: 'ftp://hunter2@h'}":                               "spec.proxy: must begin with http:// or https:// or socks5://",
		head + "spec: {type: slack, secretRef: {}}":                                                                  "spec.secretRef.name: ",
		head + "spec: {type: slack, secretRef: {name: ''}}":                                                          "spec.secretRef.name: is required",
		head + "spec: {type: slack, secretRef: {name: '../x'}}":                                                      `spec.secretRef.name: "../x" is no name`,
		head + "spec: {type: slack, certSecretRef: {name: A}, address: 'https://h'}":                                 `spec.certSecretRef.name: "A" is no name`,
		strings.Replace(head, "name: a", "name: A", 1) + "spec: {type: slack, address: 'https://h/x'}":               `metadata.name: "A" is no name`,
		strings.Replace(head, "name: a", "name: a, namespace: A", 1) + "spec: {type: slack, address: 'https://h/x'}": `metadata.namespace: "A" is no namespace`,
		head: "spec: ",
		"apiVersion: flagger.app/v1\nkind: AlertProvider\nmetadata: {name: a}\nspec: {type: slack, address: 'https://h/x'}": `version "v1" is not read: set apiVersion to flagger.app/v1beta1`,
		"apiVersion: flagger.app/v1beta1\nkind: AlertProvider\nmetadata: {}\nspec: {type: slack, address: 'https://h/x'}":   "metadata.name: ",
		head + "spec: {type: slack, address: 'https://h/x'}\n---\n" + head + "spec: {type: slack, address: 'https://h/x'}":  "document 2: AlertProvider/default/a: there is another of this name",
		"a: [": "f.yaml",
	} {
		list, err := notify.Decode("f.yaml", strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s\n%v, want %s", text, err, want)
		}
		if len(list) > 0 && !strings.Contains(text, "---") {
			t.Errorf("%s\nwas decoded", text)
		}
	}
}

var must = testenv.Must
