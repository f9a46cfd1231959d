package azure_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/azure"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// No failure shows a signature, a key or a query, whichever way the account is
// reached and wherever the signature stands (CVE-2024-31216).
func TestNothingShows(t *testing.T) {
	refusing := func(*testing.T) (*bucket.Access, *testenv.Azblob) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		a := access(&testenv.Azblob{URL: "http://" + l.Addr().String() + "/" + account})
		return a, nil
	}
	serving := func(tls bool, d *testenv.Defect) func(t *testing.T) (*bucket.Access, *testenv.Azblob) {
		return func(t *testing.T) (*bucket.Access, *testenv.Azblob) {
			c := testenv.AzblobConfig{SAS: sas, Key: key, Defect: d}
			if tls {
				c.CA = testenv.NewCA(t)
			}
			s := start(t, c)
			return access(s), s
		}
	}
	elsewhere := func(spec string) func(t *testing.T) (*bucket.Access, *testenv.Azblob) {
		return func(*testing.T) (*bucket.Access, *testenv.Azblob) {
			return access(&testenv.Azblob{URL: spec}), nil
		}
	}
	proxied := func(t *testing.T) (*bucket.Access, *testenv.Azblob) {
		a, s := serving(false, nil)(t)
		p := testenv.ServeProxy(t, testenv.Proxy{Username: "user", Password: "other"})
		u, _ := url.Parse(p.URL)
		u.User = url.UserPassword("user", password)
		a.Way.Proxy = func(*http.Request) (*url.URL, error) { return u, nil }
		return a, s
	}
	denied := testenv.AzureFailure(403, "AuthenticationFailed", "no")
	for name, c := range map[string]struct {
		open func(t *testing.T) (*bucket.Access, *testenv.Azblob)
		say  string
	}{
		"refuses connections":     {refusing, "connection refused|refused it"},
		"is no TLS server":        {elsewhere("https://127.0.0.1:1/" + account), "127.0.0.1:1"},
		"certificate not trusted": {serving(true, nil), "certificate"},
		"403":                     {serving(false, denied), "403 Forbidden"},
		"404":                     {serving(false, testenv.Status(404)), "404 Not Found"},
		"repeats the request":     {serving(false, &testenv.Defect{Do: testenv.Leak, Status: 400}), "400 Bad Request"},
		"repeats it, conflict":    {serving(false, &testenv.Defect{Do: testenv.Leak, Status: 409}), "409 Conflict"},
		"malformed XML":           {serving(false, &testenv.Defect{Status: 200, Body: "<EnumerationResults><Name>" + signature}), "list blobs: "},
		"repeats it as XML": {serving(false, &testenv.Defect{Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			w.Write([]byte("<" + r.URL.RawQuery + r.Header.Get("Authorization") + ">"))
		}}), "list blobs: "},
		"redirects":           {serving(false, testenv.Redirect("http://other.example/"+url.PathEscape(signature))), "302 Found: it redirects to http://other.example, which is not followed"},
		"redirects nowhere":   {serving(false, &testenv.Defect{Status: 301, Header: http.Header{"Location": {"%zz" + signature}}}), "list blobs: "},
		"hangs up":            {serving(false, &testenv.Defect{Do: testenv.Cut, After: -1}), "list blobs: "},
		"ends early":          {serving(false, &testenv.Defect{Do: testenv.Cut, After: 60}), "list blobs: "},
		"bad header":          {serving(false, testenv.With("Date", "sig="+signature)), "list blobs: "},
		"proxy refuses":       {proxied, "proxy http://"},
		"stalls":              {serving(false, &testenv.Defect{Do: testenv.Stall, After: -1}), "given up"},
		"stalls in the midst": {serving(false, &testenv.Defect{Do: testenv.Stall, After: 60}), "given up"},
	} {
		for form, keyValue := range map[string][]string{"in a Secret": {"sasKey", "?" + sas}, "in the URL": nil, "key": {"accountKey", key}} {
			t.Run(name+", "+form, func(t *testing.T) {
				t.Parallel()
				a, s := c.open(t)
				if keyValue != nil {
					a.Secret = transport.Secret{Name: "default/secret", Secret: sourcetest.Secret(keyValue...)}
				} else {
					a.Spec.Endpoint += "?" + sas
				}
				a.Vault.Conceal(signature) // which some say whatever they were told
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if s != nil && strings.HasPrefix(name, "stalls") {
					go func() { <-s.Stalled(); cancel(errors.New("given up")) }()
				}
				d, err := azure.Connect(ctx, a)
				if err != nil {
					t.Fatal(err)
				}
				for step, do := range map[string]func() error{
					"list": func() error { _, err := keys(ctx, d, ""); return err },
					"open": func() error {
						_, err := text(ctx, d, bucket.Object{Key: "a.txt", ETag: "0x1", Size: 1}, 0)
						return err
					},
				} {
					err := do()
					clean(t, err)
					said := strings.Split(strings.ReplaceAll(c.say, "list blobs: ", "b"), "|")
					if step == "list" && (err == nil || !contains(err.Error(), said)) {
						t.Errorf("%s: %v: does not say %s", step, err, c.say)
					}
				}
			})
		}
	}
}

func contains(text string, any []string) bool {
	for _, s := range any {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// A request that nobody answers ends with its context, and so does the wait for a token.
func TestGivenUp(t *testing.T) {
	ca := testenv.NewCA(t)
	s := start(t, testenv.AzblobConfig{CA: ca, Tenant: tenant, Client: "app", Secret: password})
	a := trusting(access(s, "tenantId", tenant, "clientId", "app", "clientSecret", password, "authorityHost", s.Base), ca)
	d := connect(t, a)
	s.Expire()
	stalled := s.Break(&testenv.Defect{Phase: testenv.GetToken, Do: testenv.Stall, After: -1})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() { <-stalled; cancel(errors.New("given up")) }()
	ended := make(chan error)
	for range 3 { // one asks for a token, the others wait for it
		go func() { _, err := keys(ctx, d, ""); ended <- err }()
	}
	for range 3 {
		select {
		case err := <-ended:
			clean(t, err)
			if err == nil || !strings.Contains(err.Error(), "given up") {
				t.Error(err)
			}
		case <-time.After(30 * time.Second): // only when it fails
			t.Fatal("nobody gives up")
		}
	}
}
