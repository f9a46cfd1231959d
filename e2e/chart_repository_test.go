package e2e

import (
	"encoding/json"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestChartRepository takes charts from repositories that helm package and helm
// repo index wrote, behind nginx and chartmuseum, and compares what is stored
// with what helm itself pulls.
func TestChartRepository(t *testing.T) {
	h := newHelm(t, nil)
	old, latest, next := h.pack(t, "helm3", written(t, web("1.0.0"))), h.pack(t, "helm4", written(t, web("1.1.0+b.1"))), h.pack(t, "helm3", written(t, web("2.0.0-rc.1")))
	dir := packaged(t, h, web("1.0.0"), web("1.1.0+b.1"), web("2.0.0-rc.1"), small("cache", "0.1.0"))
	nginx := serveFiles(t, dir)
	clerk := serveMuseum(t, "carol", "c4rol", "--storage-timestamp-tolerance", "1s")
	for _, archive := range []string{old, latest, next} {
		clerk.put(t, archive)
	}
	trust := keys{"ca.crt": string(nginx.ca.PEM())}
	cert, key := nginx.ca.Client("alice")
	identity := keys{"ca.crt": string(nginx.ca.PEM()), "tls.crt": string(cert), "tls.key": string(key)}
	alice, carol := keys{"username": "alice", "password": "s3cret"}, keys{"username": "carol", "password": "c4rol"}
	deprecated := keys{"caFile": identity["ca.crt"], "certFile": identity["tls.crt"], "keyFile": identity["tls.key"]}
	for _, c := range []struct {
		name, url   string
		login, cert keys   // nil: no secretRef, no certSecretRef
		failed      string // part of FetchFailed, "" when the fetch succeeds
	}{
		{"nginx", nginx.plain + "/public", nil, nil, ""},
		{"nginx basic", nginx.plain + "/basic/", alice, nil, ""},
		{"nginx basic TLS", nginx.secure + "/basic", alice, trust, ""},
		{"nginx basic without", nginx.plain + "/basic", nil, nil, "401"},
		{"nginx basic wrong", nginx.plain + "/basic", keys{"username": "alice", "password": "canary"}, nil, "401"},
		{"nginx TLS of an unknown CA", nginx.secure + "/public", nil, nil, "certificate"},
		{"nginx mTLS", nginx.mutual + "/public", nil, identity, ""},
		{"nginx mTLS of secretRef", nginx.mutual + "/public", deprecated, nil, ""},
		{"nginx mTLS without", nginx.mutual + "/public", nil, trust, "400"},
		{"nginx mTLS basic", nginx.mutual + "/basic", alice, identity, ""},
		{"chartmuseum basic", clerk.url, carol, nil, ""},
		{"chartmuseum without", clerk.url, nil, nil, "401"},
		{"not there", nginx.plain + "/public/other", nil, nil, "404"},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := map[string]any{"url": c.url}
			docs := []any{chartOf("PkgRepository", "charts", "web", map[string]any{"version": "^1.0.0"})}
			for field, data := range map[string]keys{"secretRef": c.login, "certSecretRef": c.cert} {
				if data != nil {
					spec[field] = keys{"name": strings.ToLower(field)}
					docs = append(docs, secret(strings.ToLower(field), data))
				}
			}
			docs = append(docs, object("PkgRepository", "charts", spec))
			store := t.TempDir()
			got := fetchObjects(t, store, docs)
			if strings.Contains(got.stderr, "canary") {
				t.Errorf("a credential is shown: %s", got.stderr)
			}
			if c.failed != "" {
				failed := got.status["PkgRepository/charts"].condition("FetchFailed")
				if got.code != 1 || !strings.Contains(failed, c.failed) || len(storedFiles(t, store)) != 0 {
					t.Errorf("exit code %d, FetchFailed %q, stored %q", got.code, failed, storedFiles(t, store))
				}
				return
			}
			archive := got.artifact(t, store, "PkgChart/chart")
			if filepath.Base(archive) != "web-1.1.0+b.1.tgz" || read(t, archive) != read(t, pulled(t, h, c.url, c.login, c.cert)) {
				t.Errorf("%s is not what helm pulls", archive)
			}
			if again := fetchObjects(t, store, docs, "--detailed-exitcode"); again.code != 0 {
				t.Errorf("the second run: exit code %d\n%s", again.code, again.stderr)
			}
		})
	}
}

