package e2e

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strings"
	"testing"
)

// A googleStore is fake-gcs-server, which wants no credentials.
type googleStore struct {
	t    *testing.T
	addr string
}

func serveGoogle(t *testing.T) *googleStore {
	t.Helper()
	addr, port := freeAddr(t)
	start(t, exec.Command(tool(t, "fake-gcs-server"), "-scheme", "http", "-host", "127.0.0.1", "-port", port, "-backend", "memory",
		"-external-url", "http://"+addr, "-public-host", addr, "-log-level", "error"))
	await(t, addr)
	return &googleStore{t, addr}
}

// bucket makes a bucket with objects.
func (s *googleStore) bucket(name string, objects keys) {
	s.t.Helper()
	s.post("/storage/v1/b?project=test", "application/json", `{"name":"`+name+`"}`)
	for key, text := range objects {
		s.put(name, key, text)
	}
}

func (s *googleStore) put(bucket, key, text string) {
	s.t.Helper()
	s.post("/upload/storage/v1/b/"+bucket+"/o?uploadType=media&name="+url.QueryEscape(key), "application/octet-stream", text)
}

func (s *googleStore) post(path, kind, text string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+s.addr+path, strings.NewReader(text))
	check(s.t, err)
	r.Header.Set("Content-Type", kind)
	a, err := http.DefaultClient.Do(r)
	check(s.t, err)
	defer a.Body.Close()
	if said, _ := io.ReadAll(io.LimitReader(a.Body, 1000)); a.StatusCode != http.StatusOK {
		s.t.Fatalf("POST %s: %s: %s", path, a.Status, said)
	}
}

// TestBucketGoogle fetches from fake-gcs-server with the key of a service
// account, which a token service exchanges, and counts what is asked.
func TestBucketGoogle(t *testing.T) {
	s := serveGoogle(t)
	s.bucket("app", files)
	const token = "canary-access-token"
	front := newNamingFront(t, s.addr, func(r *http.Request) string {
		who := ""
		if r.Header.Get("Authorization") != "Bearer "+token {
			who = "anonymous "
		}
		if strings.HasSuffix(r.URL.Path, "/o") {
			return who + "list"
		}
		return who + r.URL.Path
	})
	at := func(key keys) bucketSource {
		return bucketAt("http://"+front.addr, "app").with("provider", "gcp").secret("secretRef", key)
	}
	accounts := newAccounts(t, token)
	c := counted{front: front, source: at(accounts.key(t, accounts.private)), store: t.TempDir(), files: maps.Clone(files), below: "/storage/v1/b/app/o/"}
	c.run(t, func(key, text string) { s.put("app", key, text) })
	s.put("app", "README.md", files["README.md"])
	another, err := rsa.GenerateKey(rand.Reader, 2048)
	check(t, err)
	for _, c := range []attempt{
		{"key", at(accounts.key(t, accounts.private)), ""},
		{"key of another", at(accounts.key(t, another)), "AuthenticationFailed|invalid_grant"},
		{"authorized user", at(keys{"serviceaccount": `{"type":"authorized_user","client_id":"c","client_secret":"canary","refresh_token":"canary"}`}), "service_account"},
		{"external account", at(keys{"serviceaccount": `{"type":"external_account","token_url":"http://` + s.addr + `/canary"}`}), "service_account"},
		{"no key", at(keys{"other": "canary"}), "serviceaccount"},
		{"anonymous", bucketAt("http://"+front.addr, "app").with("provider", "gcp"), ""},
		{"no such bucket", at(accounts.key(t, accounts.private)).with("bucketName", "absent"), "404"},
	} {
		t.Run(c.name, func(t *testing.T) {
			front.took()
			c.run(t)
			for _, asked := range front.took() {
				if anonymous := strings.Contains(asked, " anonymous "); anonymous != (c.name == "anonymous") {
					t.Errorf("the store was asked %q", asked)
				}
			}
		})
	}
}

// accounts is a token service that knows one service account (RFC 7523).
type accounts struct {
	url     string
	private *rsa.PrivateKey
}

func newAccounts(t *testing.T, token string) accounts {
	t.Helper()
	clerk := newIssuer(t) // has a key
	a := accounts{private: clerk.key}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method != http.MethodPost || r.FormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" || !a.signed(r.FormValue("assertion")) {
			w.WriteHeader(http.StatusBadRequest)
			json.NewEncoder(w).Encode(keys{"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
			return
		}
		json.NewEncoder(w).Encode(map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 3600})
	}))
	t.Cleanup(s.Close)
	a.url = s.URL + "/token"
	return a
}

// signed reports whether a token is signed by the account, and is for this service.
func (a *accounts) signed(token string) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err != nil || rsa.VerifyPKCS1v15(&a.private.PublicKey, crypto.SHA256, sum[:], signature) != nil {
		return false
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct{ Iss, Aud, Scope string }
	return err == nil && json.Unmarshal(body, &claims) == nil &&
		claims.Iss == "app@example.com" && claims.Aud == a.url && strings.Contains(claims.Scope, "devstorage.read_only")
}

// key returns a Secret with the key of the account.
func (a accounts) key(t *testing.T, private *rsa.PrivateKey) keys {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(private)
	check(t, err)
	var text bytes.Buffer
	check(t, pem.Encode(&text, &pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	file, err := json.Marshal(keys{"type": "service_account", "project_id": "test", "private_key_id": "1", "private_key": text.String(),
		"client_email": "app@example.com", "token_uri": a.url})
	check(t, err)
	return keys{"serviceaccount": string(file)}
}
