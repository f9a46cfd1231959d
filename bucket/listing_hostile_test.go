package bucket_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/source"
)

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

// Listings that no store should give.
func TestHostileListings(t *testing.T) {
	endless := func(head, more string) func(*scene) *testenv.Defect {
		return served(testenv.ListObjects, func(_ int, w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			fmt.Fprint(w, head)
			for {
				if _, err := fmt.Fprint(w, strings.Repeat(more, 1000)); err != nil {
					return
				}
			}
		})
	}
	const begin = `<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">`
	try(t, []threat{
		{name: "one token again and again", defect: always(testenv.Defect{Phase: testenv.ListObjects, Do: testenv.Loop}), reason: failed, says: []string{"token"}},
		{name: "pages without end", defect: always(testenv.Defect{Phase: testenv.ListObjects, Do: testenv.Endless}), spec: hasty, reason: failed, says: []string{"not done within"}},
		{name: "page without end", defect: always(testenv.Defect{Phase: testenv.ListObjects, Do: testenv.Swell, After: 1 << 40}), reason: failed},
		{name: "objects without end", defect: endless(begin, "<Contents>"+object("a", "0", "1")+"</Contents>"), reason: failed},
		{name: "depth without end", defect: endless(begin, "<a>"), reason: failed},
		{name: "attributes without end", defect: endless(`<ListBucketResult `, ` a="b"`), reason: failed},
		{name: "name without end", defect: endless(`<`, `aaaaaaaa`), reason: failed},
		{name: "comment without end", defect: endless(begin+`<!-- `, `aaaaaaaa`), reason: failed},
		{name: "more pages, no token", defect: page(begin + `<IsTruncated>true</IsTruncated></ListBucketResult>`), reason: failed, says: []string{"ListObjectsV2"}},
		{name: "no XML", defect: page("<html><body>Welcome to nginx<br></body></html>"), reason: failed},
		{name: "JSON", defect: page(`{"objects": []}`), reason: failed},
		{name: "empty", defect: page(""), reason: failed},
		{name: "another document", defect: page(`<?xml version="1.0"?><ListAllMyBucketsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></ListAllMyBucketsResult>`), reason: failed},
		{name: "refusal with status 200", defect: page(`<?xml version="1.0"?><Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>`), reason: failed},
		{name: "entities", defect: page(`<!DOCTYPE l [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]>` + begin + `<Name>&b;</Name></ListBucketResult>`), reason: failed},
		{name: "external entity", defect: page(`<!DOCTYPE l [<!ENTITY a SYSTEM "file:///etc/passwd">]>` + begin + `<Name>&a;</Name></ListBucketResult>`), reason: failed},
		{name: "size that is none", defect: listed(object("a", "0", "many")), reason: failed},
		{name: "size below zero", defect: listed(object("a", "0", "-1")), reason: failed},
		{name: "size beyond bounds", defect: listed(object("a", "0", "9223372036854775807")), reason: failed},
		{name: "key that is encoded wrongly", defect: listed(object("a%zz", "0", "1")), reason: failed},
		{name: "no key", defect: listed(object("", "0", "1")), reason: failed},
		{name: "no ETag", defect: listed(object("a", "", "1")), reason: failed},
		{name: "ETag of two lines", defect: listed(object("a", "0&#10;b 1", "1")), reason: failed},
		{name: "status that is none", defect: always(testenv.Defect{Phase: testenv.ListObjects, Status: 299}), reason: failed},
	})
}

// A store that ignores the prefix.
func TestListingOutsidePrefix(t *testing.T) {
	r := newScene(t, testenv.S3Config{AccessKey: "AKIA", SecretKey: canary})
	r.s.Break(listed(object("other/a", "0", "1"))(r))
	r.refused(r.object(func(s *source.BucketSpec) { s.Prefix = "b/" }), nil, failed, "spec.prefix")
}

// A listing that is answered elsewhere: nothing goes there.
func TestRedirectedListing(t *testing.T) {
	other := testenv.StartS3(t, testenv.S3Config{})
	other.Bucket("app").Put("a", "of another store")
	for _, status := range []int{301, 302, 307, 308} {
		r := newScene(t, testenv.S3Config{AccessKey: "AKIA", SecretKey: canary})
		r.holds(some...)
		d := testenv.S3Failure(status, "PermanentRedirect", "The bucket must be addressed using the specified endpoint.")
		d.Header.Set("Location", other.Base)
		r.s.Break(d)
		r.refused(r.object(nil), nil, failed, fmt.Sprint(status))
	}
	if n := other.Count(); n != 0 {
		t.Errorf("%d requests went to another store", n)
	}
}

