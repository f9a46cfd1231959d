package artifact_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
)

// serve serves a store whose base URL is that of the server.
func serve(t *testing.T, c artifact.StoreConfig) (*artifact.Store, *httptest.Server, string) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	c.BaseURL = server.Listener.Addr().String()
	s, dir := openStore(t, c)
	server.Config.Handler = s.Handler()
	server.Start()
	t.Cleanup(server.Close)
	return s, server, dir
}

func do(t *testing.T, method, url string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	must(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp, string(body)
}

func TestHandlerServes(t *testing.T) {
	s, _, _ := serve(t, artifact.StoreConfig{})
	a := put(t, s, object, "a.tar.gz", "0123456789")
	sum := sha256.Sum256([]byte("0123456789"))
	etag := `"` + strings.TrimPrefix(a.Digest, "sha256:") + `"`
	resp, body := do(t, "GET", a.URL)
	want := map[string]string{
		"Content-Type":           "application/gzip",
		"Content-Length":         "10",
		"Content-Encoding":       "",
		"Etag":                   etag,
		"Cache-Control":          "public, max-age=31536000, immutable",
		"X-Content-Type-Options": "nosniff",
		"Accept-Ranges":          "bytes",
		"Last-Modified":          a.LastUpdateTime.Format(http.TimeFormat),
		"Repr-Digest":            "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":",
	}
	if resp.StatusCode != 200 || body != "0123456789" {
		t.Errorf("%s, %q", resp.Status, body)
	}
	for name, value := range want {
		testenv.Equal(t, resp.Header.Get(name), value, name)
	}
	tests := map[string]struct {
		method string
		header []string
		status int
		body   string
	}{
		"head":                    {"HEAD", nil, 200, ""},
		"range":                   {"GET", []string{"Range", "bytes=2-4"}, 206, "234"},
		"range to the end":        {"GET", []string{"Range", "bytes=7-"}, 206, "789"},
		"range beyond the end":    {"GET", []string{"Range", "bytes=10-"}, 416, ""},
		"if-range, same":          {"GET", []string{"Range", "bytes=7-", "If-Range", etag}, 206, "789"},
		"if-range, other":         {"GET", []string{"Range", "bytes=7-", "If-Range", `"other"`}, 200, "0123456789"},
		"if-none-match, same":     {"GET", []string{"If-None-Match", etag}, 304, ""},
		"if-none-match, weak":     {"GET", []string{"If-None-Match", "W/" + etag}, 304, ""},
		"if-none-match, other":    {"GET", []string{"If-None-Match", `"other"`}, 200, "0123456789"},
		"if-match, other":         {"GET", []string{"If-Match", `"other"`}, 412, ""},
		"if-modified-since, same": {"GET", []string{"If-Modified-Since", want["Last-Modified"]}, 304, ""},
		"if-modified-since, old":  {"GET", []string{"If-Modified-Since", "Mon, 02 Jan 2006 15:04:05 GMT"}, 200, "0123456789"},
		"no transparent gzip":     {"GET", []string{"Accept-Encoding", "gzip"}, 200, "0123456789"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			resp, body := do(t, test.method, a.URL, test.header...)
			if resp.StatusCode != test.status || test.status < 300 && body != test.body {
				t.Errorf("%s, %q; want %d, %q", resp.Status, body, test.status, test.body)
			}
		})
	}
}

func TestHandlerContentTypes(t *testing.T) {
	s, _, _ := serve(t, artifact.StoreConfig{Algorithm: artifact.BLAKE3})
	for file, want := range map[string]string{
		"a.tar.gz": "application/gzip", "a.tgz": "application/gzip", "a.TGZ": "application/gzip", "a.yaml": "application/yaml", "a.yml": "application/yaml",
		"a.json": "application/json", "a.tar": "application/x-tar", "a.html": "application/octet-stream", "a": "application/octet-stream",
	} {
		a := put(t, s, object, file, "<html>")
		resp, _ := do(t, "HEAD", a.URL)
		if got := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || got != want {
			t.Errorf("%s: %s, %q, want %q", file, resp.Status, got, want)
		}
		testenv.Equal(t, resp.Header.Get("Repr-Digest"), "", "%s: a digest that the field does not know", file)
	}
}

