package bucket_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/source"
)

// answer returns a defect that answers every request with the same response, with a header
// NAME, VALUE, …
func answer(status int, body string, header ...string) *testenv.Defect {
	d := &testenv.Defect{Status: status, Header: http.Header{}, Body: body}
	for i := 0; i < len(header); i += 2 {
		d.Header.Set(header[i], header[i+1])
	}
	return d
}

// handled returns a defect that answers requests with h.
func handled(h func(w http.ResponseWriter, r *http.Request, next http.Handler)) *testenv.Defect {
	return &testenv.Defect{Do: testenv.Serve, Handler: h}
}

// raw returns a defect that answers with the raw text. It replaces %s by the credentials
// or the signature of the request.
func raw(text string) *testenv.Defect {
	return handled(func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		_, proof, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if proof += r.PostFormValue("assertion"); r.URL.Query().Has("sig") {
			proof = r.URL.RawQuery
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		fmt.Fprint(conn, strings.ReplaceAll(text, "%s", proof))
		conn.Close()
	})
}

// hostileListings returns invalid listings, by store and by a part of the expected error
// before "; ". If that part is "", an empty listing without an error is correct too.
func hostileListings() map[*storeMaker]map[string]*testenv.Defect {
	const object = "<Contents><Key>a</Key><ETag>&quot;e&quot;</ETag><Size>1</Size></Contents>"
	listing := func(inside string) *testenv.Defect {
		return answer(200, "<ListBucketResult>"+inside+"</ListBucketResult>")
	}
	ended := func(inside string) *testenv.Defect { return listing("<IsTruncated>false</IsTruncated>" + inside) }
	json := func(body string) *testenv.Defect { return answer(200, body, "Content-Type", "application/json") }
	items := func(text string) *testenv.Defect { return json(`{"kind":"storage#objects","items":[` + text + `]}`) }
	const properties = `<Properties><Etag>0x1</Etag><Content-Length>1</Content-Length></Properties>`
	blobs := func(text string) *testenv.Defect {
		return answer(200, `<?xml version="1.0"?><EnumerationResults><Blobs>`+text+`</Blobs><NextMarker/></EnumerationResults>`)
	}
	blob := func(text string) *testenv.Defect { return blobs("<Blob>" + text + "</Blob>") }
	of := func(properties string) *testenv.Defect {
		return blob("<Name>a</Name><Properties>" + properties + "</Properties>")
	}
	long, notS3 := strings.Repeat("canary-", 1<<16), "not what a store of S3 writes"
	return map[*storeMaker]map[string]*testenv.Defect{
		aws: {
			"it lacks ListObjectsV2":           listing("<IsTruncated>true</IsTruncated>"),
			"no listing":                       listing(object), // IsTruncated is missing
			notS3 + "; maybe":                  listing("<IsTruncated>maybe</IsTruncated>"),
			"no listing; XHTML":                answer(200, "<html><body>log in</body></html>"),
			"no listing; error":                answer(200, "<Error><Code>InternalError</Code></Error>"),
			"no listing; buckets":              answer(200, `<ListAllMyBucketsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"/>`),
			notS3 + "; half":                   answer(200, "<ListBucketResult><IsTruncated>false</IsTruncated>"),
			notS3 + "; tags crossed":           ended("<a><b></a></b>"),
			"no listing; deep":                 listing(strings.Repeat("<a>", 20)),
			notS3 + "; entity":                 ended("<Contents><Key>&canary;</Key><Size>1</Size></Contents>"),
			"no listing; declared":             answer(200, `<!DOCTYPE a [<!ENTITY e "canary">]><ListBucketResult/>`),
			"with several":                     ended("<Contents><Key>a</Key><Key>b</Key><Size>1</Size></Contents>"),
			"lists an object without Key, or":  ended("<Contents><ETag>e</ETag><Size>1</Size></Contents>"),
			"lists an object without Size, or": ended("<Contents><Key>a</Key><ETag>e</ETag></Contents>"),
			"without Key or Size":              ended("<Contents><Key>a</Key><Size>-1</Size></Contents>"),
			notS3 + "; huge size":              ended("<Contents><Key>a</Key><Size>9223372036854775808</Size></Contents>"),
			notS3 + "; badly encoded":          ended("<EncodingType>url</EncodingType><Contents><Key>%zz</Key><Size>1</Size></Contents>"),
			"more than the 1000 objects":       ended(strings.Repeat(object, 1001)),
			"more than the 1000 objects; none": ended(strings.Repeat("<Contents/>", 700_000)),
			"page token has more than 8192":    listing("<IsTruncated>true</IsTruncated><NextContinuationToken>" + strings.Repeat("t", 9000) + "</NextContinuationToken>"),
			"no listing; declared JSON":        answer(200, "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>", "Content-Type", "application/json"),
			"no listing; declared HTML":        answer(200, "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>", "Content-Type", "text/html; charset=utf-8"),
			"larger than 8388608 bytes":        {Do: testenv.OversizedBody, After: 1 << 30},
		},
		google: {
			"no listing":                    json(`{}`),
			"no listing; null":              json(`null`),
			"no listing; buckets":           json(`{"kind":"storage#buckets"}`),
			"no listing; torn":              json(`{"items":[{"name":"a"`),
			"no listing; number":            json(`{"items":7}`),
			"list objects: ; null":          items(`null`),
			"without a name; none":          items(`{"etag":"e","size":"1","generation":"1"}`),
			"list objects: ; generation":    items(`{"name":"a","etag":"e","size":"1"}`),
			"or a generation; negative":     items(`{"name":"a","etag":"e","size":"1","generation":"-1"}`),
			"list objects: ; 2^63":          items(`{"name":"a","etag":"e","size":"1","generation":"9223372036854775808"}`),
			"list objects: ; no size":       items(`{"name":"a","etag":"e","size":"","generation":"1"}`),
			"no listing; numbers":           items(`{"name":"a","etag":"e","size":1,"generation":1}`),
			"list objects: ; fraction":      items(`{"name":"a","etag":"e","size":"1e3","generation":"1"}`),
			"list objects: ; negative size": items(`{"name":"a","etag":"e","size":"-1","generation":"1"}`),
			"a size or; of 2^63":            items(`{"name":"a","etag":"e","size":"9223372036854775808","generation":"1"}`),
			"list objects: ; text":          items(`{"name":"a","etag":"e","size":"` + strings.Repeat("x", 1<<19) + `","generation":"1"}`),
			"list objects: ; two lists":     json(`{"items":[` + strings.Repeat(`{},`, 2<<20) + `{}],"kind":"storage#objects","items":[{}]}`),
			"without a name; second list":   json(`{"kind":"storage#objects","items":[{"name":"a","etag":"e","size":"1","generation":"1"}],"items":[{"etag":"e","size":"1","generation":"1"}]}`),
			"no listing; twice":             json(`{"kind":"storage#objects"}{}`),
			"no listing; text behind":       json(`{"kind":"storage#objects"}canary`),
			"more than the 1000 objects":    items(strings.Repeat(`{},`, 2<<20) + `{}`),
			"more than the 1000 objects; 1": items(strings.Repeat(`{"name":"a","etag":"e","size":"1","generation":"1"},`, 1000) + `{"name":"b","etag":"e","size":"1","generation":"1"}`),
			"page token has more than":      json(`{"kind":"storage#objects","nextPageToken":"` + long + `"}`),
			"no listing; token":             json(`{"kind":"storage#objects","nextPageToken":["canary"]}`),
			"no listing; deep":              json(`{"odd":` + strings.Repeat(`[`, 1<<20)),
			"larger than 8388608 bytes":     json(strings.Repeat(" ", 9<<20)),
			"larger than 8388608 bytes; 1":  {Do: testenv.OversizedBody, After: 64 << 20},
			"400 Bad Request: listed":       answer(400, `[{"error":{"code":400,"message":"listed","errors":[{"reason":"a reason"}]}}]`),
			"403 Forbidden: grant":          answer(403, `{"error":7}`),
		},
		microsoft: {
			"no listing":                    answer(200, "<html><body>Log in</body></html>"),
			"list objects: ; encoding":      answer(200, `<?xml version="1.0" encoding="utf-16"?><EnumerationResults/>`),
			"list objects: ; entities":      answer(200, `<!DOCTYPE a [<!ENTITY b "b">]><EnumerationResults><Blobs><Blob><Name>&b;</Name></Blob></Blobs></EnumerationResults>`),
			"without a name; none":          blob(properties),
			"without a name; empty":         blob("<Name></Name>" + properties),
			"without a name; encoded":       blob(`<Name Encoded="true"></Name>` + properties),
			"list objects: ; badly encoded": blob(`<Name Encoded="true">%zz</Name>` + properties),
			"list objects: ; maybe":         blob(`<Name Encoded="maybe">a</Name>` + properties),
			"an ETag or; no properties":     blob("<Name>a</Name>"),
			"an ETag or; none":              of("<Content-Length>1</Content-Length>"),
			"or a size; none":               of("<Etag>0x1</Etag>"),
			"or a size; negative":           of("<Etag>0x1</Etag><Content-Length>-1</Content-Length>"),
			"list objects: ; huge size":     of("<Etag>0x1</Etag><Content-Length>99999999999999999999</Content-Length>"),
			"page token has more than 8192": answer(200, "<EnumerationResults><Blobs/><NextMarker>"+strings.Repeat("a", 8<<10+1)+"</NextMarker></EnumerationResults>"),
			"list objects: ; bad entity":    blob("<Name>&nbsp;</Name>" + properties),
			"no listing; no blobs":          answer(200, "<EnumerationResults><NextMarker>x</NextMarker></EnumerationResults>"),
			"; elsewhere":                   answer(200, "<EnumerationResults><Blobs/><Other><Blob><Name>a</Name>"+properties+"</Blob></Other></EnumerationResults>"),
			"more than the 1000 objects":    blobs(strings.Repeat("<Blob><Name>a</Name>"+properties+"</Blob>", 1001)),
			"an ETag or; a secret":          blob("<Name>" + accountKey + "</Name>"),
			"; a snapshot":                  blob("<Name>a</Name><Snapshot>2020-01-01</Snapshot>" + properties),
			"; a deleted blob":              blob("<Name>a</Name><Deleted>true</Deleted>" + properties),
			"; an older version":            blob("<Name>a</Name><VersionId>1</VersionId><IsCurrentVersion>false</IsCurrentVersion>" + properties),
			"list objects: ; deep":          answer(200, strings.Repeat("<a>", 20000)),
			"larger than 16777216 bytes":    answer(200, "<EnumerationResults><Blobs>"+strings.Repeat(" ", 17<<20)),
			"400 Bad Request":               answer(400, "<Error><Code>a b</Code><Message>\x1b[31m\u202e"+strings.Repeat("no ", 4000), "X-Ms-Error-Code", "<b> \x80"),
			"304":                           answer(304, ""),
			"list objects: ; bad header":    testenv.SetHeader("Date", "sig="+accountKey),
			"; a framing of Azure's":        nil,
			"404 Not Found; repeats":        {Do: testenv.Leak, Status: 404},
			"409 Conflict: UnknownError":    {Do: testenv.Leak, Status: 409},
			"list objects: ; repeats it as XML": handled(func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				w.Write([]byte("<" + r.URL.RawQuery + r.Header.Get("Authorization") + ">"))
			}),
		},
	}
}

