package s3_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// What is listed can be read, whatever its key.
func TestRead(t *testing.T) {
	keys := []string{"a", "dir/", "dir/b c", "dir/ü%20+&=?#.txt", "dir/a\x01\n\x7fb", "dir//x", "dir/<&>\"'", "z~'()*!;:@$,", "é/日本", "a/../b", "%2F", "+"}
	for name, c := range map[string]testenv.S3Config{
		"signed":     signed(),
		"nobody":     {},
		"multipart":  {AccessKey: accessKey, SecretKey: secretKey, Multipart: true},
		"small page": {AccessKey: accessKey, SecretKey: secretKey, PageSize: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := filled(t, c)
			for i, key := range keys {
				s.Bucket("bucket").Put(key, fmt.Sprint("content ", i))
			}
			a := access(s)
			if c.AccessKey != "" {
				a = keyed(s)
			}
			d := connect(t, a)
			all, err := list(t.Context(), d, "")
			if err != nil || len(all) != len(keys) {
				t.Fatal(all, err)
			}
			contents := s.Bucket("bucket").Contents()
			for _, o := range all {
				for _, from := range []int64{0, 3, o.Size} {
					if text, err := read(t.Context(), d, o, from); err != nil || text != contents[o.Key][from:] {
						t.Errorf("%q from %d: %q, %v", o.Key, from, text, err)
					}
				}
			}
		})
	}
}

// Only what is needed is asked for.
func TestRequests(t *testing.T) {
	s := filled(t, testenv.S3Config{AccessKey: accessKey, SecretKey: secretKey, PageSize: 2}, "a", "1", "b", "2", "c", "3", "d", "4", "e/f", "5")
	d := connect(t, keyed(s))
	if s.Count() != 0 {
		t.Errorf("connecting makes %d requests", s.Count())
	}
	all, err := list(t.Context(), d, "")
	if err != nil || len(all) != 5 || s.Count() != 3 || s.Count(testenv.ListObjects) != 3 {
		t.Errorf("%d objects with %d requests, %v", len(all), s.Count(), err)
	}
	if q := s.Requests()[0]; !strings.Contains(q.Path, "list-type=2") || strings.Contains(q.Path, "fetch-owner") || strings.Contains(q.Path, "delimiter") {
		t.Errorf("asked %s", q.Path)
	}
	s.Reset()
	if _, err := read(t.Context(), d, all[1], 0); err != nil || s.Count() != 1 || s.Count(testenv.GetObject) != 1 {
		t.Errorf("%d requests, %v", s.Count(), err)
	}
	q := s.Requests()[0]
	for name, want := range map[string]string{"If-Match": `"` + all[1].ETag + `"`, "Range": "", "Accept-Encoding": "identity", "User-Agent": "headgate"} {
		if got := q.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	s.Reset()
	if all, err := list(t.Context(), d, "e/"); err != nil || len(all) != 1 || all[0].Key != "e/f" || s.Count() != 1 {
		t.Errorf("%v, %v, %d requests", all, err, s.Count())
	}
}

// Objects are read as they are stored, without what is said about their encoding being undone.
func TestStoredEncoding(t *testing.T) {
	s := filled(t, signed(), "a.gz", "\x1f\x8b not really")
	s.Break(&testenv.Defect{Phase: testenv.GetObject, Do: testenv.Serve, Handler: testenv.With("Content-Encoding", "gzip").Handler})
	d := connect(t, keyed(s))
	all, err := list(t.Context(), d, "")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := read(t.Context(), d, all[0], 0); text != "\x1f\x8b not really" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

// A listing that nobody wants any more ends, with the page that was asked for ahead.
func TestListGivenUp(t *testing.T) {
	s := filled(t, testenv.S3Config{PageSize: 1}, "a", "1", "b", "2", "c", "3")
	s.Break(&testenv.Defect{Phase: testenv.ListObjects, Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Query().Has("continuation-token") {
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(w, r)
	}})
	d := connect(t, access(s))
	for o, err := range d.List(t.Context(), "") {
		if err != nil || o.Key != "a" {
			t.Fatal(o, err)
		}
		break
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	given := errors.New("given up")
	var last error
	for _, err := range d.List(ctx, "") {
		cancel(given)
		last = err
	}
	if !errors.Is(last, given) {
		t.Error(last)
	}
}
