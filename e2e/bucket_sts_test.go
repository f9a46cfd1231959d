package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
)

// TestBucketSTS lets MinIO give temporary keys to users of an LDAP directory
// and to bearers of the tokens of an issuer.
func TestBucketSTS(t *testing.T) {
	ca, unknown := testenv.NewCA(t), testenv.NewCA(t)
	clerk, provider := newProvider(t)
	env := append(serveLDAP(t), "MINIO_IDENTITY_OPENID_CONFIG_URL="+provider+"/.well-known/openid-configuration",
		"MINIO_IDENTITY_OPENID_CLIENT_ID=headgate", "MINIO_IDENTITY_OPENID_CLAIM_NAME=policy")
	store := minioServer{ca: ca, env: env}.serve(t)
	store.bucket("app", files)
	store.admin("idp", "ldap", "policy", "attach", "store", "readwrite", "--user", ldapUser)
	gate := serveHTTPProxy(t)
	trust := keys{"ca.crt": string(ca.PEM())}
	at := "https://" + store.addr
	source := bucketSource{spec: map[string]any{"bucketName": "app"}}.secure(store.addr, trust)
	sts := func(provider, endpoint string, secret, trust keys) bucketSource {
		s := source.with("sts", map[string]any{"provider": provider, "endpoint": endpoint}).secret("sts.secretRef", secret)
		if trust != nil {
			s = s.secret("sts.certSecretRef", trust)
		}
		return s
	}
	alice, mallory := keys{"username": "alice", "password": "canary-alice"}, keys{"username": "alice", "password": "canary-mallory"}
	claims := map[string]any{"iss": provider, "aud": "headgate", "sub": "alice", "policy": "readwrite", "exp": time.Now().Add(time.Hour).Unix()}
	token := func(field string, value any) keys {
		changed := map[string]any{field: value}
		for name, value := range claims {
			if name != field {
				changed[name] = value
			}
		}
		text, err := clerk.sign(changed)
		check(t, err)
		return keys{"token": text}
	}
	const web = "webidentity"
	for _, c := range []attempt{
		{"LDAP", sts("ldap", at, alice, trust), ""},
		{"LDAP by a proxy", sts("ldap", at, alice, trust).secret("proxySecretRef", keys{"address": gate.url, "username": "pat", "password": "pr0xy"}), ""},
		{"LDAP wrong password", sts("ldap", at, mallory, trust), "AuthenticationFailed"},
		{"LDAP without password", sts("ldap", at, keys{"username": "alice"}, trust), "password"},
		{"LDAP, a user with no policy", sts("ldap", at, keys{"username": "bob", "password": "canary-bob"}, trust), "AuthenticationFailed|403|denied"},
		{"LDAP, service of another CA", sts("ldap", at, alice, keys{"ca.crt": string(unknown.PEM())}), "certificate"},
		{"LDAP, service of an unknown CA", sts("ldap", at, alice, nil), "certificate"},
		{"web identity", sts(web, at, token("sub", "alice"), trust), ""},
		{"web identity, expired", sts(web, at, token("exp", time.Now().Add(-time.Hour).Unix()), trust), "AuthenticationFailed"},
		{"web identity, for another audience", sts(web, at, token("aud", "another"), trust), "AuthenticationFailed"},
		{"web identity, a policy that is not there", sts(web, at, token("policy", "none"), trust), "AuthenticationFailed|403|denied"},
		{"web identity, forged", sts(web, at, keys{"token": token("sub", "alice")["token"] + "x"}, trust), "AuthenticationFailed"},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t) })
	}
}

// newProvider returns an issuer and where it tells of its key (OpenID Connect Discovery 1.0).
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

// serveLDAP starts slapd and returns what tells MinIO of it.
func serveLDAP(t *testing.T) (env []string) {
	t.Helper()
	addr, _ := freeAddr(t)
	dir := t.TempDir()
	check(t, os.Mkdir(filepath.Join(dir, "data"), 0o700))
	conf := write(t, filepath.Join(dir, "slapd.conf"), strings.NewReplacer("@DIR@", dir, "@SCHEMA@", "/etc/ldap/schema").Replace(slapdConf))
	run(t, "slapadd", "-f", conf, "-l", write(t, filepath.Join(dir, "entries.ldif"), slapdEntries))
	start(t, exec.Command(tool(t, "slapd"), "-d", "0", "-f", conf, "-h", "ldap://"+addr))
	await(t, addr)
	return []string{"MINIO_IDENTITY_LDAP_SERVER_ADDR=" + addr, "MINIO_IDENTITY_LDAP_SERVER_INSECURE=on",
		"MINIO_IDENTITY_LDAP_LOOKUP_BIND_DN=cn=admin," + ldapBase, "MINIO_IDENTITY_LDAP_LOOKUP_BIND_PASSWORD=admin-password",
		"MINIO_IDENTITY_LDAP_USER_DN_SEARCH_BASE_DN=ou=people," + ldapBase, "MINIO_IDENTITY_LDAP_USER_DN_SEARCH_FILTER=(uid=%s)"}
}

// admin runs mc, to which the store is known as "store".
func (s *objectStore) admin(args ...string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), tool(s.t, "mc"), append([]string{"--insecure"}, args...)...)
	cmd.Env = []string{"MC_CONFIG_DIR=" + s.t.TempDir(), "HOME=" + s.t.TempDir(),
		"MC_HOST_store=" + s.EndpointURL().Scheme + "://" + root["accesskey"] + ":" + root["secretkey"] + "@" + s.addr}
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("mc %q: %v\n%s", args, err, out)
	}
}
