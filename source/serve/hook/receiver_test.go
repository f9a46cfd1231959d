package hook_test

import (
	"context"
	"crypto/hmac"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/hook"
)

const token = "t0ken-of-the-hook"

// A receiver is a Receiver with objects, and notes what it did.
type receiver struct {
	hook.Receiver
	objects map[source.Reference]source.Object
	secrets map[string]map[string]string

	mu       sync.Mutex
	runs     int
	outcomes []hook.Outcome
	err      error // of Request
	open     bool  // who has no signature may trigger what has no Secret
}

func newReceiver(documents string) *receiver {
	set := new(source.Set)
	if err := set.Decode("test", strings.NewReader(documents)); err != nil {
		panic(err)
	}
	d := &receiver{objects: map[source.Reference]source.Object{}, secrets: map[string]map[string]string{"default/hook": {"token": token}}}
	for _, obj := range set.Objects {
		d.objects[source.ReferenceTo(obj)] = obj
	}
	d.Receiver = hook.Receiver{
		Object: func(ref source.Reference) (source.Object, error) {
			if obj, found := d.objects[ref]; found {
				return obj, nil
			}
			return nil, fmt.Errorf("%s: %w", ref, fs.ErrNotExist)
		},
		Secrets: d,
		Request: func(source.Reference) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.runs++
			return d.err
		},
		Allowed: func(*http.Request, source.Reference) bool { return d.open },
		Observe: func(o hook.Outcome) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.outcomes = append(d.outcomes, o)
		},
	}
	return d
}

func (d *receiver) Secret(_ context.Context, namespace, name string) (source.Secret, error) {
	s := source.Secret{Data: map[string][]byte{}}
	data, found := d.secrets[namespace+"/"+name]
	if !found {
		return s, fmt.Errorf("secret %s/%s: %w", namespace, name, fs.ErrNotExist)
	}
	for key, value := range data {
		if value == "broken" {
			return s, errors.New("the store of secrets is broken")
		}
		s.Data[key] = []byte(value)
	}
	return s, nil
}

func (d *receiver) PullSecrets(context.Context, string, string) ([]source.Secret, error) {
	return nil, errors.New("none")
}

// post sends a request over a connection, and returns status, reason and runs.
func (d *receiver) post(t *testing.T, path, body string, header map[string]string) (status int, reason string, runs int) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	for name, value := range header {
		r.Header.Set(name, value)
	}
	return d.serve(t, r)
}

func (d *receiver) serve(t *testing.T, r *http.Request) (status int, reason string, runs int) {
	t.Helper()
	before := d.runs
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	var said struct {
		Status int
		Reason string
	}
	if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || said.Status != w.Code || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%v: %s", err, w.Body)
	}
	last := d.outcomes[len(d.outcomes)-1]
	if last.Status != w.Code || last.Reason == "" {
		t.Errorf("%d was observed as %+v", w.Code, last)
	}
	for _, text := range []string{last.Reason, said.Reason} {
		if strings.Contains(text, token) || strings.ContainsAny(text, "\x1b\n") {
			t.Errorf("%q is not to be shown", text)
		}
	}
	return w.Code, said.Reason, d.runs - before
}

func sum(of func() hash.Hash, key, body string) string {
	mac := hmac.New(of, []byte(key))
	io.WriteString(mac, body)
	return hex.EncodeToString(mac.Sum(nil))
}

const signedApp = `{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: app, annotations: {hook.headgate.dev/secret: hook}}, spec: {url: "https://h/o/app", interval: 1h}}`

const path = "/hook/gitrepository/app"

// serverSecret sets the Secret of the server.
func (d *receiver) serverSecret(name string, data map[string]string) {
	d.Receiver.Secret = name
	delete(d.secrets, "shop/hooks")
	if data != nil {
		d.secrets["shop/hooks"] = data
	}
}
