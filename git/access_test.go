package git_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

func one(t *testing.T) *testenv.Repo {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "1")})
	return repo
}

// An attempt is a fetch with some credentials. Without a reason it succeeds;
// otherwise the error has the reason and says each part of say, separated by |.
type attempt struct {
	name   string
	secret source.Secret
	reason string
	say    string
}

func (a attempt) run(t *testing.T, url string, change func(*source.GitRepository, sourcetest.Secrets)) {
	t.Run(a.name, func(t *testing.T) {
		g := object(url, source.GitRepositoryRef{Branch: "main"})
		secrets := sourcetest.Secrets{}
		if a.secret.Data != nil {
			g.Spec.SecretRef = &source.LocalReference{Name: "login"}
			secrets["default/login"] = a.secret
		}
		if change != nil {
			change(g, secrets)
		}
		_, archive, _, err := try(t.Context(), g, source.Env{Secrets: secrets})
		if a.reason == "" {
			if err != nil || contents(t, archive)["a"] != "1" {
				t.Fatalf("fetch: %v", err)
			}
			return
		}
		var step *source.StepError
		if !errors.As(err, &step) || !slices.Contains(strings.Split(a.reason, "|"), step.Reason) {
			t.Fatalf("%v: want a StepError with reason %s", err, a.reason)
		}
		for s := range strings.SplitSeq(a.say, "|") {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%v: does not say %s", err, s)
			}
		}
		for key, value := range a.secret.Data {
			if len(value) > 4 && key != "username" && strings.Contains(err.Error(), strings.TrimSpace(string(value))) {
				t.Errorf("%v: shows the value of %s", err, key)
			}
		}
	})
}

const (
	auth = "AuthenticationFailed"
	gitf = "GitOperationFailed"
	// In TLS 1.3 a server refuses a client certificate after the handshake. Its
	// reason may be lost when the client is still writing.
	late = auth + "|" + gitf
)

func TestBasicAuth(t *testing.T) {
	url := testenv.ServeHTTP(t, testenv.HTTP{Username: "alice", Password: "s3cret pass"}, one(t)).Repo()
	for _, a := range []attempt{
		{"right", sourcetest.Secret("username", "alice", "password", "s3cret pass"), "", ""},
		{"wrong password", sourcetest.Secret("username", "alice", "password", "wrong-password"), auth, "authentication failed|check the credentials in the Secret"},
		{"none", source.Secret{}, auth, "authentication failed"},
		{"empty secret", sourcetest.Secret("other", "x"), auth, "authentication failed"},
		{"password alone", sourcetest.Secret("password", "s3cret pass"), auth, "default/login|username"},
		{"both", sourcetest.Secret("username", "alice", "password", "s3cret pass", "bearerToken", "token"), auth, "default/login|bearerToken"},
	} {
		a.run(t, url, nil)
	}
	attempt{name: "in the URL"}.run(t, strings.Replace(url, "://", "://alice:s3cret%20pass@", 1), nil)
	attempt{"absent secret", source.Secret{}, auth, "spec.secretRef|default/absent"}.run(t, url, func(g *source.GitRepository, _ sourcetest.Secrets) {
		g.Spec.SecretRef = &source.LocalReference{Name: "absent"}
	})
	_, _, err := git.New(func() *source.GitRepository {
		g := object(url, source.GitRepositoryRef{})
		g.Spec.SecretRef = &source.LocalReference{Name: "login"}
		return g
	}(), source.Env{}).Resolve(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "default/login") {
		t.Errorf("without any Secrets: %v", err)
	}
}

func TestBearerToken(t *testing.T) {
	url := testenv.ServeHTTP(t, testenv.HTTP{Bearer: "t0ken-canary"}, one(t)).Repo()
	for _, a := range []attempt{
		{"right", sourcetest.Secret("bearerToken", "t0ken-canary"), "", ""},
		{"wrong", sourcetest.Secret("bearerToken", "other-token"), auth, "authentication failed"},
	} {
		a.run(t, url, nil)
	}
}

