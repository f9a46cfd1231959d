package rollout_test

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
)

// A recorder is a server that records requests byte for byte.
type recorder struct {
	URL    string
	answer func(n int) string // returns the raw answer to request n, from 0 on; the server closes the connection after one with Connection: close, or ""

	mu       sync.Mutex
	requests []string
	conns    int
}

// record runs a recorder until the test ends.
func record(t *testing.T, answer func(n int) string) *recorder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r := &recorder{URL: "http://" + l.Addr().String(), answer: answer}
	var all sync.WaitGroup
	open := map[net.Conn]bool{}
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.conns++
			open[conn] = true
			r.mu.Unlock()
			all.Go(func() { r.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		r.mu.Lock()
		for conn := range open {
			conn.Close()
		}
		r.mu.Unlock()
		all.Wait()
	})
	return r
}

func (r *recorder) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		request, err := readRaw(in)
		if err != nil {
			return
		}
		r.mu.Lock()
		n := len(r.requests)
		r.requests = append(r.requests, request)
		r.mu.Unlock()
		answer := r.answer(n)
		if answer == "" {
			return
		}
		if _, err := io.WriteString(conn, answer); err != nil || strings.Contains(answer, "Connection: close") {
			return
		}
	}
}

// readRaw reads a request with a Content-Length.
func readRaw(in *bufio.Reader) (string, error) {
	var text strings.Builder
	length := 0
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return "", err
		}
		text.WriteString(line)
		if value, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return "", err
			}
		}
		if line == "\r\n" {
			break
		}
	}
	_, err := io.CopyN(&text, in, int64(length))
	return text.String(), err
}

// seen returns the requests so far, and the number of their connections.
func (r *recorder) seen() ([]string, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests, r.conns
}

// reply returns a raw answer with a body.
func reply(status int, body string, headers ...string) string {
	text := fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: %d\r\n", status, len(body))
	for _, h := range headers {
		text += h + "\r\n"
	}
	return text + "\r\n" + body
}

// always returns the same answer to each request.
func always(answer string) func(int) string { return func(int) string { return answer } }

// inTurn returns the answers in order, and then repeats the last one.
func inTurn(answers ...string) func(int) string {
	return func(n int) string { return answers[min(n, len(answers)-1)] }
}

// raw returns a request as a webhook receives it: that of the reference implementation, with
// the headers of a Secret before and after Content-Type.
func raw(host, path, before, body, after string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: " + strconv.Itoa(len(body)) +
		"\r\n" + before + "Content-Type: application/json\r\n" + after + "Accept-Encoding: gzip\r\n\r\n" + body
}

func wantRequest(t *testing.T, r *recorder, want string) {
	t.Helper()
	all, _ := r.seen()
	if len(all) != 1 {
		t.Fatalf("%d requests", len(all))
	}
	testenv.Equal(t, all[0], want, "got")
}

// payloads holds bodies recorded from the reference implementation (see docs/reference/canaries.md, "Webhooks").
var payloads = map[string]struct {
	payload rollout.Payload
	body    string
}{
	"no metadata": {
		rollout.Payload{Name: "podinfo", Namespace: "test", Phase: rollout.Progressing, Checksum: "5594979469"},
		`{"name":"podinfo","namespace":"test","phase":"Progressing","checksum":"5594979469"}`},
	"empty metadata": {
		rollout.Payload{Name: "podinfo", Namespace: "test", Phase: rollout.Waiting, Checksum: "5594979469", Metadata: map[string]string{}},
		`{"name":"podinfo","namespace":"test","phase":"Waiting","checksum":"5594979469"}`},
	"sorted keys": {
		rollout.Payload{Name: "podinfo", Namespace: "test", Phase: rollout.Progressing, Checksum: "x", Metadata: map[string]string{"b": "2", "type": "cmd", "a": "1", "B": "3", "": "0"}},
		`{"name":"podinfo","namespace":"test","phase":"Progressing","checksum":"x","metadata":{"":"0","B":"3","a":"1","b":"2","type":"cmd"}}`},
	"html": {
		rollout.Payload{Name: "podinfo", Namespace: "test", Phase: rollout.Failed, Checksum: "x", Metadata: map[string]string{"cmd": "hey -z 1m -q 10 'http://podinfo.test/?a=1&b=<2>' && true"}},
		`{"name":"podinfo","namespace":"test","phase":"Failed","checksum":"x","metadata":{"cmd":"hey -z 1m -q 10 'http://podinfo.test/?a=1\u0026b=\u003c2\u003e' \u0026\u0026 true"}}`},
	"control characters and Unicode": {
		rollout.Payload{Name: "podinfo", Namespace: "test", Phase: rollout.Succeeded, Checksum: "x", Metadata: map[string]string{"k": "a\"\\/\b\f\n\r\t\x00\x1f\x7f é 😀 \u2028\u2029"}},
		`{"name":"podinfo","namespace":"test","phase":"Succeeded","checksum":"x","metadata":{"k":"a\"\\/\b\f\n\r\t\u0000\u001f` + "\x7f" + ` é 😀 \u2028\u2029"}}`},
	"not UTF-8": {
		rollout.Payload{Name: "podinfo", Namespace: "test", Phase: rollout.Promoting, Checksum: "x", Metadata: map[string]string{"k\xff": "a\xffb"}},
		`{"name":"podinfo","namespace":"test","phase":"Promoting","checksum":"x","metadata":{"k\ufffd":"a\ufffdb"}}`},
}

