package gcs_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/testenv"
)

func answer(status int, kind, body string) *testenv.Defect {
	return &testenv.Defect{Do: testenv.Answer, Status: status, Header: http.Header{"Content-Type": {kind}}, Body: body}
}

// judge checks an error of a hostile store.
func judge(t *testing.T, err error, says string) {
	t.Helper()
	switch {
	case err == nil:
		t.Error("no error")
	case !strings.Contains(err.Error(), says):
		t.Errorf("%v: does not say %s", err, says)
	case len(err.Error()) > 1<<10:
		t.Errorf("an error of %d bytes", len(err.Error()))
	case strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "alt="):
		t.Errorf("%v: shows what it should not", err)
	}
}

func TestHostileListings(t *testing.T) {
	t.Parallel()
	json := func(body string) *testenv.Defect { return answer(200, "application/json", body) }
	item := func(fields string) *testenv.Defect {
		return json(`{"kind":"storage#objects","items":[{` + fields + `}]}`)
	}
	long := strings.Repeat("canary-", 1<<16)
	for name, c := range map[string]struct {
		defect *testenv.Defect
		say    string
	}{
		"nothing":               {json(``), "not a listing"},
		"no content":            {answer(204, "", ""), "not a listing"},
		"null":                  {json(`null`), "not a listing"},
		"nothing of a listing":  {json(`{}`), "not a listing: check spec.endpoint"},
		"another thing":         {json(`{"kind":"storage#buckets"}`), "not a listing"},
		"no JSON":               {json(`<html>`), "not a listing"},
		"a list":                {json(`[]`), "not a listing"},
		"torn":                  {json(`{"items":[{"name":"a"`), "not a listing"},
		"items that are none":   {json(`{"items":7}`), "not a listing"},
		"an item that is null":  {json(`{"kind":"storage#objects","items":[null]}`), "no name"},
		"no name":               {item(`"etag":"e","size":"1","generation":"1"`), "no name"},
		"no etag":               {item(`"name":"a","size":"1","generation":"1"`), `"a" has no etag`},
		"an empty etag":         {item(`"name":"a","etag":"W/\"\"","size":"1","generation":"1"`), "no etag"},
		"no generation":         {item(`"name":"a","etag":"e","size":"1"`), "no generation"},
		"negative generation":   {item(`"name":"a","etag":"e","size":"1","generation":"-1"`), "no generation"},
		"generation of 2^63":    {item(`"name":"a","etag":"e","size":"1","generation":"9223372036854775808"`), "no generation"},
		"no size":               {item(`"name":"a","etag":"e","generation":"1"`), `"a" has no size`},
		"numbers":               {item(`"name":"a","etag":"e","size":1,"generation":1`), "not a listing"},
		"a fraction":            {item(`"name":"a","etag":"e","size":"1e3","generation":"1"`), "no size"},
		"endless generation":    {item(`"name":"a","etag":"e","size":"1","generation":"99999999999999999999"`), "no generation"},
		"negative size":         {item(`"name":"a","etag":"e","size":"-1","generation":"1"`), "no size"},
		"size of 2^63":          {item(`"name":"a","etag":"e","size":"9223372036854775808","generation":"1"`), "no size"},
		"a size that is a text": {item(`"name":"a","etag":"e","size":"` + long + `","generation":"1"`), "no size"},
		"a long name":           {item(`"name":"` + strings.Repeat("a", 1<<16) + `"`), "no etag"},
		"no end of a name":      {&testenv.Defect{Do: testenv.Swell, After: 64 << 20}, "larger than 8388608 bytes"},
		"objects twice":         {json(`{"kind":"storage#objects","items":[{"name":"a","etag":"e","size":"1","generation":"1"}],"items":[{"name":"b"}]}`), `"b" has no etag`},
		"more than a page":      {json(`{"kind":"storage#objects"}{}`), "not a listing"},
		"text behind the page":  {json(`{"kind":"storage#objects"}canary`), "not a listing"},
		"many empty objects":    {json(`{"kind":"storage#objects","items":[` + strings.Repeat(`{},`, 2<<20) + `{}]}`), "more than the 1000 objects"},
		"a long page token":     {json(`{"kind":"storage#objects","nextPageToken":"` + long + `"}`), "page token has more than"},
		"a token of no text":    {json(`{"kind":"storage#objects","nextPageToken":["canary"]}`), "not a listing"},
		"deep in what is odd":   {json(`{"odd":` + strings.Repeat(`[`, 1<<20)), "not a listing"},
		"nothing, without end":  {json(strings.Repeat(" ", 17<<20)), "larger than 8388608 bytes"},
		"the same page again":   {&testenv.Defect{Do: testenv.Loop}, "repeats a page token"},
		"deep":                  {json(strings.Repeat(`{"items":[`, 1<<15)), "list objects: "},
		"redirect":              {&testenv.Defect{Do: testenv.Answer, Status: 307, Header: http.Header{"Location": {"http://127.0.0.1:1"}}}, "307"},
		"redirect to nowhere":   {&testenv.Defect{Do: testenv.Answer, Status: 307, Header: http.Header{"Location": {"http://%zz/canary"}}}, ""},
		"an error of HTML":      {answer(400, "text/html", "<html>canary</html>"), "list objects: 400 Bad Request"},
		"an error of text":      {answer(400, "text/plain", "sorry\r\n\x1b[31m"), "list objects: 400 Bad Request: sorry"},
		"an endless error":      {answer(400, "text/plain", long), "list objects: 400 Bad Request"},
		"a long error":          {answer(400, "text/plain", strings.Repeat("ä", 1000)), "ää…"},
		"more than was asked":   {json(`{"kind":"storage#objects","items":[` + strings.Repeat(`{"name":"a","etag":"e","size":"1","generation":"1"},`, 1000) + `{"name":"b","etag":"e","size":"1","generation":"1"}]}`), "more than the 1000 objects"},
		"a list of errors":      {answer(400, "application/json", `[{"error":{"code":400,"message":"listed","errors":[{"reason":"a reason"}]}}]`), "400 Bad Request: listed"},
		"an error that is none": {answer(403, "application/json", `{"error":7}`), "403 Forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testenv.StartGCS(t, testenv.GCSConfig{})
			s.Bucket("app")
			d := connect(t, s, nil)
			s.Break(c.defect)
			_, err := list(t.Context(), d, "")
			judge(t, err, c.say)
		})
	}
}

