package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
)

// TestScripts runs the scripts. Each script has its own Git server: $REPO is its URL, $COMMIT1 and
// $COMMIT2 are the commits of main, and v1.0.0 is a tag of the first. $PRIVATE is the same
// repository for user "ci" and password "s3cret", and $CANARY is its URL with user and password.
// $BROKEN is a server that answers 500. The hosts of registries are $REGISTRY, $LOCKED (for the
// same user), $DENYING, $UNREFERRED (refuses manifests that refer to others), $ECHOING (sends back
// the password that it receives) and $OVERTLS (with TLS). $TESTDATA is the folder testdata of the
// module; $SIGNED and $COSIGN have files that gpg, ssh-keygen and cosign signed. The command
// "commit" adds a commit to main, "exits" checks the exit code of a command, "keep" sets a variable
// to the output of the last command, and "layer" pushes a file as a layer. All scripts share the
// session processes that execute headgate commands; after "exec" each command has its own process.
// See bucketServers for object stores, chartServers for chart repositories, webhooks for the
// webhooks of rollouts, and startTester for test runners.
func TestScripts(t *testing.T) {
	signedDir, err := filepath.Abs("../../testdata/signed")
	must(t, err)
	cosignDir, err := filepath.Abs("../../testdata/cosign")
	must(t, err)
	shared, err := filepath.Abs("../../testdata")
	must(t, err)
	sessions := new(commandSessions)
	t.Cleanup(func() { testenv.Equal(t, sessions.end(), nil) })
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("TESTDATA", shared)
			env.Setenv("GOGC", os.Getenv("GOGC"))
			script := read(t, filepath.Join("testdata/script", strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")+".txtar"))
			used := func(names ...string) bool { // unused servers are not started
				return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(script, name) })
			}
			if used("REPO", "PRIVATE", "BROKEN", "STALLED", "CANARY", "BARE", "COMMIT", "SHORT", "commit", "signed") {
				repositories(t, env)
			}
			env.Values[recordingServersKey{}] = map[string]recordingServer{}
			for name, config := range map[string]testenv.RegistryConfig{
				"REGISTRY": {}, "LOCKED": {Username: "ci", Password: "s3cret"}, "DENYING": {Defect: &testenv.Defect{Phase: testenv.PutBlob, Status: 403}},
				"UNREFERRED": {Defect: &testenv.Defect{Phase: testenv.PutManifest, Do: testenv.Serve, Handler: refuseSubjects}},
			} {
				if used(name) {
					registry := testenv.StartRegistry(t, config)
					env.Setenv(name, registry.Host)
					if name == "REGISTRY" {
						env.Values[registryKey{}] = registry
					}
				}
			}
			env.Setenv("ECHOING", startEchoingRegistry(t))
			env.Setenv("LEADING", startRedirectServer(t))
			env.Setenv(testenv.NamesVariable, scriptNames)
			secure := httptest.NewTLSServer(http.NotFoundHandler())
			secure.Config.ErrorLog = log.New(io.Discard, "", 0)
			env.Defer(secure.Close)
			env.Setenv("OVERTLS", secure.Listener.Addr().String())
			env.Setenv("SIGNED", signedDir)
			env.Setenv("COSIGN", cosignDir)
			env.Setenv("GORACE", "atexit_sleep_ms=0") // the default delays each exit by a second
			for _, kv := range testenv.GitEnv(t) {
				name, value, _ := strings.Cut(kv, "=")
				if strings.HasPrefix(name, "GIT_") {
					env.Setenv(name, value)
				}
			}
			env.Values[sessionsKey{}] = sessions
			for _, key := range []any{testerKey{}, serveKey{}} {
				server := new(*serverProcess)
				env.Values[key] = server
				env.Defer(func() {
					if *server != nil {
						(*server).end(true)
					}
				})
			}
			err := errors.Join(bucketServers(t, env, used), chartServers(t, env, used), webhooks(t, env))
			hosts := map[string]string{} // by a name that only the proxy resolves
			for _, name := range []string{"REPO", "REGISTRY", "CHARTS", "S3", "GCS", "AZURE"} {
				host := env.Getenv(name)
				if u, err := url.Parse(host); err == nil && u.Host != "" {
					host = u.Host
				}
				wide := "wide.example" + strings.TrimPrefix(host, "127.0.0.1")
				hosts[wide] = host
				env.Setenv("WIDE"+name, wide)
			}
			env.Setenv("PROXY", strings.TrimPrefix(testenv.ServeProxy(t, testenv.ProxyConfig{Username: "pat", Password: "s3cret", Hosts: hosts}).URL, "http://"))
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"commit": func(ts *testscript.TestScript, _ bool, args []string) {
				repo := ts.Value(repoKey{}).(*testenv.Repo)
				repo.Commit(testenv.Commit{Branch: "main", Message: args[0], Files: tree(args[0])})
			},
			"signed": func(ts *testscript.TestScript, _ bool, args []string) {
				for _, name := range args {
					ts.Check(addSigned(ts.Value(repoKey{}).(*testenv.Repo), signedDir, name))
				}
			},
			"bucket": changeBucket,
			"chart":  changeCharts,
			"asked":  checkRequests,
			"exits":  checkExitCode,
			"headgate": func(ts *testscript.TestScript, not bool, args []string) {
				if code := execute(ts, args); (code == 0) == not {
					ts.Fatalf("exit code %d", code)
				}
			},
			"keep": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
			},
			"layer":   pushLayer,
			"called":  checkCalls,
			"until":   waitForCalls,
			"gate":    setGate,
			"expand":  expand,
			"saved":   waitForFile,
			"serve":   serveStore,
			"notes":   removeNotes,
			"serving": startServe,
			"tester":  startTester,
			"stalled": func(ts *testscript.TestScript, _ bool, _ []string) {
				<-ts.Value(stalledKey{}).(*testenv.GitServer).Stalled()
			},
		},
	})
}

