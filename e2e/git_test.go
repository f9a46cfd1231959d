package e2e

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"
)

// sample is a repository whose main branch, tag and pull request hold one tree.
func sample(t *testing.T) (repo *testenv.Repo, commit string) {
	t.Helper()
	repo = testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: fstest.MapFS{"old": {Data: []byte("old\n")}}})
	commit = repo.Commit(testenv.Commit{Branch: "main", Files: fstest.MapFS{
		"README.md":          {Data: []byte("# sample\n")},
		"deploy/app.yaml":    {Data: []byte(strings.Repeat("replicas: 3\n", 5000))},
		"deploy/run":         {Data: []byte("#!/bin/sh\n"), Mode: 0o755},
		"docs/.sourceignore": {Data: []byte("*.tmp\n")},
		"docs/x.tmp":         {Data: []byte("left out\n")},
		"docs/naïve name":    {Data: []byte("ü\n")},
	}})
	repo.AnnotatedTag("v1.2.3", commit, "release")
	repo.Tag("v1.2.0", repo.ID(commit+"^"))
	repo.Ref("refs/pull/7/head", commit)
	return repo, commit
}

// A row is one way to authenticate, or to fail to.
type row struct {
	name      string
	source    gitSource
	code      int
	condition string // regular expression of FetchFailed; "" when the fetch succeeds
}