// Wherever a store puts the token that it was shown, nobody else gets to see it.
func TestEchoes(t *testing.T) {
	t.Parallel()
	raw := func(text string) func(http.ResponseWriter, string) {
		return func(w http.ResponseWriter, token string) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			fmt.Fprintf(conn, text, token)
			conn.Close()
		}
	}
	page := func(text string) func(http.ResponseWriter, string) {
		return func(w http.ResponseWriter, token string) { fmt.Fprintf(w, text, token) }
	}
	header := func(name string) func(http.ResponseWriter, string) {
		return func(w http.ResponseWriter, token string) { w.Header().Set(name, token) }
	}
	for name, echo := range map[string]func(w http.ResponseWriter, token string){
		"name":        page(`{"kind":"storage#objects","items":[{"name":"%s"}]}`),
		"long name":   page(`{"kind":"storage#objects","items":[{"name":"` + strings.Repeat("a", 245) + `%s"}]}`),
		"field":       page(`{"%s":1,"items":7}`),
		"size":        page(`{"kind":"storage#objects","items":[{"name":"a","etag":"e","generation":"1","size":"%s"}]}`),
		"no JSON":     page("%s"),
		"status line": raw("%s\r\n\r\n"),
		"header line": raw("HTTP/1.1 200 OK\r\n%s\r\n\r\n"),
		"length":      raw("HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n"),
		"trailer":     raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Goog-Hash: \r\n\r\n0\r\n%s\r\n\r\n"),
		"reason": func(w http.ResponseWriter, token string) {
			w.WriteHeader(400)
			fmt.Fprintf(w, `{"error":{"errors":[{"reason":%q}]}}`, token)
		},
		"location": func(w http.ResponseWriter, token string) {
			w.Header().Set("Location", "http://%zz/"+token)
			w.WriteHeader(302)
		},
		"generation":       header("X-Goog-Generation"),
		"etag":             header("ETag"),
		"range":            header("Content-Range"),
		"encoding":         header("Content-Encoding"),
		"stored encoding":  header("X-Goog-Stored-Content-Encoding"),
		"announced length": header("Content-Length"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testenv.StartGCS(t, testenv.GCSConfig{Account: account})
			s.Bucket("app").Put("a", "content")
			d := connect(t, s, s.Key())
			o := listed(t, d)["a"]
			s.Break(&testenv.Defect{Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				echo(w, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
			}})
			_, one := list(t.Context(), d, "")
			_, two := read(t.Context(), d, o, 0)
			_, three := read(t.Context(), d, o, 3)
			for _, err := range []error{one, two, three} {
				if err == nil { // a header is nothing wrong in a listing
					continue
				}
				if judge(t, err, ""); strings.Contains(err.Error(), "ya29.") {
					t.Errorf("%v: shows a token", err)
				}
			}
			if one == nil && two == nil && three == nil {
				t.Error("no error at all")
			}
		})
	}
}

