package e2e

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"github.com/headgate-io/headgate/internal/testenv"
)

const (
	azureAccount = "devstoreaccount1"
	azureTenant  = "72f988bf-86f1-41af-91ab-2d7cd011db47"
)

// An azureStore is Azurite, with one account.
type azureStore struct {
	t    *testing.T
	addr string
	url  string // of the account
	key  string // of the account, in base64
	*azblob.Client
}

// serveAzurite starts Azurite, with TLS and bearer tokens when ca is not nil.
func serveAzurite(t *testing.T, ca *testenv.CA) *azureStore {
	t.Helper()
	addr, port := freeAddr(t)
	s := &azureStore{t: t, addr: addr, key: base64.StdEncoding.EncodeToString([]byte("canary-key-of-account-0123456789"))}
	args := []string{"--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--blobHost", "127.0.0.1", "--blobPort", port}
	scheme, web := "http", &http.Client{}
	if ca != nil {
		dir := t.TempDir()
		cert, key := ca.Server()
		args = append(args, "--oauth", "basic", "--cert", write(t, filepath.Join(dir, "tls.crt"), string(cert)), "--key", write(t, filepath.Join(dir, "tls.key"), string(key)))
		scheme, web.Transport = "https", trusting(ca)
	}
	cmd := exec.Command(tool(t, "azurite"), args...)
	cmd.Env = append(cmd.Environ(), "AZURITE_ACCOUNTS="+azureAccount+":"+s.key)
	start(t, cmd)
	await(t, addr)
	s.url = scheme + "://" + addr + "/" + azureAccount
	shared, err := azblob.NewSharedKeyCredential(azureAccount, s.key)
	check(t, err)
	o := new(azblob.ClientOptions)
	o.Transport = web
	s.Client, err = azblob.NewClientWithSharedKeyCredential(s.url, shared, o)
	check(t, err)
	return s
}

// container makes a container with blobs.
func (s *azureStore) container(name string, public *container.PublicAccessType, blobs keys) {
	s.t.Helper()
	_, err := s.CreateContainer(s.t.Context(), name, &azblob.CreateContainerOptions{Access: public})
	check(s.t, err)
	for key, text := range blobs {
		s.put(name, key, text)
	}
}

func (s *azureStore) put(container, key, text string) {
	s.t.Helper()
	_, err := s.UploadBuffer(context.Background(), container, key, []byte(text), nil)
	check(s.t, err)
}

// sign returns a shared access signature that lets a container be listed and read until expiry.
func (s *azureStore) sign(name string, expiry time.Time) string {
	s.t.Helper()
	url, err := s.ServiceClient().NewContainerClient(name).GetSASURL(sas.ContainerPermissions{Read: true, List: true}, expiry, &container.GetSASURLOptions{StartTime: new(expiry.Add(-24 * time.Hour))})
	check(s.t, err)
	_, query, _ := strings.Cut(url, "?")
	return query
}

// TestBucketAzure fetches from Azurite with each kind of credentials.
func TestBucketAzure(t *testing.T) {
	ca := testenv.NewCA(t)
	plain, secure := serveAzurite(t, nil), serveAzurite(t, ca)
	plain.container("app", nil, files)
	plain.container("public", new(container.PublicAccessTypeContainer), files)
	secure.container("app", nil, files)
	authority := serveEntra(t, ca)
	source := bucketAt(plain.url, "app").with("provider", "azure")
	good, expired := plain.sign("app", time.Now().Add(time.Hour)), plain.sign("app", time.Now().Add(-time.Hour))
	bearer := func(secret string) bucketSource {
		return source.secure(secure.url, keys{"ca.crt": string(ca.PEM())}).
			secret("secretRef", keys{"tenantId": azureTenant, "clientId": "headgate", "clientSecret": secret, "authorityHost": authority})
	}
	signature := func(query string) string { _, after, _ := strings.Cut(query, "sig="); return after }
	for _, c := range []attempt{
		{"account key", source.secret("secretRef", keys{"accountKey": plain.key}), ""},
		{"wrong account key", source.secret("secretRef", keys{"accountKey": base64.StdEncoding.EncodeToString([]byte("canary-another-key"))}), "403"},
		{"account key that is none", source.secret("secretRef", keys{"accountKey": "canary !"}), "accountKey"},
		{"signature in the Secret", source.secret("secretRef", keys{"sasKey": good}), ""},
		{"signature with its question mark", source.secret("secretRef", keys{"sasKey": "?" + good}), ""},
		{"signature in the endpoint", source.with("endpoint", plain.url+"?"+good), ""},
		{"signature in the Secret wins", source.with("endpoint", plain.url+"?"+expired).secret("secretRef", keys{"sasKey": good}), ""},
		{"signature that has ended", source.secret("secretRef", keys{"sasKey": expired}), "403"},
		{"signature in the endpoint that has ended", source.with("endpoint", plain.url+"?"+expired), "403"},
		{"account key over TLS", source.secure(secure.url, keys{"ca.crt": string(ca.PEM())}).secret("secretRef", keys{"accountKey": plain.key}), ""},
		{"application", bearer("canary-application"), ""},
		{"application, wrong secret", bearer("canary-wrong"), "AuthenticationFailed|401"},
		{"anonymous", source.with("bucketName", "public"), ""},
		{"anonymous, private container", source, "403|404"},
		{"no such container", source.with("bucketName", "absent").secret("secretRef", keys{"accountKey": plain.key}), "404|ContainerNotFound"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.run(t)
			for _, query := range []string{good, expired} {
				if text := got.said(); strings.Contains(text, signature(query)) {
					t.Errorf("a signature is shown: %s", text)
				}
			}
		})
	}
}

// serveEntra starts an authority of Microsoft Entra that knows one application,
// and returns its URL. Azurite does not check signatures of tokens.
func serveEntra(t *testing.T, ca *testenv.CA) (url string) {
	t.Helper()
	signer := newIssuer(t)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		base := "https://" + r.Host + "/" + azureTenant
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration"):
			json.NewEncoder(w).Encode(keys{"issuer": base + "/v2.0", "authorization_endpoint": base + "/authorize", "token_endpoint": base + "/token"})
		case r.URL.Path != "/"+azureTenant+"/token":
			w.WriteHeader(http.StatusNotFound)
		case r.FormValue("client_id") != "headgate" || r.FormValue("client_secret") != "canary-application" || r.FormValue("scope") == "":
			w.WriteHeader(http.StatusUnauthorized)
			json.NewEncoder(w).Encode(keys{"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret " + r.FormValue("client_secret")})
		default:
			now := time.Now()
			token, err := signer.sign(map[string]any{"iss": "https://sts.windows.net/" + azureTenant + "/", "aud": "https://storage.azure.com", "sub": "headgate", "jti": rand.Text(),
				"iat": now.Unix(), "nbf": now.Add(-time.Minute).Unix(), "exp": now.Add(time.Hour).Unix()})
			if err != nil {
				t.Error(err)
			}
			json.NewEncoder(w).Encode(map[string]any{"token_type": "Bearer", "expires_in": 3600, "access_token": token})
		}
	}))
	s.TLS = ca.ServerConfig(false)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}
