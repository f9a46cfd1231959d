package azure_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/testenv"
)

// What is listed is what can be read, however the name is spelled on the way.
func TestNames(t *testing.T) {
	s := testenv.StartAzblob(t, testenv.AzblobConfig{Key: key, PageSize: 3})
	want := map[string]string{}
	for _, name := range []string{"a", "a b", "a+b", "a%20b", "a%b", "a?b#c", "a&b<c>\"'", "dir/b", "dir/ü/ñ", "x\ufffey+z%", "a\tb", "ends.", strings.Repeat("n", 1024), "$root", ".a", "~", "日本", "😀"} {
		s.Container("content").Put(name, "content of "+name)
		want[name] = "content of " + name
	}
	got, err := read(t, connect(t, access(s, "accountKey", key)))
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if n := s.Count(testenv.ListObjects); n != 6 {
		t.Errorf("%d pages", n)
	}
}

func TestOpen(t *testing.T) {
	s := testenv.StartAzblob(t, testenv.AzblobConfig{Key: key})
	c := s.Container("content")
	c.Put("blob", "0123456789")
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write([]byte("packed"))
	z.Close()
	c.PutBlob("packed", testenv.StoredBlob{Content: zipped.String(), Encoding: "gzip"})
	c.PutBlob("old", testenv.StoredBlob{Content: "old", Tier: "Archive"})
	c.Put("empty", "")
	d := connect(t, access(s, "accountKey", key))
	listed, err := keys(t.Context(), d, "")
	if err != nil {
		t.Fatal(err)
	}
	o := map[string]bucket.Object{}
	for _, l := range listed {
		o[l.Key] = l
	}
	for _, q := range []struct {
		key    string
		offset int64
		want   string
		err    error
		say    string
	}{
		{"blob", 0, "0123456789", nil, ""},
		{"blob", 9, "9", nil, ""},
		{"blob", 10, "", errors.ErrUnsupported, "InvalidRange"},
		{"empty", 0, "", nil, ""},
		{"packed", 0, zipped.String(), nil, ""},
		{"packed", 3, zipped.String()[3:], nil, ""},
		{"old", 0, "", errors.ErrUnsupported, `get blob "old": 409 Conflict: BlobArchived: This operation is not permitted on an archived blob: the blob is of tier Archive: rehydrate it`},
	} {
		got, err := text(t.Context(), d, o[q.key], q.offset)
		if got != q.want || (err != nil) != (q.err != nil) || err != nil && !strings.Contains(err.Error(), q.say) {
			t.Errorf("%s from %d: %q, %v", q.key, q.offset, got, err)
		}
	}
	c.Put("blob", "changed")
	c.Remove("empty")
	if _, err := text(t.Context(), d, o["blob"], 0); !errors.Is(err, bucket.ErrChanged) {
		t.Errorf("changed: %v", err)
	}
	if _, err := text(t.Context(), d, o["empty"], 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed: %v", err)
	}
	for _, q := range s.Requests() {
		if q.Phase == testenv.GetObject && (q.Header.Get("If-Match") == "" || q.Header.Get("Accept-Encoding") != "identity") {
			t.Errorf("%v", q.Header)
		}
		if q.Header.Get("User-Agent") != "headgate" || q.Header.Get("X-Ms-Version") != "2021-12-02" {
			t.Errorf("%v", q.Header)
		}
	}
	if n := s.Count(testenv.GetObject); n != 9 {
		t.Errorf("%d requests for 9 reads", n)
	}
}