// pulled lets helm pull the version of web that is to be chosen.
func pulled(t *testing.T, h helm, from string, login, cert keys) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{"pull", "web", "--repo", from, "--version", "^1.0.0", "--destination", dir}
	if login["username"] != "" {
		args = append(args, "--username", login["username"], "--password", login["password"])
	}
	for flag, names := range map[string][]string{"--ca-file": {"ca.crt", "caFile"}, "--cert-file": {"tls.crt", "certFile"}, "--key-file": {"tls.key", "keyFile"}} {
		for _, text := range []string{cert[names[0]], login[names[1]]} {
			if text != "" {
				args = append(args, flag, write(t, filepath.Join(t.TempDir(), "pem"), text))
			}
		}
	}
	h.run(t, "helm3", args...)
	return filepath.Join(dir, "web-1.1.0+b.1.tgz")
}

// TestChartIndexRequests counts what is asked of a repository: an index that did
// not change is one answer without content, compressed or not.
func TestChartIndexRequests(t *testing.T) {
	h := newHelm(t, nil)
	dir := packaged(t, h, web("1.0.0"))
	u, err := url.Parse(serveFiles(t, dir).plain)
	check(t, err)
	f := newFront(t, u.Host)
	docs := []any{object("PkgRepository", "charts", map[string]any{"url": "http://" + f.addr + "/public"}), chartOf("PkgRepository", "charts", "web", nil)}
	store := t.TempDir()
	first := fetchedChart(t, store, docs)
	if seen := f.took(); len(seen) != 2 || count(seen, "200") != 2 {
		t.Errorf("the first run asked %q", seen)
	}
	fetchedChart(t, store, docs)
	if seen := f.took(); len(seen) != 1 || seen[0] != "GET /public/index.yaml 304" {
		t.Errorf("the second run asked %q", seen)
	}
	// Stamped again, the index says the same: no new artifact.
	stamp := regexp.MustCompile(`(?m)^generated: .*$`)
	index := stamp.ReplaceAllString(read(t, filepath.Join(dir, "index.yaml")), `generated: "2030-01-01T00:00:00Z"`)
	write(t, filepath.Join(dir, "index.yaml"), index)
	got := fetchObjects(t, store, docs, "--detailed-exitcode")
	if got.artifact(t, store, "PkgChart/chart") != first || got.code != 0 {
		t.Errorf("an index that was stamped again changed something: exit code %d", got.code)
	}
	if seen := f.took(); len(seen) != 1 {
		t.Errorf("the third run asked %q", seen)
	}
	// A further version is one more chart.
	more := packaged(t, h, web("1.0.1"))
	write(t, filepath.Join(dir, "web-1.0.1.tgz"), read(t, filepath.Join(more, "web-1.0.1.tgz")))
	h.run(t, "helm3", "repo", "index", dir)
	if path := fetchedChart(t, store, docs); filepath.Base(path) != "web-1.0.1.tgz" {
		t.Errorf("stored %s", path)
	}
	if seen := f.took(); len(seen) != 2 || !strings.HasSuffix(seen[1], "web-1.0.1.tgz 200") {
		t.Errorf("the fourth run asked %q", seen)
	}
}

// TestIndexSearch compares what index search finds with what helm search finds.
func TestIndexSearch(t *testing.T) {
	h := newHelm(t, nil)
	dir := packaged(t, h, web("1.0.0"), web("1.10.0"), web("1.2.0"), web("2.0.0-rc.1"), small("cache", "0.1.0"))
	address := serveFiles(t, dir).plain
	h.run(t, "helm3", "repo", "add", "charts", address+"/basic", "--username", "alice", "--password", "s3cret")
	for _, more := range [][]string{nil, {"--devel"}, {"--version", "^1.0.0"}} {
		var want, got []struct{ Name, Version, Description string }
		check(t, json.Unmarshal([]byte(h.run(t, "helm3", append([]string{"search", "repo", "charts/web", "--versions", "-o", "json"}, more...)...)), &want))
		cmd := headgate(t.Context(), t, append([]string{"index", "search", address + "/basic", "web", "--secret-ref", "login", "-o", "json"}, more...)...)
		cmd.Env = append(cmd.Env, "HEADGATE_SECRET_LOGIN_USERNAME=alice", "HEADGATE_SECRET_LOGIN_PASSWORD=s3cret")
		out, err := cmd.Output()
		check(t, err)
		check(t, json.Unmarshal(out, &got))
		if len(got) != len(want) || len(got) == 0 {
			t.Fatalf("%q: %v, helm finds %v", more, got, want)
		}
		for i, w := range want {
			if "charts/"+got[i].Name != w.Name || got[i].Version != w.Version || got[i].Description != w.Description {
				t.Errorf("%q: %v, helm finds %v", more, got[i], w)
			}
		}
	}
}