// hostileAnswers returns responses that are invalid for every request.
func hostileAnswers(stranger string) map[string]*testenv.Defect {
	return map[string]*testenv.Defect{
		"listing":                       answer(200, "<!DOCTYPE html><html><body>log in</body></html>"),
		"listing; JSON":                 answer(200, `{"canary":1}`),
		"listing; nothing":              answer(200, ""),
		"204|":                          answer(204, ""),
		"EOF":                           {Do: testenv.Cut, After: -1},
		"":                              {Do: testenv.Cut, After: 60},
		"repeats a page token":          {Do: testenv.PageLoop},
		"400 Bad Request: UnknownError": {Do: testenv.Leak, Status: 400},
		"400 Bad Request; HTML":         answer(400, "<html>canary</html>", "Content-Type", "text/html"),
		"400 Bad Request: sorry":        answer(400, "sorry\r\n\x1b[31m", "Content-Type", "text/plain"),
		"400 Bad Request: ää":           answer(400, strings.Repeat("ä", 5000), "Content-Type", "text/plain"),
		"403 Forbidden; huge":           answer(403, "<Error><Code>"+strings.Repeat("A", 1<<20)),
		"403 Forbidden; portal":         answer(403, "<html>canary</html>"),
		"307 Temporary Redirect: it redirects to " + stranger: answer(307, "", "Location", stranger+"/canary?sig=canary"),
		"302 Found|not followed":                              answer(302, "", "Location", "/elsewhere"),
		"301 Moved":                                           answer(301, ""),
		"; nowhere":                                           answer(307, "", "Location", "http://%zz/canary"),
		"; long address":                                      answer(307, "", "Location", "https://"+strings.Repeat("a", 100_000)),
		"503 Service Unavailable|1h0m0s":                      answer(503, "", "Retry-After", "3600"),
		"; status line":                                       raw("%s\r\n\r\n"),
		"; header line":                                       raw("HTTP/1.1 200 OK\r\n%s\r\n\r\n"),
		"; length":                                            raw("HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n"),
		"; location":                                          raw("HTTP/1.1 307 No\r\nLocation: https://%s.example/%s\r\n\r\n"),
		"; code":                                              raw("HTTP/1.1 403 Forbidden\r\n\r\n{\"error\":\"%s\",\"error_description\":\"%s\"}"),
	}
}

