package bucket_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// secrets holds Secrets by name.
type secrets map[string]source.Secret

func (s secrets) Secret(_ context.Context, namespace, name string) (source.Secret, error) {
	if secret, ok := s[name]; ok && namespace == "default" {
		return secret, nil
	}
	return source.Secret{}, fs.ErrNotExist
}

func (secrets) PullSecrets(context.Context, string, string) ([]source.Secret, error) { return nil, nil }

// data returns a Secret with KEY, VALUE, …
func data(keyValue ...string) source.Secret {
	s := source.Secret{Data: map[string][]byte{}}
	for i := 0; i < len(keyValue); i += 2 {
		s.Data[keyValue[i]] = []byte(keyValue[i+1])
	}
	return s
}

func ref(name string) *source.LocalReference { return &source.LocalReference{Name: name} }

// everything asks for all Secrets that there are.
func everything(s *source.BucketSpec) {
	s.SecretRef, s.CertSecretRef, s.ProxySecretRef = ref("creds"), ref("tls"), ref("proxy")
	s.STS = &source.BucketSTSSpec{Provider: "ldap", Endpoint: "https://sts.example", SecretRef: ref("sts"), CertSecretRef: ref("ststls")}
}

func TestAccess(t *testing.T) {
	ca, other := testenv.NewCA(t), testenv.NewCA(t)
	cert, key := ca.Client("me")
	held := secrets{
		"creds":  data("accesskey", "id", "secretkey", "key"),
		"tls":    data("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key)),
		"ststls": data("ca.crt", string(other.PEM())),
		"sts":    data("username", "u", "password", "p"),
		"proxy":  data("address", "http://proxy.example:3128", "username", "u", "password", "p"),
	}
	d, got := newMemory("a", "1"), (*bucket.Access)(nil)
	d.connect = func(_ context.Context, a *bucket.Access) error { got = a; return nil }
	b := newBucket(everything)
	if _, _, err := d.origin(b, source.Env{Secrets: held}).Resolve(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got.Spec != &b.Spec || got.Secret.Name != "default/creds" || string(got.Secret.Data["secretkey"]) != "key" || got.STS.Name != "default/sts" {
		t.Errorf("%+v", got)
	}
	if len(got.Way.TLS.Certificates) != 1 || len(got.STSWay.TLS.Certificates) != 0 || got.Way.TLS.RootCAs.Equal(got.STSWay.TLS.RootCAs) {
		t.Error("the TLS settings are not those of the Secrets")
	}
	for _, way := range []transport.Config{got.Way, got.STSWay} {
		if p, err := way.Proxy(nil); err != nil || p.String() != "http://u:p@proxy.example:3128" {
			t.Errorf("proxy %v, %v", p, err)
		}
	}
	for _, s := range []string{"me", "default/creds"} {
		if slices.Contains(got.Vault.Values(), s) {
			t.Errorf("%q is no secret", s)
		}
	}

	for name, c := range map[string]struct {
		change func(secrets)
		says   string
	}{
		"no credentials":     {func(s secrets) { delete(s, "creds") }, "spec.secretRef: secret default/creds: "},
		"no TLS":             {func(s secrets) { delete(s, "tls") }, "spec.certSecretRef: secret default/tls: "},
		"no proxy":           {func(s secrets) { delete(s, "proxy") }, "spec.proxySecretRef: secret default/proxy: "},
		"no STS":             {func(s secrets) { delete(s, "sts") }, "spec.sts.secretRef: secret default/sts: "},
		"no TLS of STS":      {func(s secrets) { delete(s, "ststls") }, "spec.sts.certSecretRef: secret default/ststls: "},
		"half a certificate": {func(s secrets) { s["tls"] = data("tls.crt", string(cert)) }, "secret default/tls: key tls.key is missing"},
		"no certificate":     {func(s secrets) { s["ststls"] = data("ca.crt", "canary") }, "secret default/ststls: key ca.crt is not PEM"},
		"no address":         {func(s secrets) { s["proxy"] = data("password", "canary") }, "secret default/proxy: key username is missing"},
	} {
		bad := secrets{}
		for k, v := range held {
			bad[k] = v
		}
		c.change(bad)
		_, _, err := d.origin(newBucket(everything), source.Env{Secrets: bad}).Resolve(t.Context(), nil)
		step, ok := errors.AsType[*source.StepError](err)
		if !ok || step.Reason != "AuthenticationFailed" || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The client of an access trusts the CA, has patience, and shows the
// certificate to the endpoint only, to which it keeps.
func TestClient(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Client("me")
	var seen []string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, fmt.Sprintf("%s %d", r.URL.Path, len(r.TLS.PeerCertificates)))
		switch {
		case r.URL.Path == "/away":
			http.Redirect(w, r, "/there", http.StatusFound)
		case r.URL.Path == "/busy" && len(seen)%2 == 1:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = ca.ServerConfig(true, "127.0.0.1")
	server.StartTLS()
	t.Cleanup(server.Close)
	d := newMemory("a", "1")
	d.connect = func(ctx context.Context, a *bucket.Access) error {
		at, _, err := a.Endpoint()
		if err != nil {
			return err
		}
		client := a.Client(at, a.Way)
		for path, want := range map[string]int{"/": 200, "/away": 302, "/busy": 200} {
			seen = nil
			resp, err := client.Get(at.String() + path)
			if err != nil {
				return err
			}
			resp.Body.Close()
			if resp.StatusCode != want || path == "/busy" && len(seen) != 2 {
				t.Errorf("%s: %s after %q", path, resp.Status, seen)
			}
		}
		return nil
	}
	b := newBucket(func(s *source.BucketSpec) {
		s.Endpoint, s.CertSecretRef = strings.TrimPrefix(server.URL, "https://"), ref("tls")
	})
	held := secrets{"tls": data("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key))}
	if _, _, err := d.origin(b, source.Env{Secrets: held}).Resolve(t.Context(), nil); err != nil {
		t.Error(err)
	}
	held["tls"] = data("ca.crt", string(testenv.NewCA(t).PEM()))
	_, _, err := d.origin(b, source.Env{Secrets: held}).Resolve(t.Context(), nil)
	if step, ok := errors.AsType[*source.StepError](err); !ok || step.Reason != "AuthenticationFailed" {
		t.Errorf("another CA: %v", err)
	}
}