// attempt fetches into an empty store, and again into one that holds a good
// artifact, which a failure must leave alone.
func (r row) attempt(t *testing.T, want string, good gitSource) {
	store := t.TempDir()
	got := fetchGit(t, store, r.source)
	if got.code != r.code {
		t.Errorf("exit code %d, want %d\n%s", got.code, r.code, got.stderr)
	}
	if r.condition == "" {
		if got.status.Artifact == nil || got.status.Artifact.Digest != want || !strings.HasPrefix(got.status.condition("Ready"), "True Succeeded") {
			t.Errorf("status %+v, want digest %s", got.status, want)
		}
		return
	}
	failed := got.status.condition("FetchFailed")
	if !regexp.MustCompile(r.condition).MatchString(failed) {
		t.Errorf("FetchFailed is %q, want %q", failed, r.condition)
	}
	if ready := got.status.condition("Ready"); strings.TrimPrefix(ready, "False") != strings.TrimPrefix(failed, "True") {
		t.Errorf("Ready is %q, FetchFailed %q", ready, failed)
	}
	if text := got.stderr + failed; strings.Contains(text, "canary") {
		t.Errorf("a credential is shown: %s", text)
	}
	if found := archives(t, store); len(found) > 0 || got.status.Artifact != nil {
		t.Errorf("stored %v, %+v", found, got.status.Artifact)
	}
	if r.code != 1 {
		return
	}
	first := fetchGit(t, store, good)
	second := fetchGit(t, store, r.source)
	if second.code != r.code || second.status.Artifact == nil || *second.status.Artifact != *first.status.Artifact || len(archives(t, store)) != 1 {
		t.Errorf("after a good run: %d, %+v, want the artifact %+v still; archives %v", second.code, second.status.Artifact, first.status.Artifact, archives(t, store))
	}
	resp, err := http.Get(serveArtifacts(t, store) + "/" + first.status.Artifact.Path)
	check(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	check(t, err)
	if digest := fmt.Sprintf("sha256:%x", sha256.Sum256(body)); digest != first.status.Artifact.Digest {
		t.Errorf("after a good run and a bad one: %s, %s, want %s still served", resp.Status, digest, first.status.Artifact.Digest)
	}
}

func TestGitOverHTTP(t *testing.T) {
	repo, _ := sample(t)
	s := serveGit(t, repo)
	cert, key := s.ca.Client("alice")
	_, otherKey := s.ca.Client("bob")
	foreign := testenv.NewCA(t)
	foreignCert, foreignKey := foreign.Client("alice")
	ca, mine, theirs := string(s.ca.PEM()), keys{"tls.crt": string(cert), "tls.key": string(key)}, keys{"tls.crt": string(foreignCert), "tls.key": string(foreignKey)}
	with := func(base keys, kv ...string) keys {
		out := keys{"ca.crt": ca}
		for k, v := range base {
			out[k] = v
		}
		for i := 0; i < len(kv); i += 2 {
			out[kv[i]] = kv[i+1]
		}
		return out
	}
	alice := keys{"username": "alice", "password": "s3cret"}
	public := gitSource{url: s.plain + "/public/repo.git"}
	want := fetchGit(t, t.TempDir(), public).status.Artifact
	if want == nil {
		t.Fatal("no artifact of the public repository")
	}
	for _, r := range []row{
		{"public", public, 0, ""},
		{"basic", gitSource{url: s.plain + "/basic/repo.git", secret: alice}, 0, ""},
		{"basic in the URL", gitSource{url: strings.Replace(s.plain, "//", "//alice:s3cret@", 1) + "/basic/repo.git"}, 0, ""},
		{"basic, wrong password", gitSource{url: s.plain + "/basic/repo.git", secret: keys{"username": "alice", "password": "canary"}}, 1, "^True AuthenticationFailed: .*401"},
		{"basic, nothing given", gitSource{url: s.plain + "/basic/repo.git"}, 1, "^True AuthenticationFailed: .*401"},
		{"basic, no such Secret", gitSource{url: s.plain + "/basic/repo.git", absent: true}, 1, "^True AuthenticationFailed: .*default/secretref"},
		{"basic, password alone", gitSource{url: s.plain + "/basic/repo.git", secret: keys{"password": "canary"}}, 1, "^True AuthenticationFailed: .*default/secretref.*username"},
		{"bearer", gitSource{url: s.secure + "/bearer/repo.git", secret: keys{"ca.crt": ca, "bearerToken": "token"}}, 0, ""},
		{"bearer, wrong token", gitSource{url: s.secure + "/bearer/repo.git", secret: keys{"ca.crt": ca, "bearerToken": "canary"}}, 1, "^True AuthenticationFailed: .*401"},
		{"bearer and basic", gitSource{url: s.secure + "/bearer/repo.git", secret: with(alice, "bearerToken", "canary")}, 1, "^True AuthenticationFailed: .*bearerToken"},
		{"tls", gitSource{url: s.secure + "/public/repo.git", secret: keys{"ca.crt": ca}}, 0, ""},
		{"tls, older key", gitSource{url: s.secure + "/public/repo.git", secret: keys{"caFile": ca}}, 0, ""},
		{"tls and basic", gitSource{url: s.secure + "/basic/repo.git", secret: with(alice)}, 0, ""},
		{"tls, no CA", gitSource{url: s.secure + "/public/repo.git"}, 1, "^True GitOperationFailed: .*unknown authority"},
		{"tls, wrong CA", gitSource{url: s.secure + "/public/repo.git", secret: keys{"ca.crt": string(foreign.PEM())}}, 1, "^True GitOperationFailed: .*unknown authority"},
		{"tls, CA is no PEM", gitSource{url: s.secure + "/public/repo.git", secret: keys{"ca.crt": "canary"}}, 1, "^True AuthenticationFailed: .*ca.crt is not PEM"},
		{"client certificate", gitSource{url: s.mutual + "/public/repo.git", secret: with(mine)}, 0, ""},
		{"client certificate and basic", gitSource{url: s.mutual + "/basic/repo.git", secret: with(mine, "username", "alice", "password", "s3cret")}, 0, ""},
		{"client certificate, none", gitSource{url: s.mutual + "/public/repo.git", secret: keys{"ca.crt": ca}}, 1, "^True GitOperationFailed: .*400"},
		{"client certificate of another CA", gitSource{url: s.mutual + "/public/repo.git", secret: with(theirs)}, 1, "^True GitOperationFailed: .*400"},
		{"client certificate without key", gitSource{url: s.mutual + "/public/repo.git", secret: keys{"ca.crt": ca, "tls.crt": string(cert)}}, 1, "^True AuthenticationFailed: .*tls.key is missing"},
		{"client certificate, wrong key", gitSource{url: s.mutual + "/public/repo.git", secret: with(mine, "tls.key", string(otherKey))}, 1, "^True AuthenticationFailed: .*does not match"},
		{"no such repository", gitSource{url: s.plain + "/public/other.git"}, 1, "^True GitOperationFailed: .*(not found|404)"},
		{"no such branch", gitSource{url: public.url, ref: keys{"branch": "other"}}, 1, "^True GitOperationFailed: .*other"},
	} {
		t.Run(r.name, func(t *testing.T) { r.attempt(t, want.Digest, public) })
	}
}

func TestGitOverSSH(t *testing.T) {
	repo, _ := sample(t)
	identity, public := userKey(t, "ed25519", "")
	sealed, sealedPublic := userKey(t, "ed25519", "open sesame")
	rsa, rsaPublic := userKey(t, "rsa", "")
	ecdsa, ecdsaPublic := userKey(t, "ecdsa", "open sesame")
	stranger, _ := userKey(t, "ed25519", "")
	s := serveSSH(t, repo, public, sealedPublic, rsaPublic, ecdsaPublic)
	web := gitSource{url: serveGit(t, repo).plain + "/public/repo.git"}
	want := fetchGit(t, t.TempDir(), web).status.Artifact
	if want == nil {
		t.Fatal("no artifact over http")
	}
	hosts := s.knownHosts(t, false, "ed25519", "ecdsa", "rsa")
	other := serveSSH(t, repo)
	other.addr = s.addr // its keys under the address of the first
	at := func(identity, hosts string, kv ...string) gitSource {
		secret := keys{"identity": identity, "known_hosts": hosts}
		for i := 0; i < len(kv); i += 2 {
			secret[kv[i]] = kv[i+1]
		}
		return gitSource{url: s.url, secret: secret}
	}
	for _, r := range []row{
		{"key", at(identity, hosts), 0, ""},
		{"rsa key", at(rsa, hosts), 0, ""},
		{"key with passphrase", at(sealed, hosts, "password", "open sesame"), 0, ""},
		{"ecdsa key with passphrase", at(ecdsa, hosts, "password", "open sesame"), 0, ""},
		{"hashed hosts", at(identity, s.knownHosts(t, true, "ed25519", "ecdsa", "rsa")), 0, ""},
		{"only the rsa host key is known", at(identity, s.knownHosts(t, false, "rsa")), 0, ""},
		{"only the ecdsa host key is known, hashed", at(identity, s.knownHosts(t, true, "ecdsa")), 0, ""},
		{"wrong passphrase", at(sealed, hosts, "password", "canary"), 1, "^True AuthenticationFailed: .*identity.*passphrase"},
		{"no passphrase", at(sealed, hosts), 1, "^True AuthenticationFailed: .*passphrase"},
		{"stranger's key", at(stranger, hosts), 1, "^True AuthenticationFailed: .*does not accept the key"},
		{"identity is no key", at("canary", hosts), 1, "^True AuthenticationFailed: .*identity"},
		{"no known hosts", gitSource{url: s.url, secret: keys{"identity": identity}}, 1, "^True AuthenticationFailed: .*known_hosts is missing"},
		{"host is not known", at(identity, "example.org "+s.keys["ed25519"]), 1, "^True AuthenticationFailed: .*SHA256:"},
		{"host has another key", at(identity, other.knownHosts(t, false, "ed25519")), 1, "^True AuthenticationFailed: .*SHA256:.*SHA256:"},
		{"no Secret", gitSource{url: s.url}, 2, "^True .*identity and known_hosts"},
		{"no such Secret", gitSource{url: s.url, absent: true}, 1, "^True AuthenticationFailed: .*default/secretref"},
		{"no identity", gitSource{url: s.url, secret: keys{"known_hosts": hosts}}, 1, "^True AuthenticationFailed: .*identity"},
		{"no such repository", gitSource{url: s.url + "x", secret: at(identity, hosts).secret}, 1, "^True GitOperationFailed: "},
	} {
		t.Run(r.name, func(t *testing.T) { r.attempt(t, want.Digest, web) })
	}
}

func TestGitRefs(t *testing.T) {
	repo, commit := sample(t)
	s := serveGit(t, repo)
	digests := map[string][]string{}
	for name, c := range map[string]struct {
		ref      keys
		revision string
	}{
		"default branch of the specification": {keys{}, ""},
		"branch":                              {keys{"branch": "main"}, "main@sha1:" + commit},
		"tag":                                 {keys{"tag": "v1.2.3"}, "v1.2.3@sha1:" + commit},
		"semver":                              {keys{"semver": ">=1.0.0"}, "v1.2.3@sha1:" + commit},
		"name":                                {keys{"name": "refs/pull/7/head"}, "refs/pull/7/head@sha1:" + commit},
		"commit":                              {keys{"commit": commit}, "sha1:" + commit},
		"commit and branch":                   {keys{"commit": commit, "branch": "main"}, "main@sha1:" + commit},
	} {
		t.Run(name, func(t *testing.T) {
			got := fetchGit(t, t.TempDir(), gitSource{url: s.plain + "/public/repo.git", ref: c.ref})
			if c.revision == "" { // master, which is not there
				if got.code != 1 || !strings.Contains(got.status.condition("FetchFailed"), "master") {
					t.Errorf("%d, %q", got.code, got.status.condition("FetchFailed"))
				}
				return
			}
			if got.code != 0 || got.status.Artifact == nil || got.status.Artifact.Revision != c.revision {
				t.Fatalf("%d, %+v, want revision %s\n%s", got.code, got.status.Artifact, c.revision, got.stderr)
			}
			digests[got.status.Artifact.Digest] = append(digests[got.status.Artifact.Digest], name)
		})
	}
	if len(digests) != 1 {
		t.Errorf("one commit, several artifacts: %v", digests)
	}
}

// TestSameBytes fetches one commit in every way there is.
func TestSameBytes(t *testing.T) {
	repo, _ := sample(t)
	identity, public := userKey(t, "ed25519", "")
	s, shell := serveGit(t, repo), serveSSH(t, repo, public)
	web := gitSource{url: s.plain + "/public/repo.git"}
	clone := filepath.Join(t.TempDir(), "clone")
	run(t, "git", "clone", "-q", "--depth=1", web.url, clone)
	var bytes []string
	for _, c := range []struct {
		source gitSource
		more   []string
	}{
		{web, nil},
		{gitSource{url: shell.url, secret: keys{"identity": identity, "known_hosts": shell.knownHosts(t, false, "ed25519")}}, nil},
		{web, []string{"--from", web.url + "=" + repo.Dir}},
		{web, []string{"--from", web.url + "=" + clone}},
	} {
		store := t.TempDir()
		got := fetchGit(t, store, c.source, c.more...)
		if found := archives(t, store); got.code != 0 || len(found) != 1 {
			t.Fatalf("%s %v: %d, %v\n%s", c.source.url, c.more, got.code, found, got.stderr)
		} else {
			b, err := os.ReadFile(found[0])
			check(t, err)
			bytes = append(bytes, string(b))
		}
	}
	for i, b := range bytes {
		if b != bytes[0] {
			t.Errorf("way %d gives other bytes than way 0", i)
		}
	}
}