// An answer that is of something else is not read.
func TestOtherAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		defect *testenv.Defect
		offset int64
		is     error
		say    string
	}{
		"another ETag":   {testenv.With("ETag", `"0x0"`), 0, bucket.ErrChanged, "its ETag was"},
		"no ETag":        {testenv.With("ETag", ""), 0, bucket.ErrChanged, "its ETag was"},
		"weak ETag":      {nil, 0, nil, ""},
		"grown":          {&testenv.Defect{Status: 200, Header: http.Header{"Etag": {`"ETAG"`}}, Body: "01234567890"}, 0, bucket.ErrChanged, "the answer has 11 bytes, by its listing it should have 10"},
		"no conditions":  {testenv.Without("If-Match"), 0, nil, ""},
		"no ranges":      {testenv.Without("X-Ms-Range"), 4, nil, "another part of it"},
		"another range":  {testenv.With("Content-Range", "bytes 3-8/10"), 4, nil, "another part of it"},
		"not modified":   {testenv.Status(304), 0, nil, "304|no content"},
		"redirect":       {testenv.Redirect("https://other.example"), 0, nil, "302 Found: it redirects to https://other.example, which is not followed"},
		"bad length":     {testenv.With("X-Ms-Blob-Committed-Block-Count", "many"), 0, nil, `get blob "blob": `},
		"framing":        {testenv.With("X-Ms-Structured-Body", "XSM/1.0; properties=crc64"), 0, nil, ""},
		"not found":      {testenv.Status(404), 0, fs.ErrNotExist, "404 Not Found"},
		"hangs up":       {&testenv.Defect{Do: testenv.Cut, After: -1}, 0, nil, `get blob "blob": `},
		"says nonsense":  {&testenv.Defect{Status: 400, Header: http.Header{"X-Ms-Error-Code": {"<b> \x80"}}, Body: "<Error><Code>a b</Code><Message>\x1b[31m\u202e" + strings.Repeat("no ", 4000)}, 0, nil, "400 Bad Request"},
		"endless no":     {&testenv.Defect{Status: 400, Body: strings.Repeat("<Error>", 1<<20)}, 0, nil, "400 Bad Request"},
		"signed, denied": {&testenv.Defect{Do: testenv.Leak, Status: 403}, 0, fs.ErrPermission, "403 Forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testenv.StartAzblob(t, testenv.AzblobConfig{Key: key})
			etag := s.Container("content").Put("blob", "0123456789")
			d := connect(t, access(s, "accountKey", key))
			all, err := keys(t.Context(), d, "")
			if err != nil {
				t.Fatal(err)
			}
			if d := c.defect; d != nil {
				d.Phase = testenv.GetObject
				if d.Header.Get("Etag") != "" {
					d.Header.Set("Etag", `"`+etag+`"`)
				}
			}
			s.Break(c.defect)
			got, err := text(t.Context(), d, all[0], c.offset)
			clean(t, err)
			if c.say == "" {
				if err != nil || got != "0123456789"[c.offset:] {
					t.Errorf("%q, %v", got, err)
				}
				return
			}
			if err == nil || c.is != nil && !errors.Is(err, c.is) || len(err.Error()) > 600 {
				t.Fatalf("%q, %v", got, err)
			}
			if !slices.ContainsFunc(strings.Split(c.say, "|"), func(s string) bool { return strings.Contains(err.Error(), s) }) {
				t.Errorf("%v: does not say %s", err, c.say)
			}
		})
	}
}