func TestRequest(t *testing.T) {
	for name, test := range payloads {
		t.Run(name, func(t *testing.T) {
			r := record(t, always(reply(200, "")))
			var c rollout.Caller
			defer c.Close()
			if _, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: r.URL + "/launch?x=1#frag"}, test.payload); err != nil {
				t.Fatal(err)
			}
			wantRequest(t, r, raw(strings.TrimPrefix(r.URL, "http://"), "/launch?x=1", "", test.body, ""))
		})
	}
}

func TestEventRequest(t *testing.T) {
	at := time.UnixMilli(1767323045678)
	plain := rollout.Event{Message: "New revision <detected>! Scaling up podinfo.test", Time: at, Name: "podinfo", Namespace: "test", Phase: rollout.Progressing, Checksum: "5594979469"}
	full := plain
	full.Warning, full.Code, full.Sequence, full.Weight, full.MaxWeight, full.Iteration, full.FailedChecks, full.Hook, full.Reason = true, "hook-failed", 7, 20, 50, 3, 2, "load-test", "closed"
	for name, test := range map[string]struct {
		event    rollout.Event
		metadata map[string]string
		want     string
	}{
		"as the reference": {plain, map[string]string{"environment": "prod", "eventMessage": "mine", "eventType": "mine", "timestamp": "0"},
			`"environment":"prod","eventMessage":"New revision \u003cdetected\u003e! Scaling up podinfo.test","eventType":"Normal","timestamp":"1767323045678"`},
		"no metadata": {plain, nil,
			`"eventMessage":"New revision \u003cdetected\u003e! Scaling up podinfo.test","eventType":"Normal","timestamp":"1767323045678"`},
		"extras": {full, map[string]string{"reason": "mine"},
			`"canaryWeight":"20","eventCode":"hook-failed","eventMessage":"New revision \u003cdetected\u003e! Scaling up podinfo.test","eventSequence":"7","eventType":"Warning","failedChecks":"2","hook":"load-test","iteration":"3","maxWeight":"50","reason":"mine","timestamp":"1767323045678"`},
	} {
		t.Run(name, func(t *testing.T) {
			r := record(t, always(reply(202, "")))
			var c rollout.Caller
			defer c.Close()
			if answer, err := c.Event(t.Context(), rollout.Hook{Name: "a", Type: rollout.HookEvent, URL: r.URL, Metadata: test.metadata}, test.event); err != nil || answer.Status != 202 {
				t.Fatal(answer, err)
			}
			body := `{"name":"podinfo","namespace":"test","phase":"Progressing","checksum":"5594979469","metadata":{` + test.want + `}}`
			wantRequest(t, r, raw(strings.TrimPrefix(r.URL, "http://"), "/", "", body, ""))
		})
	}
}

func TestEventOfOtherTypeIsRefused(t *testing.T) {
	var c rollout.Caller
	_, err := c.Event(t.Context(), rollout.Hook{Name: "a", URL: "http://127.0.0.1:1"}, rollout.Event{})
	if err == nil || !strings.Contains(err.Error(), "type") {
		t.Error(err)
	}
}

// secrets returns a function that has one Secret.
func secrets(keysAndValues ...string) rollout.Secrets {
	data := map[string][]byte{}
	for i := 0; i < len(keysAndValues); i += 2 {
		data[keysAndValues[i]] = []byte(keysAndValues[i+1])
	}
	return func(_ context.Context, namespace, name string) (map[string][]byte, error) {
		if namespace != "test" || name != "creds" {
			return nil, fmt.Errorf("asked for %s/%s", namespace, name)
		}
		return data, nil
	}
}

var small = rollout.Payload{Name: "podinfo", Namespace: "test"}

const smallBody = `{"name":"podinfo","namespace":"test","phase":"","checksum":""}`