// TestHostileListings checks that invalid listings fail with bounded memory, and that no
// error contains the credentials of a request.
func TestHostileListings(t *testing.T) {
	stranger := testenv.StartS3(t, testenv.StoreConfig{})
	listings := hostileListings()
	for _, m := range makers {
		s := m.filled(t, m.private)
		d := m.opened(t, s)
		for _, rows := range []map[string]*testenv.Defect{hostileAnswers(stranger.Base), listings[m]} {
			for name, defect := range rows {
				s.Break(defect)
				var all []bucket.Object
				var err error
				used := measure.AllocatedBytes(func() { all, err = list(t.Context(), d, "") })
				if say, _, _ := strings.Cut(name, "; "); say != "" || err != nil {
					if requireError(t, s, err, strings.Replace(say, "204|", "", 1)); t.Failed() {
						t.Fatalf("%s, %s", m.provider, name)
					}
				}
				if len(all) > 0 || used > 128<<20 { // includes the store's memory
					t.Errorf("%s, %s: listed %v, %d bytes were allocated", m.provider, name, all, used)
				}
			}
		}
	}
	testenv.Equal(t, stranger.Count(), 0, "a stranger was asked: %+v", stranger.Requests())
}

// TestHostileObjects checks that reading an object returns exactly the listed content or an
// error, whatever the store answers.
func TestHostileObjects(t *testing.T) {
	t.Parallel()
	const content = "0123456789"
	stranger := testenv.StartS3(t, testenv.StoreConfig{})
	unranged, other := testenv.IgnoreHeaders("Range", "X-Ms-Range"), func(m *storeMaker) *testenv.Defect {
		if m == google {
			return testenv.SetHeader("X-Goog-Generation", "7")
		}
		return testenv.SetHeader("ETag", `"7"`)
	}
	for _, m := range makers {
		s := m.filled(t, m.private, "a", content)
		d := m.opened(t, s)
		o := object(t, d)
		type row struct {
			defect *testenv.Defect
			offset int64
			is     error
			say    string // "" for a success
		}
		rows := map[string]row{
			"no conditions":     {testenv.IgnoreHeaders("If-Match"), 0, nil, ""},
			"changed":           {m.failure(412, "Changed", "no"), 0, bucket.ErrChanged, "412 Precondition Failed"},
			"another":           {other(m), 0, bucket.ErrChanged, `"7"`},
			"another's part":    {other(m), 5, bucket.ErrChanged, `"7"`},
			"removed":           {m.failure(404, "Absent", "gone"), 0, fs.ErrNotExist, "404 Not Found"},
			"refused":           {m.failure(403, "Denied", "no"), 0, fs.ErrPermission, "403 Forbidden"},
			"another part":      {testenv.SetHeader("Content-Range", "bytes 4-9/10"), 5, nil, "another part of it than bytes 5-9/10"},
			"of a longer one":   {testenv.SetHeader("Content-Range", "bytes 5-9/11"), 5, nil, "another part of it than bytes 5-9/10"},
			"a part, unasked":   {answer(206, content, "ETag", `"`+o.ETag+`"`), 0, nil, "a part of it"},
			"announced longer":  {answer(200, content+"0", "ETag", `"`+o.ETag+`"`), 0, bucket.ErrChanged, "the answer has 11 bytes, by its listing it should have 10"},
			"announced shorter": {answer(200, content[1:], "ETag", `"`+o.ETag+`"`), 0, bucket.ErrChanged, "the answer has 9 bytes"},
			"redirect":          {answer(302, "", "Location", stranger.Base+"/canary?sig=canary"), 0, nil, "302 Found: it redirects to " + stranger.Base},
			"no such range":     {answer(416, ""), 5, nil, "416"},
			"endless no":        {answer(400, strings.Repeat("<Error>", 1<<20)), 0, nil, "400 Bad Request"},
			"hangs up":          {&testenv.Defect{Do: testenv.Cut, After: -1}, 0, nil, "EOF"},
			"leaks":             {&testenv.Defect{Do: testenv.Leak, Status: 400}, 0, nil, "400 Bad Request"},
			"repeats a header":  {raw("HTTP/1.1 200 OK\r\nETag: \"%s\"\r\nContent-Range: %s\r\nX-Goog-Generation: %s\r\nX-Goog-Stored-Content-Encoding: %s\r\n\r\n"), 0, nil, "***"},
			"no ETag":           {testenv.SetHeader("ETag", ""), 0, bucket.ErrChanged, `is ""`},
			"no ranges":         {unranged, 5, nil, "another part of it"},
		}
		switch m {
		case aws:
			rows["no ranges"] = row{unranged, 4, nil, ""}
			rows["weak ETag"] = row{testenv.SetHeader("ETag", `W/"`+o.ETag+`"`), 0, nil, ""}
			rows["whole, and cut"] = row{handled(func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				w.Header().Set("ETag", r.Header.Get("If-Match"))
				w.Header().Set("Content-Length", "10")
				fmt.Fprint(w, "01")
				http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}), 4, nil, "the answer breaks off: unexpected EOF"}
			rows["archived"] = row{m.failure(403, "InvalidObjectState", "archived"), 0, nil, "it is archived: restore it, or exclude it with spec.ignore"}
		case google:
			rows["no ETag"] = row{testenv.SetHeader("ETag", ""), 0, nil, ""}
			rows["no generation"] = row{testenv.SetHeader("X-Goog-Generation", ""), 0, nil, ""}
			rows["no generation, another ETag"] = row{answer(200, content, "ETag", `"other"`), 0, bucket.ErrChanged, `and is "other"`}
			rows["nothing but the content"] = row{answer(200, content), 0, nil, ""}
			rows["one byte is another"] = row{&testenv.Defect{Do: testenv.Flip, After: 5}, 0, nil, "bad CRC on read"}
			rows["a sum that is none"] = row{testenv.SetHeader("X-Goog-Hash", "crc32c=canary"), 0, nil, ""}
			rows["the sum of a part is not that"] = row{testenv.SetHeader("X-Goog-Hash", "crc32c=AAAAAA=="), 5, nil, ""}
			rows["stored compressed"] = row{testenv.SetHeader("X-Goog-Stored-Content-Encoding", "gzip"), 0, nil, `stored with the content encoding "gzip"`}
			rows["compressed on the way"] = row{testenv.SetHeader("Content-Encoding", "gzip"), 0, nil, `was sent with "gzip"`}
			rows["trailer"] = row{raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n%s\r\n\r\n"), 0, nil, "get object: "}
		case microsoft:
			rows["framing"] = row{testenv.SetHeader("X-Ms-Structured-Body", "XSM/1.0; properties=crc64"), 0, nil, ""}
			rows["bad number"] = row{testenv.SetHeader("X-Ms-Blob-Committed-Block-Count", "many"), 0, nil, "get object: "}
		}
		for name, c := range rows {
			c.defect.Phase = testenv.GetObject
			s.Break(c.defect)
			text, err := read(t.Context(), d, o, c.offset)
			switch {
			case c.say == "" && (text != content[c.offset:] || err != nil):
				t.Errorf("%s, %s: %q, %v", m.provider, name, text, err)
			case c.say == "":
			default:
				if requireError(t, s, err, c.say); c.is != nil && !errors.Is(err, c.is) || t.Failed() {
					t.Fatalf("%s, %s: %v is not %v", m.provider, name, err, c.is)
				}
			}
		}
	}
	testenv.Equal(t, stranger.Count(), 0, "a stranger was asked: %+v", stranger.Requests())
}