// Keys that cannot be paths end the fetch, unless rules ignore them.
func TestHostileKeys(t *testing.T) {
	bad := map[string]string{
		"up":                "../up",
		"dot":               "./a",
		"dots in the midst": "a/../b",
		"dot at the end":    "a/.",
		"dots alone":        "..",
		"empty part":        "a//b",
		"slash first":       "/a",
		"backslash":         `a\b`,
		"line break":        "a\nb",
		"NUL":               "a\x00b",
		"escape":            "a\x1b[31mb",
		"DEL":               "a\x7f",
		"no UTF-8":          "a\xffb",
		"long part":         strings.Repeat("a", 256),
		"long key":          strings.Repeat("a/", 2048) + "a",
	}
	for name, key := range bad {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newScene(t, testenv.S3Config{AccessKey: "AKIA", SecretKey: canary})
			r.holds("good", "before")
			obj := r.object(nil)
			r.stored(obj)
			r.holds("good", "content", key, "hostile")
			again := r.object(nil)
			again.Status = obj.Status
			r.refused(again, again.Artifact(), failed)
			if n := r.s.Count(testenv.GetObject); n != 1 {
				t.Errorf("%d objects were asked for", n)
			}
			r.holds("good", "content")
			r.stored(again)
		})
	}
}

// Keys that are paths, however odd, are in the artifact as they are.
func TestOddKeys(t *testing.T) {
	r := newScene(t, testenv.S3Config{AccessKey: "AKIA", SecretKey: canary, PageSize: 3})
	var contents []string
	for _, key := range []string{"a b", "a+b", "a%20b", "a%2Fb", "a&b=c", "a;b", "a?b", "a#b", "ü/é", "日本", "a'b\"c", "<a>&amp;", "...", "a/.../b", " ", "~", "@", "a:b",
		strings.Repeat("a", 255), strings.Repeat("0123456789/", 90) + "a", "e\u0301", "\u00e9", "-", "--flag", "CON", ".git/config", "a.b/", "dir/"} {
		contents = append(contents, key, "content of "+key)
	}
	r.holds(contents...)
	obj := r.object(nil)
	r.stored(obj)
	if names := r.Names(obj.Artifact()); len(names) != len(contents)/2-2 {
		t.Errorf("%q", names)
	}
}

// A key is listed twice, or is a directory of another.
func TestAmbiguousKeys(t *testing.T) {
	r := newScene(t, testenv.S3Config{AccessKey: "AKIA", SecretKey: canary, PageSize: 2,
		Arrange: func(keys []string) []string { return append(keys, keys...) }})
	r.holds("a", "one", "b", "two", "c", "three")
	r.refused(r.object(nil), nil, failed, "listed before")
	for _, keys := range [][]string{{"a", "a/b"}, {"a", "a-", "a/b"}, {"x/a", "x/a.b", "x/a/b/c"}} {
		for _, page := range []int{1, 0} {
			r := newScene(t, testenv.S3Config{AccessKey: "AKIA", SecretKey: canary, PageSize: page})
			for _, key := range keys {
				r.put(key, "content")
			}
			r.refused(r.object(nil), nil, failed, keys[0], keys[len(keys)-1])
		}
	}
}

// A gigabyte is offered wherever a store answers. What is read of it is
// bounded, and so is what that takes.
func TestGigabytes(t *testing.T) {
	const most = 128 << 20 // what all of a run may allocate, the store's part and that of the race detector included
	for _, c := range []struct {
		phase  testenv.Phase
		key    string // of an object
		spec   func(*source.BucketSpec)
		reason string
	}{
		{testenv.ListObjects, "a", nil, failed},
		{testenv.GetObject, "a", nil, failed},
		{testenv.GetObject, ".sourceignore", nil, failed},
		{testenv.AssumeRole, "a", withLDAP, authFailed},
	} {
		t.Run(string(c.phase)+" "+c.key, func(t *testing.T) {
			r := newScene(t, testenv.S3Config{AccessKey: "AKIA", SecretKey: canary, LDAPUsername: "user", LDAPPassword: canary})
			r.secrets["ldap"] = data("username", "user", "password", canary)
			r.holds(c.key, "content")
			r.s.Break(&testenv.Defect{Phase: c.phase, Do: testenv.Swell, After: 1 << 30})
			obj := r.object(c.spec)
			if obj.Spec.STS != nil {
				obj.Spec.SecretRef, obj.Spec.STS.Endpoint = nil, r.s.Base
			}
			if n := measure.Allocated(func() { r.refused(obj, nil, c.reason) }); n > most {
				t.Errorf("%d MiB were allocated", n>>20)
			}
		})
	}
}
