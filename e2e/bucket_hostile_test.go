package e2e

import (
	"io"
	stdlog "log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// TestBucketRefusedKeys lets stores hold keys that cannot be paths: each is
// refused by name, and fetched around when a rule ignores it.
func TestBucketRefusedKeys(t *testing.T) {
	google, azure := serveGoogle(t), serveAzurite(t, nil)
	type bucket struct {
		source bucketSource
		put    func(key string)
	}
	stores := map[string]func(name string) bucket{
		"fake-gcs-server": func(name string) bucket {
			google.bucket(name, keys{"kept": "1"})
			return bucket{bucketAt("http://"+google.addr, name).with("provider", "gcp"), func(key string) { google.put(name, key, "2") }}
		},
		"azurite": func(name string) bucket {
			azure.container(name, nil, keys{"kept": "1"})
			return bucket{bucketAt(azure.url, name).with("provider", "azure").secret("secretRef", keys{"accountKey": azure.key}), func(key string) { azure.put(name, key, "2") }}
		},
	}
	for store, open := range stores {
		for name, c := range map[string]struct{ key, ignore string }{
			"empty-part": {"bad//b", "/bad/"}, "parent": {"bad/../b", "/bad/"}, "dot": {"bad/./b", "/bad/"}, "backslash": {`bad\b`, "/bad*"},
			"control": {"bad\tb", "/bad*"}, "directory-of-another": {"kept/b", "/kept/"}, "long": {"bad/" + strings.Repeat("b", 256), "/bad/"},
		} {
			if store == "azurite" && name == "backslash" {
				continue // Azure makes slashes of them
			}
			t.Run(store+" "+name, func(t *testing.T) {
				b := open(name)
				b.put(c.key)
				got := fetchBucket(t, t.TempDir(), b.source)
				if failed := got.status.condition("FetchFailed"); got.code != 1 || !strings.Contains(failed, "kept") && !strings.Contains(failed, "bad") {
					t.Errorf("exit code %d, FetchFailed %q", got.code, failed)
				}
				_, held := fetched(t, t.TempDir(), b.source.with("ignore", c.ignore))
				wantFiles(t, held, keys{"kept": "1"})
			})
		}
	}
}

// TestBucketResumes cuts an answer in the middle of an object: the rest is asked for.
func TestBucketResumes(t *testing.T) {
	s := minioServer{}.serve(t)
	s.bucket("app", nil)
	content := s.multipart("app", "large.bin")
	var cut atomic.Int64
	var ranges atomic.Pointer[string]
	behind := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: s.addr})
	behind.ErrorLog = stdlog.New(io.Discard, "", 0)
	behind.ModifyResponse = func(r *http.Response) error {
		if strings.HasSuffix(r.Request.URL.Path, "/large.bin") {
			if cut.Add(1) == 1 {
				r.Body = readCloser{io.LimitReader(r.Body, 3<<20), r.Body}
			} else {
				ranges.Store(new(r.Request.Header.Get("Range")))
			}
		}
		return nil
	}
	front := httptest.NewServer(behind)
	t.Cleanup(front.Close)
	_, held := fetched(t, t.TempDir(), bucketAt(front.Listener.Addr().String(), "app").secret("secretRef", root))
	wantFiles(t, held, keys{"large.bin": content})
	if asked := ranges.Load(); cut.Load() != 2 || asked == nil || *asked != "bytes=3145728-" {
		t.Errorf("the object was asked for %d times, the last time with the range %v", cut.Load(), asked)
	}
}

type readCloser struct {
	io.Reader
	io.Closer
}