// TestEndlessListings checks that a listing without an end or without a response ends when
// its context is canceled.
func TestEndlessListings(t *testing.T) {
	t.Parallel()
	given := errors.New("given up")
	for _, m := range makers {
		for name, defect := range map[string]*testenv.Defect{"endless": {Do: testenv.EndlessList}, "stalls": {Do: testenv.Stall, After: -1}, "stalls in the midst": {Do: testenv.Stall, After: 60}} {
			s := m.filled(t, testenv.StoreConfig{}, "a", "1")
			d := m.connected(t, m.access(s))
			stalled := s.Break(defect)
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() { <-stalled; cancel(given) }()
			n, last := 0, error(nil)
			for _, err := range d.List(ctx, "") {
				if n++; n == 100 {
					cancel(given)
				}
				last = err
			}
			cancel(nil)
			testenv.ErrorIs(t, last, given, "%s, %s", m.provider, name)
		}
	}
}

// TestAgain checks that a page that breaks off is requested at most three times, and that
// requests to a busy store are retried.
func TestAgain(t *testing.T) {
	t.Parallel()
	for _, m := range makers {
		for times, want := range map[int]int{2: 4, 3: 3} {
			s := m.filled(t, testenv.StoreConfig{PageSize: 1}, "a", "1", "b", "2")
			s.Break(&testenv.Defect{Phase: testenv.ListObjects, Do: testenv.Cut, After: 60, Times: times})
			all, err := list(t.Context(), m.connected(t, m.access(s)), "")
			if s.Count(testenv.ListObjects) != want || times == 2 && (err != nil || len(all) != 2) || times == 3 && (err == nil || !strings.Contains(err.Error(), "breaks off")) {
				t.Errorf("%s: %v, %v, %d pages", m.provider, all, err, s.Count(testenv.ListObjects))
			}
		}
		s := m.filled(t, testenv.StoreConfig{}, "a", "1")
		d := m.connected(t, m.access(s))
		for _, status := range []int{408, 429, 500, 502, 503, 504} {
			busy := answer(status, "", "Retry-After", "0")
			busy.Times = 2
			s.Break(busy)
			if all, err := list(t.Context(), d, ""); len(all) != 1 || err != nil {
				t.Errorf("%s, %d: %v", m.provider, status, err)
			}
		}
	}
}