func TestTLS(t *testing.T) {
	ca, other := testenv.NewCA(t), testenv.NewCA(t)
	cert, key := ca.Client("tester")
	otherCert, otherKey := other.Client("stranger")
	repo := one(t)
	private := testenv.ServeHTTP(t, testenv.HTTP{CA: ca}, repo).Repo()
	mutual := testenv.ServeHTTP(t, testenv.HTTP{CA: ca, Mutual: true}, repo).Repo()
	full := testenv.ServeHTTP(t, testenv.HTTP{CA: ca, Mutual: true, Username: "alice", Password: "s3cret"}, repo).Repo()
	for _, row := range []struct {
		url string
		attempt
	}{
		{private, attempt{"ca.crt", sourcetest.Secret("ca.crt", string(ca.PEM())), "", ""}},
		{private, attempt{"caFile", sourcetest.Secret("caFile", string(ca.PEM())), "", ""}},
		{private, attempt{"no ca", source.Secret{}, gitf, "certificate|ca.crt"}},
		{private, attempt{"wrong ca", sourcetest.Secret("ca.crt", string(other.PEM())), gitf, "certificate|ca.crt"}},
		{private, attempt{"ca that is none", sourcetest.Secret("ca.crt", "rubbish"), auth, "default/login|ca.crt"}},
		{mutual, attempt{"client certificate", sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key)), "", ""}},
		{mutual, attempt{"no client certificate", sourcetest.Secret("ca.crt", string(ca.PEM())), late, "git advertisement"}},
		{mutual, attempt{"other client certificate", sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(otherCert), "tls.key", string(otherKey)), late, "git advertisement"}},
		{mutual, attempt{"certificate without key", sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert)), auth, "default/login|tls.key"}},
		{mutual, attempt{"key of another", sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(otherKey)), auth, "default/login|tls"}},
		{full, attempt{"all", sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key), "username", "alice", "password", "s3cret"), "", ""}},
		{full, attempt{"all but the password", sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key)), auth, "authentication failed"}},
	} {
		row.run(t, row.url, nil)
	}
}

func TestSSH(t *testing.T) {
	repo := one(t)
	identity, public := testenv.UserKey(t, "")
	locked, lockedPublic := testenv.UserKey(t, "open sesame")
	stranger, _ := testenv.UserKey(t, "")
	s := testenv.ServeSSH(t, testenv.SSH{Users: []ssh.PublicKey{public, lockedPublic}}, repo)
	id, known := string(identity), string(s.KnownHosts(false))
	elsewhere := string(testenv.ServeSSH(t, testenv.SSH{}, repo).KnownHosts(false))
	elsewhere = strings.ReplaceAll(elsewhere, strings.Fields(elsewhere)[0], strings.Fields(known)[0])
	lines := strings.SplitAfter(strings.TrimSpace(known), "\n")
	offered := ssh.FingerprintSHA256(s.HostKeys[0].PublicKey())
	for _, a := range []attempt{
		{"key", sourcetest.Secret("identity", id, "known_hosts", known), "", ""},
		{"hashed hosts", sourcetest.Secret("identity", id, "known_hosts", string(s.KnownHosts(true))), "", ""},
		{"first line only", sourcetest.Secret("identity", id, "known_hosts", lines[0]), "", ""},
		{"last line only", sourcetest.Secret("identity", id, "known_hosts", lines[len(lines)-1]), "", ""},
		{"passphrase", sourcetest.Secret("identity", string(locked), "known_hosts", known, "password", "open sesame"), "", ""},
		{"wrong passphrase", sourcetest.Secret("identity", string(locked), "known_hosts", known, "password", "open barley"), auth, "passphrase"},
		{"no passphrase", sourcetest.Secret("identity", string(locked), "known_hosts", known), auth, "passphrase"},
		{"stranger", sourcetest.Secret("identity", string(stranger), "known_hosts", known), auth, "authentication failed"},
		{"no key at all", sourcetest.Secret("identity", "rubbish-rubbish", "known_hosts", known), auth, "key"},
		{"no identity", sourcetest.Secret("known_hosts", known), auth, "default/login|identity"},
		{"no known_hosts", sourcetest.Secret("identity", id), auth, "default/login|known_hosts"},
		{"unknown host", sourcetest.Secret("identity", id, "known_hosts", "other.example.com "+strings.Join(strings.Fields(lines[0])[1:], " ")), auth, "known_hosts|SHA256:"},
		{"changed host key", sourcetest.Secret("identity", id, "known_hosts", elsewhere), auth, "SHA256:|" + offered},
	} {
		a.run(t, s.Repo(), nil)
	}
	_, _, _, err := try(t.Context(), object(s.Repo(), source.GitRepositoryRef{}), source.Env{})
	if !errors.Is(err, source.ErrInvalid) || !strings.Contains(err.Error(), "identity and known_hosts") {
		t.Errorf("without secretRef: %v", err)
	}
}