// scriptNames are the names in scripts with their addresses.
const scriptNames = "wide.example=203.0.113.7 site.example=10.0.0.7"

// repositories starts the Git servers of a script.
func repositories(t *testing.T, env *testscript.Env) {
	repo := testenv.NewRepo(t)
	first := repo.Commit(testenv.Commit{Branch: "main", Message: "first", Files: tree("one")})
	repo.Tag("v1.0.0", first)
	second := repo.Commit(testenv.Commit{Branch: "main", Message: "second", Files: tree("two")})
	stalled := testenv.ServeGit(t, testenv.GitConfig{Defect: &testenv.Defect{Phase: testenv.Pack, Do: testenv.Stall, After: 100}}, repo)
	url, private := testenv.ServeGit(t, testenv.GitConfig{}, repo).Repo(), testenv.ServeGit(t, testenv.GitConfig{Username: "ci", Password: "s3cret"}, repo).Repo()
	env.Values[repoKey{}], env.Values[stalledKey{}] = repo, stalled
	for name, value := range map[string]string{
		"REPO": url, "REPOPORT": port(url), "PRIVATE": private, "CANARY": strings.Replace(private, "//", "//ci:s3cret@", 1), "STALLED": stalled.Repo(),
		"BROKEN": testenv.ServeGit(t, testenv.GitConfig{Defect: testenv.Status(500)}, repo).Repo(), "BARE": repo.Dir,
		"COMMIT1": first, "COMMIT2": second, "SHORT1": first[:8], "SHORT2": second[:8],
	} {
		env.Setenv(name, value)
	}
}