func TestHostileContent(t *testing.T) {
	t.Parallel()
	const content = "0123456789"
	body := func(body string, header ...string) *testenv.Defect {
		h := http.Header{}
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &testenv.Defect{Do: testenv.Answer, Status: 200, Header: h, Body: body}
	}
	for name, c := range map[string]struct {
		defect  *testenv.Defect
		offset  int64
		changed bool
		say     string // "" for no error
	}{
		"another generation":            {testenv.With("X-Goog-Generation", "7"), 0, true, `and is "7"`},
		"another generation of a part":  {testenv.With("X-Goog-Generation", "7"), 5, true, `and is "7"`},
		"no generation":                 {testenv.With("X-Goog-Generation", ""), 0, false, ""},
		"no generation, another ETag":   {body(content, "ETag", `"other"`), 0, true, `and is "other"`},
		"nothing but the content":       {body(content), 0, false, ""},
		"another ETag":                  {testenv.With("ETag", "other"), 0, false, ""},
		"the whole, not a part":         {testenv.Without("Range"), 5, false, "another part of it"},
		"another part":                  {testenv.With("Content-Range", "bytes 4-9/10"), 5, false, "another part of it than bytes 5-9/10"},
		"a part of a longer one":        {testenv.With("Content-Range", "bytes 5-9/11"), 5, false, "another part of it than bytes 5-9/10"},
		"a part, not the whole":         {&testenv.Defect{Do: testenv.Answer, Status: 206, Body: content}, 0, false, "the answer is a part of it"},
		"no content":                    {&testenv.Defect{Do: testenv.Answer, Status: 204}, 0, false, "the answer is a part of it"},
		"announced longer":              {body(content + "0"), 0, true, "the answer has 11 bytes"},
		"announced shorter":             {body(content[1:]), 0, true, "the answer has 9 bytes"},
		"longer":                        {&testenv.Defect{Do: testenv.Serve, Handler: chunked(content + "0")}, 0, true, "it is longer"},
		"much longer":                   {&testenv.Defect{Do: testenv.Serve, Handler: chunked(strings.Repeat(content, 1<<16))}, 0, true, "it is longer"},
		"one byte is another":           {&testenv.Defect{Do: testenv.Flip, After: 5}, 0, true, "bad CRC on read"},
		"another sum":                   {testenv.With("X-Goog-Hash", "md5=AAAA,crc32c=AAAAAA=="), 0, true, "bad CRC on read"},
		"a sum that is none":            {testenv.With("X-Goog-Hash", "crc32c=canary"), 0, false, ""},
		"no sum":                        {testenv.With("X-Goog-Hash", ""), 0, false, ""},
		"the sum of a part is not that": {testenv.With("X-Goog-Hash", "crc32c=AAAAAA=="), 5, false, ""},
		"stored compressed":             {testenv.With("X-Goog-Stored-Content-Encoding", "gzip"), 0, false, `stored with the content encoding "gzip"`},
		"compressed on the way":         {testenv.With("Content-Encoding", "gzip"), 0, false, `was sent with "gzip"`},
		"redirect":                      {&testenv.Defect{Do: testenv.Answer, Status: 302, Header: http.Header{"Location": {"http://127.0.0.1:1"}}}, 0, false, "302"},
		"no such range":                 {&testenv.Defect{Do: testenv.Answer, Status: 416}, 5, false, "416"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testenv.StartGCS(t, testenv.GCSConfig{})
			s.Bucket("app").Put("a", content)
			d := connect(t, s, nil)
			o := listed(t, d)["a"]
			s.Break(c.defect)
			text, err := read(t.Context(), d, o, c.offset)
			if c.say == "" {
				if text != content[c.offset:] || err != nil {
					t.Errorf("%q, %v", text, err)
				}
				return
			}
			if judge(t, err, c.say); errors.Is(err, bucket.ErrChanged) != c.changed {
				t.Errorf("%v: that it changed is %t", err, !c.changed)
			}
			if len(text) >= len(content[c.offset:]) {
				t.Errorf("%d bytes were given out", len(text))
			}
		})
	}
}

// chunked answers without saying how much will come.
func chunked(body string) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		http.NewResponseController(w).Flush()
		fmt.Fprint(w, body)
	}
}

// An object of which the listing says that it was compressed is not what the
// store decompresses on the way.
func TestTranscoded(t *testing.T) {
	t.Parallel()
	s := testenv.StartGCS(t, testenv.GCSConfig{})
	s.Bucket("app").PutGzip("a", strings.Repeat("content ", 100))
	d := connect(t, s, nil)
	o := listed(t, d)["a"]
	s.Break(testenv.Without("Accept-Encoding"))
	_, err := read(t.Context(), d, o, 0)
	judge(t, err, `was sent with "identity"`)
}

func TestEndlessListing(t *testing.T) {
	t.Parallel()
	s := testenv.StartGCS(t, testenv.GCSConfig{Defect: &testenv.Defect{Do: testenv.Endless}})
	n := 0
	for _, err := range connect(t, s, nil).List(t.Context(), "") {
		if n++; err != nil || n == 9 {
			break
		}
	}
	if pages := s.Count(testenv.ListObjects); n != 9 || pages < 5 || pages > 6 { // of two, one of them ahead
		t.Errorf("%d objects in %d pages", n, s.Count(testenv.ListObjects))
	}
}
