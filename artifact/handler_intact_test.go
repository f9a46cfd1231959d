package artifact_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
)

// TestHandlerRanges checks that a request may have several ranges, but not any number.
func TestHandlerRanges(t *testing.T) {
	s, _, _ := serve(t, artifact.StoreConfig{})
	a := put(t, s, object, "a.tar.gz", "0123456789")
	for ranges, want := range map[string]string{
		"bytes=0-0,9-9": "multipart/byteranges; boundary=", "bytes=0-0" + strings.Repeat(",2-2", 15): "application/gzip", // longer than the whole file
		"bytes=0-0" + strings.Repeat(",2-2", 16): "application/gzip", "bytes=" + strings.Repeat("0-0,", 5000): "application/gzip",
		"bytes=-3": "application/gzip", "lines=1-2": "text/plain", "bytes=5-4": "text/plain",
	} {
		resp, body := do(t, "GET", a.URL, "Range", ranges)
		multipart := strings.HasPrefix(want, "multipart")
		switch {
		case !strings.HasPrefix(resp.Header.Get("Content-Type"), want):
			t.Errorf("%.30s: %s, %s", ranges, resp.Status, resp.Header.Get("Content-Type"))
		case multipart && (resp.StatusCode != 206 || !strings.Contains(body, "bytes 9-9/10\r\n") || !strings.Contains(body, "\r\n9\r\n")):
			t.Errorf("%.30s: %s, %q", ranges, resp.Status, body)
		case ranges == "bytes=-3" && (resp.StatusCode != 206 || body != "789"):
			t.Errorf("%s: %s, %q", ranges, resp.Status, body)
		case strings.Count(ranges, ",") > 1 && (resp.StatusCode != 200 || body != "0123456789"):
			t.Errorf("%.30s: %s, %q", ranges, resp.Status, body)
		}
	}
}

// TestHandlerServesNoDamage checks that a damaged file gets an error status, whichever operation
// found the damage, until it is stored again.
func TestHandlerServesNoDamage(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil  func(t *testing.T, file string, s *artifact.Store, a artifact.Artifact)
		intact bool
	}{
		"written to": {func(t *testing.T, file string, _ *artifact.Store, _ artifact.Artifact) {
			rewrite(t, file, "c0ntent", time.Now().Add(time.Hour))
		}, false},
		"cut": {func(t *testing.T, file string, _ *artifact.Store, _ artifact.Artifact) {
			rewrite(t, file, "cont", time.Time{})
		}, false},
		"rotten, as only a full hash finds": {func(t *testing.T, file string, s *artifact.Store, a artifact.Artifact) {
			rewrite(t, file, "c0ntent", time.Time{})
			if err := s.Verify(t.Context(), a); err == nil {
				t.Error("Verify finds nothing")
			}
		}, false},
		"touched": {func(t *testing.T, file string, _ *artifact.Store, _ artifact.Artifact) {
			rewrite(t, file, "content", time.Now().Add(time.Hour))
		}, true},
		"without its record": {func(t *testing.T, file string, _ *artifact.Store, _ artifact.Artifact) {
			dir, name := filepath.Split(file)
			must(t, os.Remove(filepath.Join(dir, "."+name)))
		}, true},
		"with a record of nonsense": {func(t *testing.T, file string, _ *artifact.Store, _ artifact.Artifact) {
			dir, name := filepath.Split(file)
			must(t, os.WriteFile(filepath.Join(dir, "."+name), []byte("sha256:00 7 0 0\n"), 0o600))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, dir := serve(t, artifact.StoreConfig{})
			a := put(t, s, object, "a.tar.gz", "content")
			url, err := s.Point(object, "latest.tar.gz", a)
			must(t, err)
			tt.spoil(t, filepath.Join(dir, a.Path), s, a)
			var all sync.WaitGroup
			for _, url := range []string{a.URL, url, a.URL, url} {
				for _, method := range []string{"GET", "HEAD"} {
					all.Go(func() {
						req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
						if err != nil {
							t.Error(err)
							return
						}
						resp, err := http.DefaultClient.Do(req)
						if err != nil {
							t.Error(err)
							return
						}
						defer resp.Body.Close()
						body, _ := io.ReadAll(resp.Body)
						if intact := resp.StatusCode == 200; intact != tt.intact || bytes.Contains(body, []byte("tent")) != (intact && method == "GET") {
							t.Errorf("%s %s: %s, %q", method, url, resp.Status, body)
						}
						if resp.StatusCode != 200 && (resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" || resp.Header.Get("ETag") != "") {
							t.Errorf("%s: %s, %v", method, resp.Status, resp.Header)
						}
					})
				}
			}
			all.Wait()
			if err := s.Check(a); (err == nil) != tt.intact {
				t.Errorf("Check: %v", err)
			}
			put(t, s, object, "a.tar.gz", "content")
			if resp, body := do(t, "GET", a.URL); resp.StatusCode != 200 || body != "content" {
				t.Errorf("stored again: %s, %q", resp.Status, body)
			}
		})
	}
}