func TestCredentials(t *testing.T) {
	for name, test := range map[string]struct {
		user          string
		secret        []string
		before, after string // headers before and after Content-Type
	}{
		"user information":   {user: "us%65r:p%40ss@", before: "Authorization: Basic dXNlcjpwQHNz\r\n"},
		"token as user":      {user: "tok3n@", before: "Authorization: Basic dG9rM246\r\n"},
		"bearer":             {secret: []string{"bearerToken", "tok3n"}, before: "Authorization: Bearer tok3n\r\n"},
		"basic":              {secret: []string{"username", "user", "password", "p@ss"}, before: "Authorization: Basic dXNlcjpwQHNz\r\n"},
		"secret before user": {user: "a:b@", secret: []string{"bearerToken", "tok3n"}, before: "Authorization: Bearer tok3n\r\n"},
		"headers": {secret: []string{"headers", "x-api-key: tok3n:1\r\n\n  A: 1 \nA: 2"},
			before: "A: 1\r\nA: 2\r\n", after: "X-Api-Key: tok3n:1\r\n"},
		"authorization header": {user: "a:b@", secret: []string{"headers", "Authorization: Splunk tok3n"}, before: "Authorization: Splunk tok3n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := record(t, always(reply(200, "")))
			c := rollout.Caller{Secrets: secrets(test.secret...)}
			defer c.Close()
			hook := rollout.Hook{Name: "a", URL: strings.Replace(r.URL, "://", "://"+test.user, 1)}
			if test.secret != nil {
				hook.SecretRef = &rollout.SecretRef{Name: "creds"}
			}
			if _, err := c.Call(t.Context(), hook, small); err != nil {
				t.Fatal(err)
			}
			wantRequest(t, r, raw(strings.TrimPrefix(r.URL, "http://"), "/", test.before, smallBody, test.after))
		})
	}
}

func TestSignature(t *testing.T) {
	r := record(t, always(reply(200, "")))
	key := "k\x00y\n"
	c := rollout.Caller{Secrets: secrets("hmacKey", key), Now: func() time.Time { return time.Unix(1767323045, 999) }}
	defer c.Close()
	if _, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: r.URL, SecretRef: &rollout.SecretRef{Name: "creds"}}, small); err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte("1767323045." + smallBody))
	want := rollout.SignatureHeader + ": t=1767323045,v1=" + hex.EncodeToString(mac.Sum(nil)) + "\r\n"
	wantRequest(t, r, raw(strings.TrimPrefix(r.URL, "http://"), "/", "", smallBody, want))
}

func TestSecretProblems(t *testing.T) {
	for name, test := range map[string]struct {
		secret []string
		want   string
	}{
		"nothing":               {[]string{"token", "canary"}, "key bearerToken is missing"},
		"both":                  {[]string{"bearerToken", "canary", "username", "canary"}, "key bearerToken and username exclude each other"},
		"line break":            {[]string{"bearerToken", "canary\n"}, "key bearerToken ends in a line break"},
		"password alone":        {[]string{"password", "canary"}, "key username is missing"},
		"no colon":              {[]string{"headers", "A: 1\ncanary"}, "key headers line 2 has no colon"},
		"signature":             {[]string{"headers", "x-headgate-signature: canary"}, "sets X-Headgate-Signature"},
		"authorization clashes": {[]string{"headers", "Authorization: canary", "username", "canary"}, "headers has Authorization"},
	} {
		t.Run(name, func(t *testing.T) {
			c := rollout.Caller{Secrets: secrets(test.secret...)}
			_, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: "http://127.0.0.1:1", SecretRef: &rollout.SecretRef{Name: "creds"}}, small)
			if err == nil || !strings.Contains(err.Error(), "secret test/creds: ") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if strings.Contains(fmt.Sprint(err), "canary") {
				t.Errorf("leaks: %v", err)
			}
		})
	}
	var c rollout.Caller
	for _, hook := range []rollout.Hook{{SecretRef: &rollout.SecretRef{Name: "creds"}}, {CertSecretRef: &rollout.SecretRef{Name: "creds"}}, {SecretRef: &rollout.SecretRef{}}, {CertSecretRef: &rollout.SecretRef{}}} {
		hook.Name, hook.URL = "a", "http://127.0.0.1:1"
		for _, payload := range []rollout.Payload{small, {}} {
			if _, err := c.Call(t.Context(), hook, payload); err == nil || !strings.Contains(err.Error(), "ecretRef") {
				t.Error(err)
			}
		}
	}
}

