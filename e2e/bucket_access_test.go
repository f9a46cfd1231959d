package e2e

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"github.com/headgate-io/headgate/internal/testenv"
)

// newTransport returns a transport that trusts the certificates of ca.
func newTransport(ca *testenv.CA) *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}}
}

// TestBucketAccess fetches from MinIO with each kind of credentials.
func TestBucketAccess(t *testing.T) {
	t.Parallel()
	ca, unknown := testenv.NewCA(t), testenv.NewCA(t)
	plain, secure := minioServer{}.serve(t), minioServer{ca: ca}.serve(t)
	for _, s := range []*objectStore{plain, secure} {
		s.bucket("app", files)
	}
	plain.bucket("public", files)
	plain.publish("public")
	elsewhere := minioServer{region: "eu-central-7"}.serve(t)
	elsewhere.bucket("app", files)
	// MinIO cannot require client certificates.
	mutual := serveNginx(t, t.TempDir(), "location / { proxy_pass https://"+secure.addr+"; proxy_set_header Host $http_host; }")
	mutualAddr := strings.TrimPrefix(mutual.mutual, "https://")
	gate := serveHTTPProxy(t)
	trust := stringMap{"ca.crt": string(ca.PEM())}
	cert, key := mutual.ca.Client("alice")
	identity := stringMap{"ca.crt": string(mutual.ca.PEM()), "tls.crt": string(cert), "tls.key": string(key)}
	wrong := stringMap{"accesskey": rootKeys["accesskey"], "secretkey": "canary-wrong-secret"}
	stranger := stringMap{"accesskey": "nobody", "secretkey": "canary-wrong-secret"}
	pat := stringMap{"address": gate.url, "username": "pat", "password": "pr0xy"}
	open, closed := bucketAt(plain.addr, "public"), bucketAt(plain.addr, "app").secret("secretRef", rootKeys)
	tlsApp := closed.secure(secure.addr, trust)
	for _, c := range []attempt{
		{"keys", closed, ""},
		{"wrong secret key", closed.secret("secretRef", wrong), "AuthenticationFailed|403"},
		{"unknown access key", closed.secret("secretRef", stranger), "AuthenticationFailed|403"},
		{"half a pair of keys", closed.secret("secretRef", stringMap{"accesskey": "headgate-root"}), "secretkey"},
		{"no such Secret", bucketAt(plain.addr, "app").with("secretRef", stringMap{"name": "absent"}), "absent"},
		{"anonymous", open, ""},
		{"anonymous, private bucket", bucketAt(plain.addr, "app"), "403|denied"},
		{"public bucket with keys", open.secret("secretRef", rootKeys), ""},
		{"no such bucket", bucketAt(plain.addr, "absent").secret("secretRef", rootKeys), "404|NoSuchBucket"},
		{"nobody listens", closed.with("endpoint", "127.0.0.1:1"), "refused"},
		{"plain HTTP unasked", closed.with("insecure", false), "HTTP"},
		{"TLS", tlsApp, ""},
		{"TLS of an unknown CA", bucketAt(secure.addr, "app").with("insecure", false).secret("secretRef", rootKeys), "certificate"},
		{"TLS of another CA", tlsApp.secure(secure.addr, stringMap{"ca.crt": string(unknown.PEM())}), "certificate"},
		{"mTLS", tlsApp.secure(mutualAddr, identity), ""},
		{"mTLS without", tlsApp.secure(mutualAddr, stringMap{"ca.crt": string(mutual.ca.PEM())}), "400|certificate"},
		{"region", closed.with("endpoint", elsewhere.addr).with("region", "eu-central-7"), ""},
		{"another region, which the store corrects", closed.with("endpoint", elsewhere.addr).with("region", "eu-central-8"), ""},
		{"proxy", closed.secret("proxySecretRef", pat), ""},
		{"proxy TLS", tlsApp.secret("proxySecretRef", pat), ""},
		{"proxy wrong", closed.secret("proxySecretRef", stringMap{"address": gate.url, "username": "pat", "password": "canary-proxy"}), "401|403|407"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := gate.log()
			c.run(t)
			source := c.source.(bucketSource)
			if source.secrets["proxySecretRef"] == nil || c.failed != "" {
				return
			}
			_, port, _ := strings.Cut(source.spec["endpoint"].(string), ":")
			if said := strings.TrimPrefix(gate.log(), before); !strings.Contains(said, port) {
				t.Errorf("the proxy did not see port %s:\n%s", port, said)
			}
		})
	}
}

