package azure_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/azure"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

const (
	account   = "acme"
	signature = "cAnArY/sig+nature="
	password  = "cAnArY~client.secret"
	tenant    = "11111111-2222-3333-4444-555555555555"
)

var (
	key = base64.StdEncoding.EncodeToString([]byte("cAnArY account key that shows nowhere"))
	sas = "sv=2021-12-02&sr=c&sp=rl&se=2999-01-01T00%3A00%3A00Z&sig=" + url.QueryEscape(signature)
)

// planted are the secrets in every spelling that they may come to show in.
func planted() (all []string) {
	for _, s := range []string{signature, password, key} {
		quoted, _ := json.Marshal(s)
		all = append(all, s, url.QueryEscape(s), url.PathEscape(s), url.QueryEscape(url.QueryEscape(s)), strings.Trim(string(quoted), `"`))
	}
	return append(all, sas, "cAnArY")
}

// clean fails when an error shows a secret.
func clean(t *testing.T, err error, more ...string) {
	t.Helper()
	if err == nil {
		return
	}
	for _, s := range append(planted(), more...) {
		if strings.Contains(err.Error(), s) {
			t.Errorf("%q shows: %v", s, err)
			return
		}
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if _, ok := e.(*url.Error); ok {
			t.Errorf("a URL is in the chain: %v", e)
		}
	}
}

// access is of the container content, with a Secret of KEY, VALUE, …
func access(s *testenv.Azblob, keyValue ...string) *bucket.Access {
	a := &bucket.Access{Vault: &transport.Vault{}, Spec: &source.BucketSpec{Provider: "azure", BucketName: "content", Endpoint: s.URL}}
	a.Spec.Insecure = strings.HasPrefix(s.URL, "http:")
	if keyValue != nil {
		a.Secret = transport.Secret{Name: "default/secret", Secret: sourcetest.Secret(keyValue...)}
		for _, value := range a.Secret.Data { // as a Vault does that reads it
			a.Vault.Conceal(string(value))
		}
	}
	return a
}

// trusting makes a trust a CA.
func trusting(a *bucket.Access, ca *testenv.CA) *bucket.Access {
	a.Way.TLS = &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}
	return a
}

func connect(t testing.TB, a *bucket.Access) bucket.Driver {
	t.Helper()
	d, err := azure.Connect(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// keys lists what begins with prefix.
func keys(ctx context.Context, d bucket.Driver, prefix string) (all []bucket.Object, err error) {
	for o, err := range d.List(ctx, prefix) {
		if err != nil {
			return all, err
		}
		all = append(all, o)
	}
	return all, nil
}

func text(ctx context.Context, d bucket.Driver, o bucket.Object, offset int64) (string, error) {
	r, err := d.Open(ctx, o, offset)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return string(b), err
}

// read lists all and reads it.
func read(t *testing.T, d bucket.Driver) (map[string]string, error) {
	t.Helper()
	all, err := keys(t.Context(), d, "")
	if err != nil {
		return nil, err
	}
	got := map[string]string{}
	for _, o := range all {
		if got[o.Key], err = text(t.Context(), d, o, 0); err != nil {
			return nil, err
		}
	}
	return got, nil
}

// application makes a certificate and its key, PEM.
func application(t *testing.T) (cert, both []byte) {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "app"}, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return cert, append(cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})...)
}
