package notify_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/notify"
)

func TestDecode(t *testing.T) {
	got, err := notify.Decode("r.yaml", strings.NewReader(`
receivers:
- url: https://events.example.org/s3cret
  severity: error
  secretRef: {name: events, namespace: ops}
  certSecretRef: {name: tls}
  proxy: socks5://127.0.0.1:1080
- secretRef: {name: address}
`))
	want := []notify.Receiver{
		{URL: "https://events.example.org/s3cret", Severity: "error", Proxy: "socks5://127.0.0.1:1080", SecretRef: &notify.SecretRef{Namespace: "ops", Name: "events"}, CertSecretRef: &notify.SecretRef{Name: "tls"}},
		{SecretRef: &notify.SecretRef{Name: "address"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v %+v", err, got)
	}
	for text, want := range map[string]string{
		"receivers:\n- url: ftp://h/s3cret":                     `r.yaml:2: document 1: receivers[0].url: must begin with http:// or https://`,
		"receivers:\n- {url: s3cret}":                           `receivers[0].url: must begin with http:// or https://`,
		"receivers:\n- {severity: info}":                        `receivers[0].url: is missing: give it, or a secretRef`,
		"receivers:\n- {url: 'http://h', severity: warn}":       `receivers[0].severity: "warn" is not known: use info or error`,
		"receivers:\n- {url: 'http://h', proxy: 'ftp://h'}":     `receivers[0].proxy: must begin with http:// or https:// or socks5://`,
		"receivers:\n- {url: 'http://h', secretRef: {name: A}}": `receivers[0].secretRef.name: "A" is no name`,
		"receivers:\n- {url: 'http://h', secretRef: {}}":        `receivers[0].secretRef.name: is required`,
		"receivers:\n- {url: 'http://h', secret: s3cret}":       `receivers[0].secret: unknown field`,
		"receivers: {}":                     `receivers: must be a list`,
		"{}":                                `receivers: is required`,
		"- a":                               `r.yaml:1`,
		"receivers: []\n---\nreceivers: []": `document 2: receivers: are in one document`,
		"receivers: [":                      `r.yaml:`,
		"receivers:\n- url: http://h\n- url: http://h\n  url: x\n": `r.yaml:4`,
	} {
		list, err := notify.Decode("r.yaml", strings.NewReader(text))
		if err == nil || list != nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if list, err := notify.Decode("r.yaml", strings.NewReader("")); err != nil || list != nil {
		t.Error(list, err)
	}
}

func TestParseReceiver(t *testing.T) {
	for text, want := range map[string]notify.Receiver{
		"https://h/x":              {URL: "https://h/x"},
		"error=https://h/?a=b":     {URL: "https://h/?a=b", Severity: "error"},
		"info=http://h":            {URL: "http://h", Severity: "info"},
		"https://h/?error=http://": {URL: "https://h/?error=http://"},
	} {
		if got, err := notify.ParseReceiver(text); err != nil || got != want {
			t.Errorf("%s: %+v %v", text, got, err)
		}
	}
	for _, text := range []string{"", "s3cret", "error=", "warn=https://h/s3cret", "ftp://s3cret"} {
		if got, err := notify.ParseReceiver(text); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %+v %v", text, got, err)
		}
	}
}

func TestStart(t *testing.T) {
	_, err := notify.Start(notify.Config{Receivers: []notify.Receiver{{URL: "http://h"}, {URL: "s3cret"}, {}}})
	if err == nil || err.Error() != "receivers[1].url: must begin with http:// or https://\nreceivers[2].url: is missing: give it, or a secretRef to a Secret with the key address" {
		t.Error(err)
	}
}

// secretMap contains Secrets by NAMESPACE/NAME.
type secretMap map[string]map[string]string

func (m secretMap) Secret(_ context.Context, namespace, name string) (source.Secret, error) {
	s := source.Secret{Data: map[string][]byte{}}
	data, found := m[namespace+"/"+name]
	if !found {
		return s, fmt.Errorf("secret %s/%s does not exist", namespace, name)
	}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return s, nil
}

func (m secretMap) PullSecrets(context.Context, string, string) ([]source.Secret, error) {
	return nil, errors.New("none")
}

// Credentials come from Secrets, which are read anew for each post.
func TestCredentials(t *testing.T) {
	server := newRecorder(t, nil)
	secrets := secretMap{"ops/events": {}}
	d := startDispatcher(t, notify.Config{Receivers: []notify.Receiver{{URL: server.URL, SecretRef: &notify.SecretRef{Namespace: "ops", Name: "events"}}}, Secrets: secrets})
	for i, test := range []struct {
		data map[string]string
		want string
	}{
		{map[string]string{"token": "tok3n"}, "Bearer tok3n []"},
		{map[string]string{"bearerToken": "rotated"}, "Bearer rotated []"},
		{map[string]string{"username": "u", "password": "p"}, "Basic dTpw []"},
		{map[string]string{"headers": "X-Api-Key: k\nX-Api-Key: l\nAuthorization: ApiKey x"}, "ApiKey x [k l]"},
		{map[string]string{"address": server.URL + "/other", "headers": "X-Api-Key: k", "token": "t"}, "Bearer t [k]"},
	} {
		secrets["ops/events"] = test.data
		d.Emit(event("app", "info", "x", fmt.Sprint(i)))
		d.Close(t.Context())
		d = startDispatcher(t, notify.Config{Receivers: []notify.Receiver{{URL: server.URL, SecretRef: &notify.SecretRef{Namespace: "ops", Name: "events"}}}, Secrets: secrets})
		header := server.header[len(server.header)-1]
		if got := fmt.Sprint(header.Get("Authorization"), " ", header["X-Api-Key"]); got != test.want || len(server.header) != i+1 {
			t.Errorf("%v: %s", test.data, got)
		}
	}
	closeDispatcher(t, d)
}

// Errors about a Secret, and about the answer of a receiver, do not contain the secret itself.
func TestErrorsHideSecrets(t *testing.T) {
	const canary = "c4nary-s3cret"
	echo := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintln(w, r.RequestURI, r.Header)
	})
	for name, test := range map[string]struct {
		data map[string]string
		want string
	}{
		"token with a line break": {map[string]string{"token": canary + "\n"}, "secretRef: secret default/a: key token ends in a line break"},
		"two credentials":         {map[string]string{"token": canary, "username": canary}, "key token and username exclude each other"},
		"two authorizations":      {map[string]string{"token": canary, "headers": "Authorization: " + canary}, "key headers has Authorization, and so have token or username"},
		"echo of headers":         {map[string]string{"headers": "X-Key: " + canary, "token": canary + "2"}, "status 403 Forbidden: / map["},
	} {
		secrets := secretMap{"default/a": test.data}
		var all []string
		ctx, cancel := context.WithCancel(t.Context())
		d := startDispatcher(t, notify.Config{Secrets: secrets, Receivers: []notify.Receiver{{URL: echo.URL, SecretRef: &notify.SecretRef{Name: "a"}}}, Report: func(err error, _ bool) {
			all = append(all, err.Error())
			cancel() // no further attempt
		}})
		d.Emit(event("app", "info", "x", "y"))
		err := d.Close(ctx)
		all = append(all, fmt.Sprint(err))
		if got := strings.Join(all, "\n"); !strings.Contains(got, test.want) || strings.Contains(got, canary) {
			t.Errorf("%s: %s", name, got)
		}
		cancel()
	}
}
