package azure_test

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"
)

// A machine is the service that issues tokens to managed identities (App Service, version 2019-08-01).
type machine struct {
	id    string // the SDK keeps tokens by that, for the whole process
	asked int
}

func newMachine(t *testing.T, token string) *machine {
	m := &machine{id: rand.Text()}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.asked++
		w.Header().Set("Content-Type", "application/json")
		q := r.URL.Query()
		if r.Header.Get("X-IDENTITY-HEADER") != "header-cAnArY" || q.Get("client_id") != m.id || q.Get("resource") != "https://storage.azure.com" {
			w.WriteHeader(http.StatusBadRequest)
		}
		json.NewEncoder(w).Encode(map[string]any{"access_token": token, "token_type": "Bearer", "resource": q.Get("resource"),
			"expires_on": fmt.Sprint(time.Now().Add(time.Hour).Unix())})
	}))
	t.Cleanup(s.Close)
	t.Setenv("IDENTITY_ENDPOINT", s.URL)
	t.Setenv("IDENTITY_HEADER", "header-cAnArY")
	return m
}

// nobodys is a proxy that nothing passes.
func nobodys(*http.Request) (*url.URL, error) { return nil, errors.New("no way") }

// through is a proxy that everything passes.
func through(t *testing.T, to string) func(*http.Request) (*url.URL, error) {
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	return func(*http.Request) (*url.URL, error) { return u, nil }
}