// A listing that is none ends with an error that names the blob.
func TestHostileListings(t *testing.T) {
	blob := func(inner string) string {
		return `<?xml version="1.0"?><EnumerationResults><Blobs><Blob>` + inner + `</Blob></Blobs><NextMarker/></EnumerationResults>`
	}
	const properties = `<Properties><Etag>0x1</Etag><Content-Length>1</Content-Length></Properties>`
	for name, c := range map[string]struct {
		body string
		say  string // "" when nothing is listed, and that is right
	}{
		"empty answer":          {"", "the answer is no listing"},
		"a page of a portal":    {"<html><body>Log in</body></html>", "the answer is no listing"},
		"not XML":               {"<html><br>", "list blobs: "},
		"JSON":                  {`{"a":1}`, "list blobs: "},
		"another encoding":      {`<?xml version="1.0" encoding="utf-16"?><EnumerationResults/>`, "list blobs: "},
		"entities":              {`<!DOCTYPE a [<!ENTITY b "b">]><EnumerationResults><Blobs><Blob><Name>&b;</Name></Blob></Blobs></EnumerationResults>`, "list blobs: "},
		"no name":               {blob(properties), "a blob has no name"},
		"empty name":            {blob("<Name></Name>" + properties), "a blob has no name"},
		"empty encoded name":    {blob(`<Name Encoded="true"></Name>` + properties), "a blob has no name"},
		"bad encoded name":      {blob(`<Name Encoded="true">%zz</Name>` + properties), "list blobs: "},
		"bad encoding":          {blob(`<Name Encoded="maybe">a</Name>` + properties), "list blobs: "},
		"no properties":         {blob("<Name>a</Name>"), `"a" has no ETag`},
		"no ETag":               {blob("<Name>a</Name><Properties><Content-Length>1</Content-Length></Properties>"), `"a" has no ETag`},
		"quoted nothing":        {blob("<Name>a</Name><Properties><Etag>&#34;&#34;</Etag><Content-Length>1</Content-Length></Properties>"), `"a" has no ETag`},
		"no size":               {blob("<Name>a</Name><Properties><Etag>0x1</Etag></Properties>"), `"a" has no size`},
		"negative size":         {blob("<Name>a</Name><Properties><Etag>0x1</Etag><Content-Length>-1</Content-Length></Properties>"), `"a" has no size`},
		"huge size":             {blob("<Name>a</Name><Properties><Etag>0x1</Etag><Content-Length>99999999999999999999</Content-Length></Properties>"), "list blobs: "},
		"long marker":           {"<EnumerationResults><Blobs/><NextMarker>" + strings.Repeat("a", 8<<10+1) + "</NextMarker></EnumerationResults>", "has more than 8192 bytes"},
		"bad entity":            {blob("<Name>&nbsp;</Name>" + properties), "list blobs: "},
		"no blobs":              {"<EnumerationResults><NextMarker>x</NextMarker></EnumerationResults>", "the answer is no listing"},
		"blobs elsewhere":       {"<EnumerationResults><Blobs/><Other><Blob><Name>a</Name>" + properties + "</Blob></Other></EnumerationResults>", ""},
		"more than asked for":   {"<EnumerationResults><Blobs>" + strings.Repeat("<Blob><Name>a</Name>"+properties+"</Blob>", 1001) + "</Blobs></EnumerationResults>", "more than the 1000 objects"},
		"cut":                   {blob("<Name>a</Name>" + properties)[:80], "list blobs: "},
		"says the secret":       {blob("<Name>" + key + "</Name>"), "has no ETag"},
		"a snapshot":            {blob("<Name>a</Name><Snapshot>2020-01-01</Snapshot>" + properties), ""},
		"a deleted blob":        {blob("<Name>a</Name><Deleted>true</Deleted>" + properties), ""},
		"an older version":      {blob("<Name>a</Name><VersionId>1</VersionId><IsCurrentVersion>false</IsCurrentVersion>" + properties), ""},
		"deep":                  {strings.Repeat("<a>", 20000), "list blobs: "},
		"more than a page's":    {"<EnumerationResults><Blobs>" + strings.Repeat(" ", 64<<20), "the answer is larger than 16777216 bytes"},
		"names of other things": {`<EnumerationResults><Containers/><Blobs/></EnumerationResults>`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testenv.StartAzblob(t, testenv.AzblobConfig{Key: key, Defect: &testenv.Defect{Phase: testenv.ListObjects, Status: 200, Body: c.body}})
			all, err := keys(t.Context(), connect(t, access(s, "accountKey", key)), "")
			clean(t, err)
			if len(all) > 0 || (err != nil) != (c.say != "") || err != nil && !strings.Contains(err.Error(), c.say) || err != nil && len(err.Error()) > 600 {
				t.Errorf("%v, %v", all, err)
			}
		})
	}
}