// startEchoingRegistry returns the host of a registry that sends back the password that it receives.
func startEchoingRegistry(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, ok := r.BasicAuth()
		if !ok {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"errors":[{"code":"DENIED","message":"is not %s"}]}`, password)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// startRedirectServer returns the port of a server that redirects /to/HOST/PATH to http://HOST/PATH. It serves
// an index at /index/HOST whose charts are at HOST.
func startRedirectServer(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host, ok := strings.CutPrefix(strings.TrimSuffix(r.URL.Path, "/index.yaml"), "/index/"); ok {
			fmt.Fprintf(w, "apiVersion: v1\nentries:\n  web:\n  - {name: web, version: 1.0.0, urls: ['http://%s/web-1.0.0.tgz']}\n", host)
			return
		}
		http.Redirect(w, r, "http://"+strings.TrimPrefix(r.URL.RequestURI(), "/to/"), http.StatusFound)
	}))
	t.Cleanup(server.Close)
	return port(server.URL)
}

func port(text string) string {
	u, _ := url.Parse(text)
	return u.Port()
}

// addSigned adds a branch and a tag NAME that are signed with the key of that name.
func addSigned(repo *testenv.Repo, signedDir, name string) error {
	repo.Tree(fstest.MapFS{"app.yaml": {Data: []byte("replicas: 3\n")}})
	for kind, space := range map[string]string{"commit": "refs/heads/", "tag": "refs/tags/"} {
		raw, err := os.ReadFile(filepath.Join(signedDir, kind+"s", name))
		if err != nil {
			return err
		}
		repo.Ref(space+name, repo.Object(kind, raw))
	}
	return nil
}

type (
	repoKey    struct{}
	stalledKey struct{}

	registryKey struct{}
)

func tree(at string) fstest.MapFS {
	return fstest.MapFS{
		"at":          {Data: []byte(at + "\n"), Mode: 0o644},
		"bin/run.sh":  {Data: []byte("#!/bin/sh\n"), Mode: 0o755},
		"docs/pic.md": {Data: []byte("# docs\n"), Mode: 0o644},
		"logo.png":    {Data: []byte("png"), Mode: 0o644},
	}
}

// checkExitCode runs a command and checks its exit code: exits CODE COMMAND…
func checkExitCode(ts *testscript.TestScript, _ bool, args []string) {
	code := 0
	var exit *exec.ExitError
	if args[1] == "headgate" {
		code = execute(ts, args[2:])
	} else if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// pushLayer stores a file unchanged as the layer of a manifest at $REGISTRY: layer FILE PATH TAG.
func pushLayer(ts *testscript.TestScript, _ bool, args []string) {
	layer := testenv.Blob{MediaType: "application/vnd.oci.image.layer.v1.tar+gzip", Data: []byte(ts.ReadFile(args[0]))}
	ts.Value(registryKey{}).(*testenv.Registry).Push(args[1], args[2], testenv.Manifest{Layers: []testenv.Blob{layer}})
}

// expand replaces $NAME and ${NAME} in files.
func expand(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		text := os.Expand(ts.ReadFile(name), ts.Getenv)
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o666))
	}
}

// waitForFile waits until the content of a file matches: saved FILE PATTERN.
func waitForFile(ts *testscript.TestScript, _ bool, args []string) {
	pattern := regexp.MustCompile(args[1])
	for until := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		if pattern.Match(text) {
			return
		}
		if time.Now().After(until) {
			ts.Fatalf("%s has %s, %v", args[0], text, err)
		}
	}
}

// serveStore serves a store and sets a variable to its URL: serve DIR VARIABLE.
func serveStore(ts *testscript.TestScript, _ bool, args []string) {
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: ts.MkAbs(args[0])})
	ts.Check(err)
	server := httptest.NewServer(store.Handler())
	ts.Defer(func() { server.Close(); store.Close() })
	ts.Setenv(args[1], server.URL)
}

var must = testenv.Must

// refuseSubjects refuses manifests that refer to other manifests.
func refuseSubjects(w http.ResponseWriter, r *http.Request, next http.Handler) {
	text, err := io.ReadAll(r.Body)
	if err != nil || bytes.Contains(text, []byte(`"subject"`)) {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	next.ServeHTTP(w, r)
}