// TestHostileTokenServices tests invalid responses of the token services of S3 and Google,
// and of the authority of Azure.
func TestHostileTokenServices(t *testing.T) {
	t.Parallel()
	stranger := testenv.StartS3(t, testenv.StoreConfig{})
	ca := testenv.NewCA(t)
	const begin = `<AssumeRoleWithLDAPIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithLDAPIdentityResult><Credentials>`
	const end = `</Credentials></AssumeRoleWithLDAPIdentityResult></AssumeRoleWithLDAPIdentityResponse>`
	services := map[*storeMaker]struct {
		config testenv.StoreConfig
		phase  testenv.Phase
		access func(s *testenv.Store) *bucket.Access
		own    map[string]*testenv.Defect
	}{
		aws: {testenv.StoreConfig{LDAPUsername: "reader", LDAPPassword: canary}, testenv.AssumeRole, ldap, map[string]*testenv.Defect{
			"no token that can be sent":          answer(200, begin+end),
			"no token that can be sent; forged":  answer(200, begin+"<AccessKeyId>A&#10;B</AccessKeyId><SecretAccessKey>c</SecretAccessKey>"+end),
			"no token that can be sent; session": answer(200, begin+"<AccessKeyId>A</AccessKeyId><SecretAccessKey>c</SecretAccessKey><SessionToken>a b</SessionToken>"+end),
			"larger than 1048576 bytes":          answer(200, begin+"<AccessKeyId>"+strings.Repeat("A", 2<<20)),
			"; long name":                        answer(200, "<A"+strings.Repeat("A", 1<<19)+"/>"),
			"; long date":                        answer(200, begin+"<Expiration>"+strings.Repeat("9 ", 1<<18)+"</Expiration>"+end),
		}},
		google: {google.private, testenv.GetToken, func(s *testenv.Store) *bucket.Access { return google.access(s, google.secret(s)...) }, map[string]*testenv.Defect{
			"no token that can be sent":         answer(200, `{"expires_in":3600}`),
			"no token that can be sent; forged": answer(200, `{"access_token":"can\r\nary"}`),
			"; a token that is none":            answer(200, `{"access_token":{"canary":1}}`),
			"; endless":                         answer(200, `{"access_token":"`+strings.Repeat("canary", 1<<20)),
			"; trailer":                         raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n%s\r\n\r\n"),
			"400 Bad Request: invalid_grant":    {Do: testenv.Leak},
			"no token that can be sent; object": answer(200, `{"error":{"canary":1}}`),
		}},
		microsoft: {testenv.StoreConfig{CA: ca, Tenant: tenant, Client: "app", Secret: canary}, testenv.GetToken, func(s *testenv.Store) *bucket.Access {
			a := microsoft.access(s, application(s)...)
			a.Transport.TLS = trusting(t, ca, nil)
			return a
		}, map[string]*testenv.Defect{
			"get a token":               answer(200, "{}"),
			"no token that can be sent": answer(200, `{"access_token":"a\r\nb","expires_in":3600,"token_type":"Bearer"}`),
		}},
	}
	for m, service := range services {
		s := m.start(t, service.config)
		for _, rows := range []map[string]*testenv.Defect{service.own, {
			"; leak": {Do: testenv.Leak, Status: 403}, "302 Found": testenv.Redirect(stranger.Base), "307 Temporary Redirect": answer(307, "", "Location", stranger.Base),
			"; no form": answer(200, "<html>"+canary), "; cut": {Do: testenv.Cut, After: 10}, "EOF": {Do: testenv.Cut, After: -1}, "404 Not Found": answer(404, "<html>canary"),
			"503 Service Unavailable: try again in 2m0s": answer(503, "", "Retry-After", "120"),
			"403 Forbidden: ; endless":                   answer(403, `{"error":"`+strings.Repeat("canary", 100)+`","error_description":"`+strings.Repeat("x", 20000)+`"}`),
			"; status line":                              raw("%s\r\n\r\n"), "; header line": raw("HTTP/1.1 200 OK\r\n%s\r\n\r\n"),
			"403 Forbidden; code": raw("HTTP/1.1 403 Forbidden\r\n\r\n{\"error\":\"%s\",\"error_description\":\"%s\"}"),
		}} {
			for name, defect := range rows {
				defect.Phase = service.phase
				s.Break(defect)
				a := service.access(s)
				_, err := m.connect(t.Context(), a)
				say, _, _ := strings.Cut(name, "; ")
				requireError(t, s, err, say)
				for _, secret := range a.SecretReader.Values() {
					if err != nil && secret != "" && strings.Contains(err.Error(), secret) {
						t.Errorf("%v: shows %s", err, secret)
					}
				}
				if requireReason(t, err, "AuthenticationFailed", false); errors.Is(err, fs.ErrNotExist) || errors.Is(err, bucket.ErrChanged) || t.Failed() {
					t.Fatalf("%s, %s: %v", m.provider, name, err)
				}
			}
		}
		stalled := s.Break(&testenv.Defect{Phase: service.phase, Do: testenv.Stall, After: -1})
		ctx, cancel := context.WithCancelCause(t.Context())
		given := errors.New("given up")
		go func() { <-stalled; cancel(given) }()
		_, err := m.connect(ctx, service.access(s))
		testenv.ErrorIs(t, err, given, m.provider)
	}
	testenv.Equal(t, stranger.Count(), 0, "a stranger was asked: %+v", stranger.Requests())
}