func TestProxies(t *testing.T) {
	repo := one(t)
	ca := testenv.NewCA(t)
	identity, public := testenv.UserKey(t, "")
	plain := testenv.ServeHTTP(t, testenv.HTTP{}, repo)
	secure := testenv.ServeHTTP(t, testenv.HTTP{CA: ca}, repo)
	shell := testenv.ServeSSH(t, testenv.SSH{Users: []ssh.PublicKey{public}}, repo)
	for _, scheme := range []string{"http", "https", "socks5"} {
		p := testenv.ServeProxy(t, testenv.Proxy{Scheme: scheme, CA: ca, Username: "proxy", Password: "pr0xy-pass"})
		for _, target := range []struct {
			url   string
			login source.Secret
		}{
			{plain.Repo(), sourcetest.Secret("ca.crt", string(ca.PEM()))},
			{secure.Repo(), sourcetest.Secret("ca.crt", string(ca.PEM()))},
			{shell.Repo(), sourcetest.Secret("identity", string(identity), "known_hosts", string(shell.KnownHosts(false)), "ca.crt", string(ca.PEM()))},
		} {
			through := func(pairs ...string) func(*source.GitRepository, sourcetest.Secrets) {
				return func(g *source.GitRepository, m sourcetest.Secrets) {
					g.Spec.ProxySecretRef = &source.LocalReference{Name: "proxy"}
					m["default/proxy"] = sourcetest.Secret(pairs...)
				}
			}
			name := scheme + " to " + target.url[:5]
			before := len(p.Seen())
			attempt{name: name, secret: target.login}.run(t, target.url, through("address", p.URL, "username", "proxy", "password", "pr0xy-pass"))
			if seen := p.Seen(); len(seen) == before || strings.HasPrefix(seen[len(seen)-1], "refused") {
				t.Errorf("%s: the proxy saw %v", name, seen)
			}
			refusal := map[string]string{"http": "proxy", "https": "proxy", "socks5": "socks"}[scheme]
			attempt{name + " wrong password", target.login, gitf, refusal}.run(t, target.url, through("address", p.URL, "username", "proxy", "password", "wr0ng-pass"))
			attempt{name + " no address", target.login, auth, "default/proxy|address"}.run(t, target.url, through("username", "proxy"))
		}
	}
}

// A redirect to another host is not shown the credentials.
func TestRedirect(t *testing.T) {
	repo := one(t)
	other := testenv.ServeHTTP(t, testenv.HTTP{}, repo)
	url := testenv.ServeHTTP(t, testenv.HTTP{Defect: testenv.Redirect(other.URL)}, repo).Repo()
	attempt{name: "anonymous"}.run(t, url, nil)
	attempt{"with credentials", sourcetest.Secret("username", "alice", "password", "s3cret-canary"), gitf, "redirect"}.run(t, url, nil)
	for _, q := range other.Requests() {
		if q.Authorization != "" {
			t.Errorf("the other host was shown %q", q.Authorization)
		}
	}
}