const (
	azureAccount = "devstoreaccount1"
	azureTenant  = "72f988bf-86f1-41af-91ab-2d7cd011db47"
)

// An azureStore is a running Azurite with one account.
type azureStore struct {
	t    *testing.T
	addr string
	url  string // of the account
	key  string // of the account, in base64
	*azblob.Client
}

// serveAzurite starts Azurite. If ca is not nil, it uses TLS and accepts bearer tokens.
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
		scheme, web.Transport = "https", newTransport(ca)
	}
	cmd := exec.Command(tool(t, "azurite"), args...)
	cmd.Env = append(cmd.Environ(), "AZURITE_ACCOUNTS="+azureAccount+":"+s.key)
	start(t, cmd)
	await(t, addr)
	s.url = scheme + "://" + addr + "/" + azureAccount
	shared, err := azblob.NewSharedKeyCredential(azureAccount, s.key)
	must(t, err)
	o := new(azblob.ClientOptions)
	o.Transport = web
	s.Client, err = azblob.NewClientWithSharedKeyCredential(s.url, shared, o)
	must(t, err)
	return s
}

// container creates a container with blobs.
func (s *azureStore) container(name string, public *container.PublicAccessType, blobs stringMap) {
	s.t.Helper()
	_, err := s.CreateContainer(s.t.Context(), name, &azblob.CreateContainerOptions{Access: public})
	must(s.t, err)
	for key, text := range blobs {
		s.put(name, key, text)
	}
}

func (s *azureStore) put(container, key, text string) {
	s.t.Helper()
	_, err := s.UploadBuffer(context.Background(), container, key, []byte(text), nil)
	must(s.t, err)
}

// sign returns a shared access signature that permits listing and reading a container until expiry.
func (s *azureStore) sign(name string, expiry time.Time) string {
	s.t.Helper()
	url, err := s.ServiceClient().NewContainerClient(name).GetSASURL(sas.ContainerPermissions{Read: true, List: true}, expiry, &container.GetSASURLOptions{StartTime: new(expiry.Add(-24 * time.Hour))})
	must(s.t, err)
	_, query, _ := strings.Cut(url, "?")
	return query
}

// TestBucketAzure fetches from Azurite with each kind of credentials.
func TestBucketAzure(t *testing.T) {
	t.Parallel()
	ca := testenv.NewCA(t)
	plain, secure := serveAzurite(t, nil), serveAzurite(t, ca)
	plain.container("app", nil, files)
	plain.container("public", new(container.PublicAccessTypeContainer), files)
	secure.container("app", nil, files)
	authority := serveEntra(t, ca)
	source := bucketAt(plain.url, "app").with("provider", "azure")
	good, expired := plain.sign("app", time.Now().Add(time.Hour)), plain.sign("app", time.Now().Add(-time.Hour))
	bearer := func(secret string) bucketSource {
		return source.secure(secure.url, stringMap{"ca.crt": string(ca.PEM())}).
			secret("secretRef", stringMap{"tenantId": azureTenant, "clientId": "headgate", "clientSecret": secret, "authorityHost": authority})
	}
	signature := func(query string) string { _, after, _ := strings.Cut(query, "sig="); return after }
	for _, c := range []attempt{
		{"account key", source.secret("secretRef", stringMap{"accountKey": plain.key}), ""},
		{"wrong account key", source.secret("secretRef", stringMap{"accountKey": base64.StdEncoding.EncodeToString([]byte("canary-another-key"))}), "403"},
		{"account key that is none", source.secret("secretRef", stringMap{"accountKey": "canary !"}), "accountKey"},
		{"signature in the Secret", source.secret("secretRef", stringMap{"sasKey": good}), ""},
		{"signature with its question mark", source.secret("secretRef", stringMap{"sasKey": "?" + good}), ""},
		{"signature in the endpoint", source.with("endpoint", plain.url+"?"+good), ""},
		{"signature in the Secret wins", source.with("endpoint", plain.url+"?"+expired).secret("secretRef", stringMap{"sasKey": good}), ""},
		{"signature that has ended", source.secret("secretRef", stringMap{"sasKey": expired}), "403"},
		{"signature in the endpoint that has ended", source.with("endpoint", plain.url+"?"+expired), "403"},
		{"account key over TLS", source.secure(secure.url, stringMap{"ca.crt": string(ca.PEM())}).secret("secretRef", stringMap{"accountKey": plain.key}), ""},
		{"application", bearer("canary-application"), ""},
		{"application, wrong secret", bearer("canary-wrong"), "AuthenticationFailed|401"},
		{"anonymous", source.with("bucketName", "public"), ""},
		{"anonymous, private container", source, "403|404"},
		{"no such container", source.with("bucketName", "absent").secret("secretRef", stringMap{"accountKey": plain.key}), "404|ContainerNotFound"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.run(t)
			for _, query := range []string{good, expired} {
				if text := got.output(); strings.Contains(text, signature(query)) {
					t.Errorf("a signature is shown: %s", text)
				}
			}
		})
	}
}

