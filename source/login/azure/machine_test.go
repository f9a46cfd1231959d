package azure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// elsewhere takes what is for the address of every cloud's metadata to another.
type elsewhere struct{ address string }

func (e elsewhere) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != metadata {
		return nil, errors.New("asked " + req.URL.Host)
	}
	req = req.Clone(req.Context())
	req.URL.Host = e.address
	return http.DefaultTransport.RoundTrip(req)
}

// dead returns an address that nobody listens at.
func dead(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A program is nobody where there is nothing that it could be, and only there.
func TestNobody(t *testing.T) {
	answer := func(status int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprint(w, `{"error":"invalid_request","error_description":"Identity not found"}`)
		}))
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	for name, c := range map[string]struct {
		vars    map[string]string
		address string
		nobody  bool
	}{
		"no machine":              {nil, dead(t), true},
		"no identity":             {nil, answer(400), true},
		"other cloud":             {nil, answer(404), true},
		"other cloud, with token": {nil, answer(401), true},
		"breaks":                  {nil, answer(500), false},
		"throttles":               {nil, answer(429), false},
		"one of several":          {map[string]string{"AZURE_CLIENT_ID": "some"}, answer(400), false},
		"one, no machine":         {map[string]string{"AZURE_CLIENT_ID": "some"}, dead(t), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := exchange.Environment(func(name string) (string, bool) { v, ok := c.vars[name]; return v, ok })
			i := identity{env: env, client: &http.Client{Transport: elsewhere{c.address}}, at: "the storage account", retries: -1}
			_, err := i.token(t.Context(), accounts)
			if err == nil || errors.Is(err, source.ErrNoIdentity) != c.nobody || !strings.Contains(err.Error(), "managed identity: ") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestNobodyElsewhere(t *testing.T) {
	for s, nobody := range map[string]bool{"azblob://127.0.0.1:10000/c": true, "azblob://store.example/c": true, "oci://store.example/c": false} {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		_, err = New(nil, func(string) (string, bool) { return "", false }).Login(context.Background(), source.LoginRequest{URL: u})
		if !errors.Is(err, source.ErrProvider) || errors.Is(err, source.ErrNoIdentity) != nobody {
			t.Errorf("%s: %v", s, err)
		}
	}
}
