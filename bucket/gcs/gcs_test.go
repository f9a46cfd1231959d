package gcs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/gcs"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// access returns what reads the bucket app of s, with the key of its account if it has one.
func access(s *testenv.GCS, key []byte) *bucket.Access {
	a := &bucket.Access{Spec: &following(s).Spec, Vault: &transport.Vault{}}
	if key != nil {
		a.Secret = transport.Secret{Name: "default/key", Secret: sourcetest.Secret("serviceaccount", string(key))}
	}
	return a
}

// connect returns a driver for the bucket app of s.
func connect(t *testing.T, s *testenv.GCS, key []byte) bucket.Driver {
	t.Helper()
	d, err := gcs.Connect(t.Context(), access(s, key))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// list returns the objects of a bucket by key.
func list(ctx context.Context, d bucket.Driver, prefix string) (objects map[string]bucket.Object, err error) {
	objects = map[string]bucket.Object{}
	for o, err := range d.List(ctx, prefix) {
		if err != nil {
			return objects, err
		}
		objects[o.Key] = o
	}
	return objects, nil
}

// listed returns the objects of a bucket that has no defect.
func listed(t *testing.T, d bucket.Driver) map[string]bucket.Object {
	t.Helper()
	objects, err := list(t.Context(), d, "")
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// read reads o from offset on.
func read(ctx context.Context, d bucket.Driver, o bucket.Object, offset int64) (string, error) {
	r, err := d.Open(ctx, o, offset)
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	return string(text), err
}

// Keys are listed and asked for as they are.
func TestKeys(t *testing.T) {
	t.Parallel()
	s := testenv.StartGCS(t, testenv.GCSConfig{PageSize: 2})
	b := s.Bucket("app")
	keys := []string{"a", "a/b", "a b+c", "a?b#c%2Fd&e=f", "a//b", "/a", "a/../b", "{object}", "a:b*c", "ä\u200bö", "dir/", `back\slash`, "new\nline", "\"quoted\""}
	for i, key := range keys {
		b.Put(key, fmt.Sprintf("content %d", i))
	}
	d := connect(t, s, nil)
	objects := listed(t, d)
	for i, key := range keys {
		o, ok := objects[key]
		if want := fmt.Sprintf("content %d", i); !ok || o.Size != int64(len(want)) || o.ETag == "" || strings.Contains(o.ETag, `"`) {
			t.Errorf("%q was listed as %+v", key, o)
			continue
		}
		if text, err := read(t.Context(), d, o, 0); text != fmt.Sprintf("content %d", i) || err != nil {
			t.Errorf("%q: %q, %v", key, text, err)
		}
	}
	if len(objects) != len(keys) {
		t.Errorf("%d objects were listed", len(objects))
	}
	if n := s.Count(testenv.GetObject); n != len(keys) {
		t.Errorf("%d requests for %d objects", n, len(keys))
	}
	some, err := list(t.Context(), d, "a/")
	if len(some) != 3 || err != nil {
		t.Errorf("with a prefix: %v, %v", some, err)
	}
}

// The endpoint may be written in several ways.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	s := testenv.StartGCS(t, testenv.GCSConfig{})
	s.Bucket("app").Put("a", "one")
	for _, endpoint := range []string{s.Host, s.Base, s.Base + "/", s.Base + "/storage/v1", s.Base + "/storage/v1/"} {
		a := access(s, nil)
		a.Spec.Endpoint = endpoint
		d, err := gcs.Connect(t.Context(), a)
		if err != nil {
			t.Errorf("%s: %v", endpoint, err)
			continue
		}
		if objects, err := list(t.Context(), d, ""); len(objects) != 1 || err != nil {
			t.Errorf("%s: %v, %v", endpoint, objects, err)
		}
	}
	a := access(s, nil)
	a.Spec.Endpoint, a.Spec.Insecure = s.Base, false
	if _, err := gcs.Connect(t.Context(), a); !errors.Is(err, source.ErrInvalid) {
		t.Errorf("http without spec.insecure: %v", err)
	}
}

// Nothing in the environment has a say.
func TestEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"GOOGLE_APPLICATION_CREDENTIALS": "/nowhere", "STORAGE_EMULATOR_HOST": "nowhere.invalid", "GOOGLE_CLOUD_UNIVERSE_DOMAIN": "nowhere.invalid",
		"GOOGLE_API_USE_MTLS_ENDPOINT": "always", "GOOGLE_API_USE_CLIENT_CERTIFICATE": "true", "EXPERIMENTAL_GOOGLE_API_USE_S2A": "true",
		"GOOGLE_SDK_GO_LOGGING_LEVEL": "debug", "HOME": t.TempDir(), "HTTP_PROXY": "http://127.0.0.1:1", "GCE_METADATA_HOST": "127.0.0.1:1",
	} {
		t.Setenv(name, value)
	}
	s := testenv.StartGCS(t, testenv.GCSConfig{Account: account})
	s.Bucket("app").Put("a", "one")
	d := connect(t, s, s.Key())
	if text, err := read(t.Context(), d, listed(t, d)["a"], 0); text != "one" || err != nil {
		t.Error(text, err)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	s := testenv.StartGCS(t, testenv.GCSConfig{})
	b := s.Bucket("app")
	b.Put("empty", "")
	b.Put("a", "0123456789")
	zipped := b.PutGzip("zipped", strings.Repeat("content ", 1000))
	d := connect(t, s, nil)
	objects := listed(t, d)
	for _, c := range []struct {
		key    string
		offset int64
		want   string
	}{
		{"empty", 0, ""}, {"a", 0, "0123456789"}, {"a", 1, "123456789"}, {"a", 9, "9"}, {"a", 10, ""},
		{"zipped", 0, zipped}, {"zipped", 7, zipped[7:]},
	} {
		if text, err := read(t.Context(), d, objects[c.key], c.offset); text != c.want || err != nil {
			t.Errorf("%s from %d: %q, %v", c.key, c.offset, text, err)
		}
	}
	if _, err := d.Open(t.Context(), objects["a"], -1); err == nil {
		t.Error("an offset below 0 was accepted")
	}
	if _, err := d.Open(t.Context(), bucket.Object{Key: "a", Size: 10}, 0); err == nil {
		t.Error("an object that was not listed was accepted")
	}
	o := objects["a"]
	b.Touch("a") // which changes the ETag, and not the content
	if listed(t, d)["a"].ETag == o.ETag {
		t.Error("the ETag stays when the metadata changes")
	}
	if text, err := read(t.Context(), d, o, 0); text != "0123456789" || err != nil {
		t.Errorf("with other metadata: %q, %v", text, err)
	}
	b.Put("a", "9876543210")
	for _, offset := range []int64{0, 3} {
		if _, err := read(t.Context(), d, o, offset); !errors.Is(err, bucket.ErrChanged) {
			t.Errorf("replaced: %v", err)
		}
	}
	b.Remove("a")
	if _, err := read(t.Context(), d, o, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed: %v", err)
	}
}

// A busy store is asked again.
func TestBusy(t *testing.T) {
	t.Parallel()
	s := testenv.StartGCS(t, testenv.GCSConfig{})
	s.Bucket("app").Put("a", "one")
	d := connect(t, s, nil)
	for _, status := range []int{408, 429, 500, 502, 503, 504} {
		s.Break(&testenv.Defect{Do: testenv.Answer, Status: status, Header: http.Header{"Retry-After": {"0"}}, Times: 2})
		if objects, err := list(t.Context(), d, ""); len(objects) != 1 || err != nil {
			t.Errorf("%d: %v", status, err)
		}
	}
	s.Break(&testenv.Defect{Do: testenv.Answer, Status: 429, Header: http.Header{"Retry-After": {"7200"}}})
	_, err := list(t.Context(), d, "")
	status, ok := errors.AsType[*bucket.StatusError](err)
	if !ok || status.After.Hours() != 2 || !strings.Contains(err.Error(), "raise spec.interval") {
		t.Errorf("%v", err)
	}
}