// serveEntra starts a Microsoft Entra authority that knows one application, and returns its URL.
// Azurite does not check the signatures of tokens.
func serveEntra(t *testing.T, ca *testenv.CA) (url string) {
	t.Helper()
	signer := newIssuer(t)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		base := "https://" + r.Host + "/" + azureTenant
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration"):
			json.NewEncoder(w).Encode(stringMap{"issuer": base + "/v2.0", "authorization_endpoint": base + "/authorize", "token_endpoint": base + "/token"})
		case r.URL.Path != "/"+azureTenant+"/token":
			w.WriteHeader(http.StatusNotFound)
		case r.FormValue("client_id") != "headgate" || r.FormValue("client_secret") != "canary-application" || r.FormValue("scope") == "":
			w.WriteHeader(http.StatusUnauthorized)
			json.NewEncoder(w).Encode(stringMap{"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret " + r.FormValue("client_secret")})
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

// A googleStore is a running fake-gcs-server, which does not require credentials.
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

// bucket creates a bucket with objects.
func (s *googleStore) bucket(name string, objects stringMap) {
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
	must(s.t, err)
	r.Header.Set("Content-Type", kind)
	a, err := http.DefaultClient.Do(r)
	must(s.t, err)
	defer a.Body.Close()
	if said, _ := io.ReadAll(io.LimitReader(a.Body, 1000)); a.StatusCode != http.StatusOK {
		s.t.Fatalf("POST %s: %s: %s", path, a.Status, said)
	}
}

// TestBucketGoogle fetches from fake-gcs-server with the key of a service account, which a token
// service exchanges for tokens, and counts the requests.
func TestBucketGoogle(t *testing.T) {
	t.Parallel()
	s := serveGoogle(t)
	s.bucket("app", files)
	accounts := testenv.StartGCS(t, testenv.StoreConfig{ServiceAccount: "app@example.com"}) // token service (RFC 7523)
	front := newNamingProxy(t, s.addr, func(r *http.Request) string {
		who := ""
		if !slices.Contains(accounts.Issued(), strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")) {
			who = "anonymous "
		}
		if strings.HasSuffix(r.URL.Path, "/o") {
			return who + "list"
		}
		return who + r.URL.Path
	})
	at := func(key string) bucketSource {
		return bucketAt("http://"+front.addr, "app").with("provider", "gcp").secret("secretRef", stringMap{"serviceaccount": key})
	}
	key := string(accounts.Key())
	c := requestCountTest{proxy: front, source: at(key), store: t.TempDir(), files: maps.Clone(files), pathPrefix: "/storage/v1/b/app/o/"}
	c.run(t, func(key, text string) { s.put("app", key, text) })
	s.put("app", "README.md", files["README.md"])
	another, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(another)
	must(t, err)
	forged := stringMap{}
	must(t, json.Unmarshal([]byte(key), &forged))
	forged["private_key"] = pemOf("PRIVATE KEY", der)
	for _, c := range []attempt{
		{"key", at(key), ""},
		{"key of another", at(toJSON(forged)), "AuthenticationFailed|invalid_grant"},
		{"authorized user", at(`{"type":"authorized_user","client_id":"c","client_secret":"canary","refresh_token":"canary"}`), "service_account"},
		{"external account", at(`{"type":"external_account","token_url":"http://` + s.addr + `/canary"}`), "service_account"},
		{"no key", at("").secret("secretRef", stringMap{"other": "canary"}), "serviceaccount"},
		{"anonymous", bucketAt("http://"+front.addr, "app").with("provider", "gcp"), ""},
		{"no such bucket", at(key).with("bucketName", "absent"), "404"},
	} {
		t.Run(c.name, func(t *testing.T) {
			front.takeRequests()
			said := c.run(t).output()
			if slices.ContainsFunc(accounts.Issued(), func(token string) bool { return strings.Contains(said, token) }) {
				t.Errorf("a token is shown: %s", said)
			}
			for _, asked := range front.takeRequests() {
				if anonymous := strings.Contains(asked, " anonymous "); anonymous != (c.name == "anonymous") {
					t.Errorf("the store was asked %q", asked)
				}
			}
		})
	}
}

// TestBucketSTS fetches with temporary keys that MinIO issues to users of an LDAP directory and for
// tokens of an OpenID Connect issuer.
func TestBucketSTS(t *testing.T) {
	t.Parallel()
	ca, unknown := testenv.NewCA(t), testenv.NewCA(t)
	clerk, provider := newProvider(t)
	env := append(serveLDAP(t), "MINIO_IDENTITY_OPENID_CONFIG_URL="+provider+"/.well-known/openid-configuration",
		"MINIO_IDENTITY_OPENID_CLIENT_ID=headgate", "MINIO_IDENTITY_OPENID_CLAIM_NAME=policy")
	store := minioServer{ca: ca, env: env}.serve(t)
	store.bucket("app", files)
	store.admin("idp", "ldap", "policy", "attach", "store", "readwrite", "--user", ldapUser)
	gate := serveHTTPProxy(t)
	trust := stringMap{"ca.crt": string(ca.PEM())}
	at := "https://" + store.addr
	source := bucketSource{spec: map[string]any{"bucketName": "app"}}.secure(store.addr, trust)
	sts := func(provider, endpoint string, secret, trust stringMap) bucketSource {
		s := source.with("sts", map[string]any{"provider": provider, "endpoint": endpoint}).secret("sts.secretRef", secret)
		if trust != nil {
			s = s.secret("sts.certSecretRef", trust)
		}
		return s
	}
	alice, mallory := stringMap{"username": "alice", "password": "canary-alice"}, stringMap{"username": "alice", "password": "canary-mallory"}
	claims := map[string]any{"iss": provider, "aud": "headgate", "sub": "alice", "policy": "readwrite", "exp": time.Now().Add(time.Hour).Unix()}
	token := func(field string, value any) stringMap {
		changed := maps.Clone(claims)
		changed[field] = value
		text, err := clerk.sign(changed)
		must(t, err)
		return stringMap{"token": text}
	}
	const web = "webidentity"
	for _, c := range []attempt{
		{"LDAP", sts("ldap", at, alice, trust), ""},
		{"LDAP by a proxy", sts("ldap", at, alice, trust).secret("proxySecretRef", stringMap{"address": gate.url, "username": "pat", "password": "pr0xy"}), ""},
		{"LDAP wrong password", sts("ldap", at, mallory, trust), "AuthenticationFailed"},
		{"LDAP without password", sts("ldap", at, stringMap{"username": "alice"}, trust), "password"},
		{"LDAP, a user with no policy", sts("ldap", at, stringMap{"username": "bob", "password": "canary-bob"}, trust), "AuthenticationFailed|403|denied"},
		{"LDAP, service of another CA", sts("ldap", at, alice, stringMap{"ca.crt": string(unknown.PEM())}), "certificate"},
		{"LDAP, service of an unknown CA", sts("ldap", at, alice, nil), "certificate"},
		{"web identity", sts(web, at, token("sub", "alice"), trust), ""},
		{"web identity, expired", sts(web, at, token("exp", time.Now().Add(-time.Hour).Unix()), trust), "AuthenticationFailed"},
		{"web identity, for another audience", sts(web, at, token("aud", "another"), trust), "AuthenticationFailed"},
		{"web identity, a policy that is not there", sts(web, at, token("policy", "none"), trust), "AuthenticationFailed|403|denied"},
		{"web identity, forged", sts(web, at, stringMap{"token": token("sub", "alice")["token"] + "x"}, trust), "AuthenticationFailed"},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t) })
	}
}

