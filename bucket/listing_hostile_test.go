package bucket_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// page answers every listing with a text.
func page(text string) func(*scene) *testenv.Defect {
	return always(testenv.Defect{Phase: testenv.ListObjects, Status: 200, Header: http.Header{"Content-Type": {"application/xml"}}, Body: text})
}

// listed answers every listing with objects, as XML that is not escaped.
func listed(contents ...string) func(*scene) *testenv.Defect {
	return page(`<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">` +
		`<EncodingType>url</EncodingType><IsTruncated>false</IsTruncated><Contents>` + strings.Join(contents, "</Contents><Contents>") + `</Contents></ListBucketResult>`)
}

// object is one of a listing.
func object(key, etag, size string) string {
	return "<Key>" + key + "</Key><ETag>" + etag + "</ETag><Size>" + size + "</Size>"
}

// A hundred thousand keys, of which few are wanted, are listed and no more.
func TestManyKeys(t *testing.T) {
	r := newScene(t, testenv.S3Config{AccessKey: "AKIA", SecretKey: canary})
	contents := map[string]string{"a": "one", "ignored": "two", "z/z": "three"}
	for i := range 100_000 {
		contents[fmt.Sprintf("ignored/%d/%06d", i%10, i)] = ""
	}
	delete(contents, "ignored")
	r.replace(contents)
	ignore := "/ignored/"
	obj := r.object(func(s *source.BucketSpec) { s.Ignore = &ignore })
	r.stored(obj)
	if names := r.Names(obj.Artifact()); strings.Join(names, " ") != "a z/z" {
		t.Errorf("%q", names)
	}
	pages := 101
	if n := r.s.Count(testenv.ListObjects); n < pages || n > pages+2 {
		t.Errorf("%d pages were asked for", n)
	}
}