// ldap returns an Access that gets its keys from the token service of s.
func ldap(s *testenv.Store) *bucket.Access {
	return exchanged(s, "ldap", "username", "reader", "password", canary)
}

func exchanged(s *testenv.Store, provider string, keyValue ...string) *bucket.Access {
	a := aws.access(s)
	a.Spec.STS = &source.BucketSTSSpec{Provider: provider, Endpoint: s.Base, SecretRef: ref("sts")}
	a.STS = secretOf(a.SecretReader, "sts", keyValue...)
	return a
}

// TestExpiry checks that a credential that expires or is refused during a request is
// replaced once.
func TestExpiry(t *testing.T) {
	t.Parallel()
	ca := testenv.NewCA(t)
	for m, c := range map[*storeMaker]struct {
		config testenv.StoreConfig
		access func(s *testenv.Store) *bucket.Access
		phase  testenv.Phase
	}{
		aws:    {testenv.StoreConfig{LDAPUsername: "reader", LDAPPassword: canary, PageSize: 1}, ldap, testenv.AssumeRole},
		google: {testenv.StoreConfig{ServiceAccount: serviceAccount, PageSize: 1}, func(s *testenv.Store) *bucket.Access { return google.access(s, google.secret(s)...) }, testenv.GetToken},
		microsoft: {testenv.StoreConfig{CA: ca, Tenant: tenant, Client: "app", Secret: canary, PageSize: 1}, func(s *testenv.Store) *bucket.Access {
			a := microsoft.access(s, application(s)...)
			a.Transport.TLS = trusting(t, ca, nil)
			return a
		}, testenv.GetToken},
	} {
		s := m.filled(t, c.config, "a", "1", "b", "2", "c", "3")
		a := c.access(s)
		d := m.connected(t, a)
		all, err := list(t.Context(), d, "")
		if err != nil || len(all) != 3 || s.Count(c.phase) != 1 {
			t.Fatalf("%s: %v, %v, %d", m.provider, all, err, s.Count(c.phase))
		}
		s.Expire()
		if text, err := read(t.Context(), d, all[2], 0); text != "3" || err != nil || s.Count(c.phase) != 2 {
			t.Errorf("%s: %q, %v, logged in %d times", m.provider, text, err, s.Count(c.phase))
		}
		s.Expire()
		if all, err := list(t.Context(), d, ""); len(all) != 3 || err != nil || s.Count(c.phase) != 3 {
			t.Errorf("%s: %v, %v, logged in %d times", m.provider, all, err, s.Count(c.phase))
		}
		before := s.Count(testenv.GetObject)
		s.Break(inPhase(testenv.GetObject, m.failure(401, "ExpiredToken", "Invalid Credentials")))
		_, err = read(t.Context(), d, all[0], 0)
		if requireError(t, s, err, "401 Unauthorized: "); !errors.Is(err, fs.ErrPermission) || s.Count(testenv.GetObject)-before != 2 {
			t.Errorf("%s: %v, %d requests", m.provider, err, s.Count(testenv.GetObject)-before)
		}
		s.Break(&testenv.Defect{Phase: c.phase, Status: 404})
		s.Expire()
		_, err = read(t.Context(), d, all[0], 0)
		if requireError(t, s, err, "404"); errors.Is(err, fs.ErrNotExist) || errors.Is(err, bucket.ErrChanged) {
			t.Errorf("%v: is not about the object", err)
		}
		for _, token := range s.Issued() {
			if len(token) != 64 && !strings.Contains(strings.Join(a.SecretReader.Values(), " "), token) { // a signature has 64
				t.Errorf("%s: %s is not kept out of texts", m.provider, token)
			}
		}
	}
}