// Each answer says what to do about it.
func TestHints(t *testing.T) {
	for _, c := range []struct {
		config testenv.AzblobConfig
		secret []string
		say    string
	}{
		{testenv.AzblobConfig{Key: key}, []string{"accountKey", "AAAA" + key}, "AuthenticationFailed: Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature: check the credentials, and the clock"},
		{testenv.AzblobConfig{Key: key}, nil, "no credentials were sent: name a Secret in spec.secretRef"},
		{testenv.AzblobConfig{SAS: "sp=r&sig=cAnArY"}, []string{"sasKey", "sp=r&sig=cAnArY"}, "AuthorizationPermissionMismatch: This request is not authorized to perform this operation using this permission: give the identity the role Storage Blob Data Reader, or the shared access signature the permissions r and l"},
		{testenv.AzblobConfig{SAS: "se=2020-01-01T00:00:00Z&sig=cAnArY"}, []string{"sasKey", "se=2020-01-01T00:00:00Z&sig=cAnArY"}, "whether a shared access signature has expired"},
	} {
		s := start(t, c.config)
		_, err := keys(t.Context(), connect(t, access(s, c.secret...)), "")
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%v: does not say %s", err, c.say)
		}
		clean(t, err)
	}
	s := start(t, testenv.AzblobConfig{Key: key})
	s.Shift(20 * 60 * 1e9)
	_, err := keys(t.Context(), connect(t, access(s, "accountKey", key)), "")
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "the clock of this machine says") {
		t.Error(err)
	}
	a := access(s, "accountKey", key)
	a.Spec.BucketName = "absent"
	s.Shift(0)
	if _, err := keys(t.Context(), connect(t, a), ""); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(fmt.Sprint(err), "ContainerNotFound") || !strings.Contains(fmt.Sprint(err), "check spec.bucketName") {
		t.Error(err)
	}
}

// A name of a blob is what the account says, which may be a secret.
func TestNameThatIsSecret(t *testing.T) {
	s := testenv.StartAzblob(t, testenv.AzblobConfig{Key: key})
	s.Container("content").Put(key, "a")
	d := connect(t, access(s, "accountKey", key))
	all, err := keys(t.Context(), d, "")
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	for _, defect := range []*testenv.Defect{testenv.With("ETag", "other"), testenv.Status(404), {Do: testenv.Cut, After: -1, Times: 9}} {
		defect.Phase = testenv.GetObject
		s.Break(defect)
		_, err := text(t.Context(), d, all[0], 0)
		if clean(t, err); err == nil || !strings.Contains(err.Error(), "get blob") {
			t.Error(err)
		}
	}
}

func TestPagesWithoutEnd(t *testing.T) {
	s := start(t, testenv.AzblobConfig{Defect: &testenv.Defect{Do: testenv.Loop}})
	d := connect(t, access(s))
	if _, err := keys(t.Context(), d, ""); err == nil || !strings.Contains(err.Error(), "repeats a page") || s.Count() > 3 {
		t.Errorf("%v, %d pages", err, s.Count())
	}
	s.Break(&testenv.Defect{Do: testenv.Endless})
	n := 0
	for o, err := range d.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 1000 {
			break
		}
		_ = o
	}
	if s.Count() > 600 {
		t.Errorf("%d pages for %d blobs", s.Count(), n)
	}
	s.Break(&testenv.Defect{Do: testenv.Swell, After: 65 << 20})
	if _, err := keys(t.Context(), d, ""); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Error(err)
	}
}

// A server that is busy is asked again; when it stays so, the answer says when to come back.
func TestBusy(t *testing.T) {
	busy := testenv.AzureFailure(503, "ServerBusy", "The server is busy.")
	busy.Header.Set("Retry-After", "0")
	busy.Times = 3
	s := start(t, testenv.AzblobConfig{Defect: busy})
	got, err := read(t, connect(t, access(s)))
	if err != nil || !maps.Equal(got, contents) {
		t.Errorf("%v, %v", got, err)
	}
	busy.Times = 0
	busy.Header.Set("Retry-After", "3600")
	s.Break(busy)
	_, err = read(t, connect(t, access(s)))
	refused, ok := errors.AsType[*bucket.StatusError](err)
	if !ok || refused.RetryAfter().Hours() != 1 || refused.Code != "ServerBusy" {
		t.Errorf("%v", err)
	}
}