func TestHandlerFollowsPointers(t *testing.T) {
	s, server, dir := serve(t, artifact.StoreConfig{})
	a := put(t, s, object, "a.tar.gz", "one")
	b := put(t, s, object, "b.tar.gz", "two")
	for _, target := range []artifact.Artifact{a, b, b} {
		url, err := s.Point(object, "latest.tar.gz", target)
		must(t, err)
		if want := server.URL + "/" + object + "/latest.tar.gz"; url != want {
			t.Errorf("pointer at %s, want %s", url, want)
		}
		resp, body := do(t, "GET", url)
		_, want := do(t, "GET", target.URL)
		etag := `"` + strings.TrimPrefix(target.Digest, "sha256:") + `"`
		if resp.StatusCode != 200 || body != want || resp.Header.Get("ETag") != etag || resp.Header.Get("Cache-Control") != "no-cache" {
			t.Errorf("%s, %q, %v", resp.Status, body, resp.Header)
		}
	}
	must(t, s.Prune(object))
	pointer := filepath.Join(dir, ".store/object", object, "latest.tar.gz")
	for name, text := range map[string]string{
		"empty": "", "another object's": strings.Replace(b.Path, "app", "other", 1), "traversal": "../../../etc/passwd", "removed": strings.Replace(b.Path, "b.tar", "c.tar", 1), "long": strings.Repeat("a/", 9999),
	} {
		must(t, os.WriteFile(pointer, []byte(text), 0o600))
		if resp, _ := do(t, "GET", server.URL+"/"+object+"/latest.tar.gz"); resp.StatusCode != 404 {
			t.Errorf("%s pointer: %s", name, resp.Status)
		}
	}
}

func TestPointRefuses(t *testing.T) {
	s, _ := openStore(t, artifact.StoreConfig{})
	a := put(t, s, object, "a.tar.gz", "one")
	if url, err := s.Point(object, "latest.tar.gz", a); err != nil || url != a.URL {
		t.Errorf("a store of file URLs points to %s, %v; want the artifact's own", url, err)
	}
	if _, err := s.Point("gitrepository/default/other", "latest.tar.gz", a); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("another object's artifact: %v", err)
	}
	must(t, s.Remove(object))
	for name, a := range map[string]artifact.Artifact{"missing": a, "zero": {}} {
		if _, err := s.Point(object, "latest.tar.gz", a); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s artifact: %v", name, err)
		}
	}
}