// A webhook that echoes its request puts no credential into an answer or an error.
func TestEchoShowsNoCredentials(t *testing.T) {
	for name, secret := range map[string][]string{
		"bearer":  {"bearerToken", "canary-tok3n"},
		"basic":   {"username", "user", "password", "canary-p@ss"},
		"headers": {"headers", "X-Api-Key: canary-k3y"},
		"user":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			var r *recorder
			r = record(t, func(n int) string {
				all, _ := r.seen()
				location := "Location: /x?"
				for line := range strings.SplitSeq(all[n], "\r\n") {
					if name, value, _ := strings.Cut(line, ": "); name == "Authorization" || name == "X-Api-Key" {
						location += value + "/" + value
					}
				}
				return reply(302, all[n], location)
			})
			c := rollout.Caller{Secrets: secrets(secret...)}
			defer c.Close()
			hook := rollout.Hook{Name: "a", URL: strings.Replace(r.URL, "://", "://canary-us3r:canary-p@", 1)}
			if secret != nil {
				hook.SecretRef = &rollout.SecretRef{Name: "creds"}
			}
			answer, err := c.Call(t.Context(), hook, small)
			refused, ok := errors.AsType[*rollout.StatusError](err)
			if !ok {
				t.Fatal(err)
			}
			text := fmt.Sprintf("%s %v %s %s", answer.Body, err, refused.Body, refused.Location)
			for _, private := range []string{"canary-tok3n", "canary-p", "canary-k3y", "Y2FuYXJ5", "FuYXJ5LX"} {
				if strings.Contains(text, private) {
					t.Errorf("%s in %s", private, text)
				}
			}
			if !strings.Contains(string(answer.Body), "podinfo") {
				t.Errorf("body is lost: %s", answer.Body)
			}
		})
	}
}

// A webhook that echoes its request in an answer that is not HTTP puts no credential into an error.
func TestMalformedEchoShowsNoCredentials(t *testing.T) {
	r := record(t, always("x canary-k3y Connection: close\r\n\r\n"))
	c := rollout.Caller{Secrets: secrets("headers", "X-Api-Key: canary-k3y")}
	defer c.Close()
	_, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: r.URL, SecretRef: &rollout.SecretRef{Name: "creds"}}, small)
	if err == nil || !strings.Contains(err.Error(), "malformed HTTP status code \"***\"") {
		t.Errorf("got %v", err)
	}
}

// A webhook whose echo is cut or breaks off within a credential shows no part of it.
func TestCutEchoShowsNoCredentials(t *testing.T) {
	long := strings.Repeat("x", rollout.MaxBody-len("Bearer canary-t")) + "Bearer canary-tok3n-and-more"
	for name, answer := range map[string]string{
		"cut":        reply(500, long),
		"breaks off": "HTTP/1.1 500 X\r\nContent-Length: 99\r\nConnection: close\r\n\r\nsaid Bearer canary-tok3n-a",
		"location":   reply(302, "", "Location: /"+strings.Repeat("x", 1200-len("/canary-t"))+"canary-tok3n-and-more"),
	} {
		t.Run(name, func(t *testing.T) {
			r := record(t, always(answer))
			refused, err := refusal(t, &rollout.Caller{Secrets: secrets("bearerToken", "canary-tok3n-and-more")},
				rollout.Hook{Name: "a", URL: r.URL, SecretRef: &rollout.SecretRef{Name: "creds"}})
			if text := fmt.Sprintf("%v %s %s", err, refused.Body, refused.Location); strings.Contains(text, "canary") {
				t.Errorf("leaks: …%s", text[max(0, len(text)-100):])
			}
		})
	}
}

// The body stays within its limit although masks are longer than short credentials.
func TestMaskedBodyIsBounded(t *testing.T) {
	r := record(t, always(reply(200, strings.Repeat("k ", rollout.MaxBody/2))))
	c := rollout.Caller{Secrets: secrets("headers", "X-Key: k")}
	defer c.Close()
	answer, err := c.Call(t.Context(), rollout.Hook{Name: "a", URL: r.URL, SecretRef: &rollout.SecretRef{Name: "creds"}}, small)
	if err != nil || len(answer.Body) != rollout.MaxBody || !answer.Truncated || strings.Contains(string(answer.Body), "k") {
		t.Errorf("%d bytes, truncated %v, %v", len(answer.Body), answer.Truncated, err)
	}
}

// A proxy that echoes its request shows neither its own credentials nor those of the webhook.
func TestEchoOfProxyShowsNoCredentials(t *testing.T) {
	var r *recorder
	r = record(t, func(n int) string {
		all, _ := r.seen()
		return reply(502, all[n])
	})
	u, err := url.Parse(strings.Replace(r.URL, "://", "://proxy:canary-p%40ss@", 1))
	must(t, err)
	refused, err := refusal(t, &rollout.Caller{Proxy: http.ProxyURL(u)}, rollout.Hook{Name: "a", URL: "http://tester.invalid/"})
	text := fmt.Sprintf("%v %s", err, refused.Body)
	if !strings.Contains(text, "Proxy-Authorization: ***") || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte("proxy:canary-p@ss"))) {
		t.Errorf("got %s", text)
	}
}

// The expected checksums are those of the reference implementation.
func TestChecksum(t *testing.T) {
	for spec, want := range map[string]string{"abc": "5594979469", "": "758df7c9fc", strings.Repeat("spec", 1000): "f6bc6c5c"} {
		testenv.Equal(t, rollout.Checksum(spec), want, "%.10q", spec)
	}
}
