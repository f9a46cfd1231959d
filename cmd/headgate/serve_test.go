package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// TestServe lets the command serve what it fetched, and asks for it.
func TestServe(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: tree("one")})
	store := filepath.Join(t.TempDir(), "store")
	command(t, exitReady, "fetch", testenv.ServeHTTP(t, testenv.HTTP{}, repo).Repo(), "--name", "repo", "--store", store, "-q")
	set, err := (&source.Ledger{Dir: filepath.Join(store, ".status")}).List()
	if err != nil || len(set.Objects) != 1 {
		t.Fatalf("status: %v", err)
	}
	a := set.Objects[0].Artifact()
	whole, err := os.ReadFile(filepath.Join(store, filepath.FromSlash(a.Path)))
	if err != nil {
		t.Fatal(err)
	}
	url := serving(t, store)
	got, body := ask(t, "GET", url+"/"+a.Path, "")
	if got.StatusCode != http.StatusOK || body != string(whole) || got.Header.Get("ETag") == "" {
		t.Errorf("GET: %s, %d bytes, ETag %q", got.Status, len(body), got.Header.Get("ETag"))
	}
	for _, c := range []struct {
		method, path, header string
		status               int
		body                 string
	}{
		{"HEAD", a.Path, "", http.StatusOK, ""},
		{"GET", a.Path, "Range: bytes=2-9", http.StatusPartialContent, string(whole[2:10])},
		{"GET", a.Path, "Range: bytes=-4", http.StatusPartialContent, string(whole[len(whole)-4:])},
		{"GET", a.Path, "If-None-Match: " + got.Header.Get("ETag"), http.StatusNotModified, ""},
	} {
		if got, body := ask(t, c.method, url+"/"+c.path, c.header); got.StatusCode != c.status || body != c.body {
			t.Errorf("%s %s %s: %s, %d bytes", c.method, c.path, c.header, got.Status, len(body))
		}
	}
	for _, path := range []string{"", "gitrepository/", "gitrepository/default/repo/", ".status/gitrepository/default/repo.yaml", ".store/", "%2e%2e/x"} {
		if got, _ := ask(t, "GET", url+"/"+path, ""); got.StatusCode != http.StatusNotFound {
			t.Errorf("/%s: %s", path, got.Status)
		}
	}
	if got, _ := ask(t, "DELETE", url+"/"+a.Path, ""); got.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("DELETE: %s", got.Status)
	}
	if got := askFor(t, url+"/"+a.Path, "rebound.example"); got.StatusCode != http.StatusForbidden {
		t.Errorf("for another host: %s", got.Status)
	}
	if _, err := (&artifact.Client{}).Open(t.Context(), artifact.Artifact{URL: url + "/" + a.Path, Digest: a.Digest}); err != nil {
		t.Error(err)
	}
}

// command runs the command to its end.
func command(t *testing.T, code int, args ...string) {
	t.Helper()
	var out strings.Builder
	if got := run(t.Context(), args, strings.NewReader(""), &out, &out, func(string) (string, bool) { return "", false }); got != code {
		t.Fatalf("headgate %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, out.String())
	}
}

// serving runs headgate artifact serve until the test ends, and returns its URL.
func serving(t *testing.T, store string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"artifact", "serve", "--store", store, "--addr", "127.0.0.1:0"}, strings.NewReader(""), w, io.Discard, os.LookupEnv)
		w.Close()
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != exitReady {
			t.Errorf("headgate artifact serve: exit code %d", code)
		}
	})
	line, err := bufio.NewReader(r).ReadString('\n')
	_, url, found := strings.Cut(strings.TrimSpace(line), " at ")
	if err != nil || !found || !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("headgate artifact serve printed %q: %v", line, err)
	}
	return url
}

func ask(t *testing.T, method, url, header string) (*http.Response, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if name, value, found := strings.Cut(header, ": "); found {
		q.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// askFor asks for a page of a host by another name, as a browser does whose name
// server was lied to.
func askFor(t *testing.T, url, host string) *http.Response {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Host = host
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}