// newProvider returns an issuer and the URL of its metadata (OpenID Connect Discovery 1.0).
func newProvider(t *testing.T) (i *issuer, url string) {
	t.Helper()
	i = newIssuer(t)
	set := i.keySet(t)
	s := httptest.NewUnstartedServer(nil)
	url = "http://" + s.Listener.Addr().String()
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			json.NewEncoder(w).Encode(map[string]any{"issuer": url, "jwks_uri": url + "/keys", "authorization_endpoint": url, "token_endpoint": url,
				"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"RS256"}})
		case "/keys":
			w.Write([]byte(set))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	s.Start()
	t.Cleanup(s.Close)
	return i, url
}

const (
	ldapBase = "dc=example,dc=org"
	ldapUser = "uid=alice,ou=people," + ldapBase

	slapdConf = `
include @SCHEMA@/core.schema
include @SCHEMA@/cosine.schema
include @SCHEMA@/inetorgperson.schema
pidfile @DIR@/pid
database ldif
suffix "` + ldapBase + `"
rootdn "cn=admin,` + ldapBase + `"
rootpw admin-password
directory @DIR@/data
`
	slapdEntries = `dn: ` + ldapBase + `
objectClass: dcObject
objectClass: organization
dc: example
o: example

dn: ou=people,` + ldapBase + `
objectClass: organizationalUnit
ou: people

dn: ` + ldapUser + `
objectClass: inetOrgPerson
uid: alice
cn: Alice
sn: Alice
userPassword: canary-alice

dn: uid=bob,ou=people,` + ldapBase + `
objectClass: inetOrgPerson
uid: bob
cn: Bob
sn: Bob
userPassword: canary-bob
`
)

// serveLDAP starts slapd and returns the environment that configures MinIO to use it.
func serveLDAP(t *testing.T) (env []string) {
	t.Helper()
	addr, _ := freeAddr(t)
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
	conf := write(t, filepath.Join(dir, "slapd.conf"), strings.NewReplacer("@DIR@", dir, "@SCHEMA@", "/etc/ldap/schema").Replace(slapdConf))
	run(t, "slapadd", "-f", conf, "-l", write(t, filepath.Join(dir, "entries.ldif"), slapdEntries))
	start(t, exec.Command(tool(t, "slapd"), "-d", "0", "-f", conf, "-h", "ldap://"+addr))
	await(t, addr)
	return []string{"MINIO_IDENTITY_LDAP_SERVER_ADDR=" + addr, "MINIO_IDENTITY_LDAP_SERVER_INSECURE=on",
		"MINIO_IDENTITY_LDAP_LOOKUP_BIND_DN=cn=admin," + ldapBase, "MINIO_IDENTITY_LDAP_LOOKUP_BIND_PASSWORD=admin-password",
		"MINIO_IDENTITY_LDAP_USER_DN_SEARCH_BASE_DN=ou=people," + ldapBase, "MINIO_IDENTITY_LDAP_USER_DN_SEARCH_FILTER=(uid=%s)"}
}

// admin runs mc, in which the store has the alias "store".
func (s *objectStore) admin(args ...string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), tool(s.t, "mc"), append([]string{"--insecure"}, args...)...)
	cmd.Env = []string{"MC_CONFIG_DIR=" + s.t.TempDir(), "HOME=" + s.t.TempDir(),
		"MC_HOST_store=" + s.EndpointURL().Scheme + "://" + rootKeys["accesskey"] + ":" + rootKeys["secretkey"] + "@" + s.addr}
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("mc %q: %v\n%s", args, err, out)
	}
}