func TestHandlerHidesTheRest(t *testing.T) {
	s, server, dir := serve(t, artifact.StoreConfig{})
	a := put(t, s, object, "a.tar.gz", "content")
	must(t, second(s.Point(object, "latest.tar.gz", a)))
	folder := a.Path[:strings.LastIndexByte(a.Path, '/')]
	for _, name := range []string{"secret", object + "/secret", folder + "/dir/x", ".store/tmp/x", ".status/gitrepository/default/app.yaml", ".cache/x", ".serve.sock", ".serve.lock"} {
		must(t, errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700), os.WriteFile(filepath.Join(dir, name), []byte("secret"), 0o600)))
	}
	if err := os.Symlink("../../../../secret", filepath.Join(dir, folder, "link.tar.gz")); err != nil {
		t.Log("no links here:", err)
	}
	for _, path := range []string{
		"", "/", "/secret", "/gitrepository", "/gitrepository/default/app", "/" + object + "/", "/" + object + "/secret", "/" + folder, "/" + folder + "/",
		"/" + folder + "/.a.tar.gz", "/" + folder + "/dir", "/" + folder + "/dir/x", "/" + folder + "/link.tar.gz", "/" + folder + "/index.html",
		"/.store/tmp/x", "/.store/object/" + object + "/latest.tar.gz", "/.store/object/" + object + "/.lock", "/" + object + "/.lock",
		"/.status/gitrepository/default/app.yaml", "/.cache/x", "/.serve.sock", "/.serve.lock", "/%2estore/tmp/x", "/%2e%2e/secret", "/.%2e/secret",
		"/" + folder + "/a.tar.gz.", "/" + folder + "/a.tar.gz%20", "/" + folder + "/nul", "/" + folder + "/COM1.tar.gz", "/" + folder + "/a~1.gz",
		"/" + a.Path + ";x", "/" + a.Path + ":", "/" + folder + "%2fa.tar.gz", "/" + folder + "%5Ca.tar.gz", "/C:/" + a.Path, `/\\\\server\\share`, "/" + a.Path + "%c0%af",
		"/" + a.Path + "/", "//" + a.Path, "/./" + a.Path, "/x/../" + a.Path, "/" + folder + "/../../secret", "/..%2f..%2fetc%2fpasswd",
		"/" + strings.Replace(a.Path, "/", "%2f", 1), "/" + strings.Replace(a.Path, "/", "%2F", 1), "/" + strings.Replace(a.Path, "/", "%5c", 1), "/" + strings.Replace(a.Path, "/", `\`, 1),
		"/" + a.Path + "%00", "/" + a.Path + "%0a", "/" + strings.ToUpper(a.Path), "/" + a.Path + "::$DATA",
	} {
		for _, method := range []string{"GET", "HEAD"} {
			if status := raw(t, server, method+" "+cleanTarget(path)+" HTTP/1.0\r\n\r\n"); !strings.Contains(status, " 404 ") {
				t.Errorf("%s %s: %s", method, path, status)
			}
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"} {
		if resp, _ := do(t, method, a.URL); resp.StatusCode != 405 || resp.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %s, Allow %q", method, resp.Status, resp.Header.Get("Allow"))
		}
	}
	if resp, body := do(t, "GET", a.URL); resp.StatusCode != 200 || body != "content" {
		t.Errorf("the artifact itself: %s, %q", resp.Status, body)
	}
}

// TestHandlerTellsFaultsFromAbsence checks the statuses, because a client does not retry after 404.
func TestHandlerTellsFaultsFromAbsence(t *testing.T) {
	s, server, dir := serve(t, artifact.StoreConfig{})
	a := put(t, s, object, "a.tar.gz", "content")
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	below := server.URL + "/file/default/app/" + strings.Repeat("0", 64) + "/a.tar.gz"
	if resp, _ := do(t, "GET", below); resp.StatusCode != 404 {
		t.Errorf("below a file: %s", resp.Status)
	}
	must(t, s.Close())
	for _, url := range []string{a.URL, server.URL + "/" + object + "/latest.tar.gz"} {
		if resp, body := do(t, "GET", url); resp.StatusCode != 500 || strings.Contains(body, dir) {
			t.Errorf("a store that cannot be read: %s, %q", resp.Status, body)
		}
	}
}

func cleanTarget(path string) string {
	if path == "" {
		return "/"
	}
	return path
}

// raw sends a request verbatim, as no client would send it, and returns the status line.
func raw(t *testing.T, server *httptest.Server, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", server.Listener.Addr().String())
	must(t, err)
	defer c.Close()
	io.WriteString(c, request)
	answer, err := io.ReadAll(c)
	must(t, err)
	if bytes.Contains(answer, []byte("secret")) {
		t.Errorf("%q leaks: %q", request, answer)
	}
	status, _, _ := strings.Cut(string(answer), "\r\n")
	return status
}

// FuzzHandler requests arbitrary raw paths: only the artifact and its pointer exist, each at
// exactly one path.
func FuzzHandler(f *testing.F) {
	dir := f.TempDir()
	s, err := artifact.OpenStore(artifact.StoreConfig{Dir: dir})
	must(f, err)
	a, err := s.Put(f.Context(), object, "a.tar.gz", text("content"))
	must(f, err)
	must(f, second(s.Point(object, "latest.tar.gz", a)))
	for _, name := range []string{"secret", ".serve.sock", object + "/secret"} {
		must(f, os.WriteFile(filepath.Join(dir, name), []byte("secret"), 0o600))
	}
	handler := s.Handler()
	pointer := "/" + object + "/latest.tar.gz"
	for _, seed := range []string{
		"/" + a.Path, pointer, "/../" + a.Path, "/.store/tmp", "/secret", "/" + object + "/secret", "/" + object + "/.lock", "/.serve.sock", "/%2e%2e/secret", "/x/..%2fsecret", "/..%5csecret", "//secret", "/%61",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.URL = u
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		path := strings.TrimPrefix(u.Path, "/")
		if known := path == a.Path || "/"+path == pointer; known != (w.Code == 200) && !strings.Contains(u.RawPath, "%") || w.Code != 404 && w.Code != 200 {
			t.Errorf("%q: %d", target, w.Code)
		}
		if strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%q leaks %q", target, w.Body)
		}
	})
}
