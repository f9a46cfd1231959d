package s3_test

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
)

// answer is a defect by which every request of a phase gets the same success.
func answer(phase testenv.Phase, body string) testenv.Defect {
	return testenv.Defect{Phase: phase, Do: testenv.Answer, Status: http.StatusOK, Body: body}
}

func listing(inside string) testenv.Defect {
	return answer(testenv.ListObjects, "<ListBucketResult>"+inside+"</ListBucketResult>")
}

func TestHostileListing(t *testing.T) {
	const object = "<Contents><Key>a</Key><ETag>&quot;e&quot;</ETag><Size>1</Size></Contents>"
	for name, c := range map[string]struct {
		defect testenv.Defect
		say    string
	}{
		"same token":            {testenv.Defect{Phase: testenv.ListObjects, Do: testenv.Loop}, "list objects: the store repeats a page token"},
		"more, but not where":   {listing("<IsTruncated>true</IsTruncated>"), "it lacks ListObjectsV2"},
		"says not whether more": {listing(object), "the answer is no listing"},
		"neither true nor not":  {listing("<IsTruncated>maybe</IsTruncated>"), "not what a store of S3 writes"},
		"page of a portal":      {answer(testenv.ListObjects, "<!DOCTYPE html><html><body>log in</body></html>"), "list objects: the answer is no listing"},
		"page in XHTML":         {answer(testenv.ListObjects, "<html><body>log in</body></html>"), "the answer is no listing: check spec.endpoint"},
		"error with status 200": {answer(testenv.ListObjects, "<Error><Code>InternalError</Code></Error>"), "the answer is no listing"},
		"JSON":                  {answer(testenv.ListObjects, `{"canary":1}`), "the answer is no listing"},
		"nothing":               {answer(testenv.ListObjects, ""), "the answer is no listing"},
		"half":                  {answer(testenv.ListObjects, "<ListBucketResult><IsTruncated>false</IsTruncated>"), "not what a store of S3 writes"},
		"tags crossed":          {listing("<IsTruncated>false</IsTruncated><a><b></a></b>"), "not what a store of S3 writes"},
		"too deep":              {listing(strings.Repeat("<a>", 20)), "the answer is no listing"},
		"entity":                {listing("<IsTruncated>false</IsTruncated><Contents><Key>&canary;</Key><Size>1</Size></Contents>"), "not what a store of S3 writes"},
		"declared entity":       {answer(testenv.ListObjects, `<!DOCTYPE a [<!ENTITY e "canary">]><ListBucketResult/>`), "the answer is no listing"},
		"two keys":              {listing("<Contents><Key>a</Key><Key>b</Key><Size>1</Size></Contents>"), "the answer"},
		"element in a key":      {listing("<Contents><Key>a<b/>c</Key><Size>1</Size></Contents>"), "the answer"},
		"no key":                {listing("<Contents><ETag>e</ETag><Size>1</Size></Contents>"), "lists an object without Key"},
		"no size":               {listing("<Contents><Key>a</Key><ETag>e</ETag></Contents>"), "lists an object without Size"},
		"negative size":         {listing("<IsTruncated>false</IsTruncated><Contents><Key>a</Key><Size>-1</Size></Contents>"), "lists an object without Key or Size"},
		"huge size":             {listing("<IsTruncated>false</IsTruncated><Contents><Key>a</Key><Size>9223372036854775808</Size></Contents>"), "not what a store of S3 writes"},
		"key badly encoded":     {listing("<EncodingType>url</EncodingType><IsTruncated>false</IsTruncated><Contents><Key>%zz</Key><Size>1</Size></Contents>"), "not what a store of S3 writes"},
		"more than was asked":   {listing("<IsTruncated>false</IsTruncated>" + strings.Repeat(object, 1001)), "lists more than the 1000 objects"},
		"empty objects":         {listing("<IsTruncated>false</IsTruncated>" + strings.Repeat("<Contents/>", 700_000)), "more than the 1000 objects"},
		"long token":            {listing("<IsTruncated>true</IsTruncated><NextContinuationToken>" + strings.Repeat("t", 9000) + "</NextContinuationToken>"), "page token has more than 8192 bytes"},
		"says it is JSON":       {testenv.Defect{Phase: testenv.ListObjects, Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"}, "the answer is no listing"},
		"not the prefix":        {listing("<IsTruncated>false</IsTruncated><Contents><Key>other</Key><Size>1</Size></Contents>"), "does not begin with spec.prefix"},
		"huge":                  {testenv.Defect{Phase: testenv.ListObjects, Do: testenv.Swell, After: 1 << 30}, "list objects: the answer is larger than 8388608 bytes"},
		"cut":                   {testenv.Defect{Phase: testenv.ListObjects, Do: testenv.Cut, After: 100}, "the answer breaks off: unexpected EOF"},
		"ends":                  {testenv.Defect{Phase: testenv.ListObjects, Do: testenv.End, After: 100}, "list objects: the answer is no listing"},
		"no HTTP":               {testenv.Defect{Phase: testenv.ListObjects, Do: testenv.Cut, After: -1}, "list objects at 127.0.0.1:|EOF"},
		"status 204":            {testenv.Defect{Phase: testenv.ListObjects, Status: http.StatusNoContent}, "list objects: 204 No Content"},
	} {
		t.Run(name, func(t *testing.T) {
			s := filled(t, signed(), "a", "1", "a/b", "2")
			s.Break(&c.defect)
			var all []bucket.Object
			var err error
			used := measure.Allocated(func() { all, err = list(t.Context(), connect(t, keyed(s)), "a") })
			wantError(t, s, err, c.say)
			if len(all) > 0 && name != "same token" {
				t.Errorf("listed %v", all)
			}
			if used > 128<<20 {
				t.Errorf("%d bytes were allocated", used)
			}
		})
	}
}

func TestHostileObject(t *testing.T) {
	const content = "the content of an object"
	get := func(h func(w http.ResponseWriter, r *http.Request, next http.Handler)) testenv.Defect {
		return testenv.Defect{Do: testenv.Serve, Handler: h}
	}
	stranger := testenv.StartS3(t, testenv.S3Config{})
	for name, c := range map[string]struct {
		defect testenv.Defect
		offset int64
		is     error
		say    string // "" for a success
	}{
		"without If-Match":   {defect: *testenv.Without("If-Match")},
		"without Range":      {defect: *testenv.Without("Range"), offset: 4},
		"changed":            {defect: *testenv.S3Failure(http.StatusPreconditionFailed, "PreconditionFailed", "no"), is: bucket.ErrChanged, say: "get object: 412 Precondition Failed"},
		"another ETag":       {defect: *testenv.With("ETag", `"canary-not"`), is: bucket.ErrChanged, say: "get object: the object changed since it was listed"},
		"no ETag":            {defect: *testenv.With("ETag", ""), is: bucket.ErrChanged, say: `is ""`},
		"weak ETag":          {defect: get(weak)},
		"removed":            {defect: *testenv.S3Failure(http.StatusNotFound, "NoSuchKey", "gone"), is: fs.ErrNotExist, say: "get object: 404 Not Found: NoSuchKey: gone"},
		"archived":           {defect: *testenv.S3Failure(http.StatusForbidden, "InvalidObjectState", "archived"), say: "it is archived: restore it, or exclude it with spec.ignore"},
		"whole, and cut":     {defect: get(cutShort), offset: 4, say: "get object: the answer breaks off: unexpected EOF"},
		"another part":       {defect: *testenv.With("Content-Range", "bytes 3-23/24"), offset: 4, say: "another part of it than"},
		"part of nothing":    {defect: *testenv.With("Content-Range", ""), offset: 4, say: "another part of it than"},
		"a part, unasked":    {defect: get(part), say: "a part of it"},
		"longer":             {defect: get(as(content + "!")), say: "the answer has 25 bytes, by its listing it should have 24"},
		"shorter":            {defect: get(as("")), say: "the answer has 0 bytes, by its listing it should have 24"},
		"redirect":           {defect: testenv.Defect{Status: http.StatusFound, Header: http.Header{"Location": {stranger.Base + "/canary?sig=canary"}}}, say: "302 Found|it redirects to " + stranger.Base},
		"redirect to itself": {defect: testenv.Defect{Status: http.StatusTemporaryRedirect, Header: http.Header{"Location": {"/bucket/a"}}}, say: "307 Temporary Redirect|not followed"},
		"redirect nowhere":   {defect: testenv.Defect{Status: http.StatusMovedPermanently}, say: "301 Moved Permanently|set spec.endpoint and spec.region to where the bucket is"},
		"page of a portal":   {defect: testenv.Defect{Status: http.StatusForbidden, Body: "<html>canary</html>"}, is: fs.ErrPermission, say: "403 Forbidden|not how a store of S3 answers: check spec.endpoint"},
		"huge refusal":       {defect: testenv.Defect{Status: http.StatusForbidden, Body: "<Error><Code>" + strings.Repeat("A", 1<<20)}, say: "403 Forbidden"},
		"long message":       {defect: *testenv.S3Failure(http.StatusForbidden, "Long", strings.Repeat("word ", 500)), say: "403 Forbidden: Long: word word|word…"},
		"terminal":           {defect: *testenv.S3Failure(http.StatusForbidden, "Odd", "\u202eevil"), say: "403 Forbidden: Odd"},
		"leak":               {defect: testenv.Defect{Do: testenv.Leak, Status: http.StatusForbidden}, say: "403 Forbidden: UnknownError"},
	} {
		t.Run(name, func(t *testing.T) {
			s := filled(t, signed(), "a", content)
			d := connect(t, keyed(s))
			all, err := list(t.Context(), d, "")
			if err != nil {
				t.Fatal(err)
			}
			c.defect.Phase = testenv.GetObject
			s.Break(&c.defect)
			text, err := read(t.Context(), d, all[0], c.offset)
			if c.say == "" {
				if text != content[c.offset:] || err != nil {
					t.Errorf("%q, %v", text, err)
				}
				return
			}
			if name == "another ETag" { // its text is the store's, and no secret
				err = fmt.Errorf("%w", errors.Join(err))
				c.say += "|canary-not"
				if !errors.Is(err, c.is) || !strings.Contains(err.Error(), "canary-not") {
					t.Error(err)
				}
				return
			}
			if strings.HasPrefix(name, "redirect") && strings.Contains(err.Error(), "sig=") {
				t.Errorf("%v shows a query", err)
			}
			if name != "redirect" {
				wantError(t, s, err, c.say)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v is not %v", err, c.is)
			}
			if strings.ContainsAny(err.Error(), "\u202e\x1b\n") || len(err.Error()) > 700 {
				t.Errorf("%q", err)
			}
		})
	}
	if stranger.Count() != 0 {
		t.Errorf("a stranger was asked: %+v", stranger.Requests())
	}
}

func weak(w http.ResponseWriter, r *http.Request, next http.Handler) {
	rec := &tagged{ResponseWriter: w}
	next.ServeHTTP(rec, r)
}

// tagged makes ETags weak.
type tagged struct{ http.ResponseWriter }

func (w *tagged) WriteHeader(code int) {
	w.Header().Set("ETag", "W/"+w.Header().Get("ETag"))
	w.ResponseWriter.WriteHeader(code)
}

func part(w http.ResponseWriter, r *http.Request, next http.Handler) {
	r.Header.Set("Range", "bytes=4-")
	next.ServeHTTP(w, r)
}

func cutShort(w http.ResponseWriter, r *http.Request, _ http.Handler) {
	w.Header().Set("ETag", r.Header.Get("If-Match"))
	w.Header().Set("Content-Length", "24")
	fmt.Fprint(w, "th")
	http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// as answers with another content and the same ETag.
func as(content string) func(w http.ResponseWriter, r *http.Request, next http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.Header().Set("ETag", r.Header.Get("If-Match"))
		fmt.Fprint(w, content)
	}
}

// A listing without end ends when nobody wants it any more.
func TestEndlessListing(t *testing.T) {
	s := filled(t, signed())
	s.Break(&testenv.Defect{Phase: testenv.ListObjects, Do: testenv.Endless})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	given, n := errors.New("given up"), 0
	var last error
	for _, err := range connect(t, keyed(s)).List(ctx, "") {
		if n++; n == 100 {
			cancel(given)
		}
		last = err
	}
	if !errors.Is(last, given) {
		t.Error(last)
	}
}

// A page that breaks off is read again; one that says wrong things is not.
func TestListAgain(t *testing.T) {
	s := filled(t, testenv.S3Config{AccessKey: accessKey, SecretKey: secretKey, PageSize: 1}, "a", "1", "b", "2")
	s.Break(&testenv.Defect{Phase: testenv.ListObjects, Do: testenv.Cut, After: 200, Times: 2})
	if all, err := list(t.Context(), connect(t, keyed(s)), ""); err != nil || len(all) != 2 || s.Count() != 4 {
		t.Errorf("%v, %v, %d requests", all, err, s.Count())
	}
}