// rewrite changes a file in place; if modified is zero, it keeps the modification time.
func rewrite(t *testing.T, file, content string, modified time.Time) {
	t.Helper()
	info, err := os.Stat(file)
	must(t, err)
	if modified.IsZero() {
		modified = info.ModTime()
	}
	must(t, errors.Join(os.WriteFile(file, []byte(content), 0o600), os.Chtimes(file, modified, modified)))
}

// TestHandlerOutlivesPrune checks that downloads complete even if their artifact is pruned
// meanwhile.
func TestHandlerOutlivesPrune(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files that are open cannot be removed there")
	}
	s, _, _ := serve(t, artifact.StoreConfig{})
	content := strings.Repeat("0123456789abcde\n", 1<<20)
	a := put(t, s, object, "a.tar.gz", content)
	resp, err := http.Get(a.URL)
	must(t, err)
	defer resp.Body.Close()
	first := make([]byte, 1000)
	must(t, second(io.ReadFull(resp.Body, first)))
	must(t, s.Remove(object))
	rest, err := io.ReadAll(resp.Body)
	if err != nil || string(first)+string(rest) != content {
		t.Errorf("%d bytes of %d, %v", len(first)+len(rest), len(content), err)
	}
	if resp, _ := do(t, "GET", a.URL); resp.StatusCode != 404 {
		t.Errorf("after it was removed: %s", resp.Status)
	}
}

// TestPointersInTime checks that caches that only compare times notice each change of a pointer,
// also a change back to an older artifact.
func TestPointersInTime(t *testing.T) {
	now := time.Now() // does not advance: the content always changed in the current second, however slow the machine is
	s, _, dir := serve(t, artifact.StoreConfig{Now: func() time.Time { return now }})
	old := put(t, s, object, "a.tar.gz", "one")
	new := put(t, s, object, "b.tar.gz", "two")
	url, err := s.Point(object, "latest.tar.gz", new)
	must(t, err)
	if resp, _ := do(t, "GET", url); resp.Header.Get("Last-Modified") != "" {
		t.Errorf("a pointer that may move again in this second: Last-Modified %s", resp.Header.Get("Last-Modified"))
	}
	past := now.Add(-time.Hour)
	must(t, os.Chtimes(filepath.Join(dir, ".store/object", object, "latest.tar.gz"), past, past))
	resp, _ := do(t, "GET", url)
	seen := resp.Header.Get("Last-Modified")
	if again, _ := do(t, "GET", url, "If-Modified-Since", seen); again.StatusCode != 304 {
		t.Errorf("a pointer that did not move since %s: %s", seen, again.Status)
	}
	must(t, second(s.Point(object, "latest.tar.gz", old)))
	if again, body := do(t, "GET", url, "If-Modified-Since", seen); again.StatusCode != 200 || body != "one" {
		t.Errorf("a pointer that moved back: %s, %q", again.Status, body)
	}
}
