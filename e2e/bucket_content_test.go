package e2e

import (
	"io"
	stdlog "log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7"
)

// TestBucketKeys fetches keys of all sorts from MinIO, with a prefix and by ignore rules.
func TestBucketKeys(t *testing.T) {
	s := minioServer{}.serve(t)
	const rules = "*.md\n"
	odd := keys{
		"a b/c  d.txt": "spaces", "plus+and%20percent%.txt": "signs", "ünï/日本語.txt": "unicode", "e\u0301.txt": "combining",
		"q?x=1&y#z.txt": "query", "quote\"'`<>.txt": "quotes", "~-_.!*(),;:@=$.txt": "punctuation", ".hidden/.file": "dots", "deep/a/b/c/d/e/f/g/h": "deep",
		strings.Repeat("l", 200) + ".txt": "long", "empty": "",
	}
	s.bucket("odd", odd)
	s.put("odd", "marker/", "") // a directory marker
	s.bucket("rules", keys{"app/keep.yaml": "1", "app/drop.md": "2", "app/.sourceignore": "keep.yaml", "other/x.yaml": "3", "application.yaml": "4", ".sourceignore": rules})
	front := newStoreFront(t, s.addr)
	at := func(bucket string) bucketSource { return bucketAt(front.addr, bucket).secret("secretRef", root) }
	for _, c := range []struct {
		name   string
		source bucketSource
		want   keys
	}{
		{"odd", at("odd"), odd},
		{"ignored at the root", at("rules"), keys{"app/keep.yaml": "1", "app/.sourceignore": "keep.yaml", "other/x.yaml": "3", "application.yaml": "4", ".sourceignore": rules}},
		{"prefix", at("rules").with("prefix", "app/"), keys{"app/keep.yaml": "1", "app/.sourceignore": "keep.yaml", ".sourceignore": rules}},
		{"prefix that is no directory", at("rules").with("prefix", "app"), keys{"app/keep.yaml": "1", "app/.sourceignore": "keep.yaml", "application.yaml": "4", ".sourceignore": rules}},
		{"spec.ignore", at("rules").with("ignore", "app/\n!app/*.md\n"), keys{"app/drop.md": "2", "other/x.yaml": "3", "application.yaml": "4", ".sourceignore": rules}},
		{"all is ignored", at("rules").with("ignore", "*"), keys{".sourceignore": rules}},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := t.TempDir()
			first, held := fetched(t, store, c.source)
			wantFiles(t, held, c.want)
			front.took()
			if again, _ := fetched(t, store, c.source); again != first {
				t.Errorf("what is unchanged was %s and is %s", first, again)
			}
			for _, asked := range front.took() {
				if asked != "GET list 200" && asked != "GET /rules/.sourceignore 200" {
					t.Errorf("for what is unchanged the store was asked %q", asked)
				}
			}
		})
	}
}

// TestBucketVersions fetches from a bucket that keeps versions and marks what was deleted.
func TestBucketVersions(t *testing.T) {
	s := minioServer{}.serve(t)
	s.bucket("app", nil)
	check(t, s.EnableVersioning(t.Context(), "app"))
	for _, text := range []string{"1", "22", "333"} {
		s.put("app", "kept", text)
	}
	s.put("app", "deleted", "1")
	check(t, s.RemoveObject(t.Context(), "app", "deleted", minio.RemoveObjectOptions{}))
	source, store := bucketAt(s.addr, "app").secret("secretRef", root), t.TempDir()
	first, held := fetched(t, store, source)
	wantFiles(t, held, keys{"kept": "333"})
	s.put("app", "kept", "333")
	if again, _ := fetched(t, store, source); again != first {
		t.Errorf("a new version of the same content had %s and has %s", first, again)
	}
	s.put("app", "kept", "4444")
	_, held = fetched(t, store, source)
	wantFiles(t, held, keys{"kept": "4444"})
}

// TestBucketMoves changes, and deletes, objects between their listing and their reading.
func TestBucketMoves(t *testing.T) {
	s := minioServer{}.serve(t)
	for name, c := range map[string]struct {
		move func(bucket string)
		want keys
	}{
		"changed":      {func(bucket string) { s.put(bucket, "b", "changed") }, keys{"a": "1", "b": "changed"}},
		"both-changed": {func(bucket string) { s.put(bucket, "b", "new"); s.put(bucket, "a", "new") }, keys{"a": "new", "b": "new"}},
		"deleted": {func(bucket string) {
			check(t, s.RemoveObject(t.Context(), bucket, "b", minio.RemoveObjectOptions{}))
		}, keys{"a": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s.bucket(name, keys{"a": "1", "b": "2"})
			store := t.TempDir()
			host := beforeReading(t, s.addr, func() { c.move(name) })
			_, held := fetched(t, store, bucketAt(host, name).secret("secretRef", root))
			wantFiles(t, held, c.want)
		})
	}
}

// beforeReading returns the address of a front that lets something happen
// before the first object is read.
func beforeReading(t *testing.T, addr string, happen func()) string {
	t.Helper()
	var once sync.Once
	behind := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr})
	behind.ErrorLog = stdlog.New(io.Discard, "", 0) // readers go away when an object has changed
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !r.URL.Query().Has("list-type") {
			once.Do(happen)
		}
		behind.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}
