package azure_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/testenv"
)

// answering runs an account that gives one answer, which may be replaced.
func answering(t testing.TB) (*testenv.Azblob, *atomic.Pointer[testenv.Defect]) {
	var d atomic.Pointer[testenv.Defect]
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a := d.Load()
		for name, values := range a.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(a.Status)
		w.Write([]byte(a.Body))
	}))
	t.Cleanup(s.Close)
	return &testenv.Azblob{URL: s.URL + "/" + account}, &d
}

// FuzzListing checks that no page of a listing makes the driver panic, or yield what has no name, ETag or size.
func FuzzListing(f *testing.F) {
	for _, body := range []string{
		"", "<EnumerationResults/>", `<EnumerationResults><Blobs/><NextMarker>x</NextMarker></EnumerationResults>`,
		`<EnumerationResults><Blobs><Blob><Name Encoded="true">%EF%BF%BE</Name><Properties><Etag>0x1</Etag><Content-Length>1</Content-Length><ResourceType>directory</ResourceType></Properties><Metadata><hdi_isfolder>true</hdi_isfolder></Metadata></Blob></Blobs></EnumerationResults>`,
		`<EnumerationResults><Blobs><Blob><Name>a</Name><Snapshot>x</Snapshot><Properties><Etag>"0x1"</Etag><Content-Length>-1</Content-Length><Content-MD5>AA==</Content-MD5><Last-Modified>Mon, 02 Jan 2006 15:04:05 GMT</Last-Modified></Properties><Tags><TagSet><Tag/></TagSet></Tags></Blob></Blobs></EnumerationResults>`,
	} {
		f.Add(body)
	}
	s, answer := answering(f)
	d := connect(f, access(s, "accountKey", key))
	f.Fuzz(func(t *testing.T, body string) {
		answer.Store(&testenv.Defect{Status: 200, Body: body})
		all, err := keys(t.Context(), d, "")
		for _, o := range all {
			if o.Key == "" || o.ETag == "" || o.Size < 0 {
				t.Errorf("%+v", o)
			}
		}
		if err != nil && len(err.Error()) > 700 {
			t.Errorf("%d bytes of %v", len(err.Error()), err)
		}
	})
}

// FuzzRefusal checks that no refusal shows control characters, or very much.
func FuzzRefusal(f *testing.F) {
	f.Add(uint16(403), "AuthenticationFailed", "<Error><Code>AuthenticationFailed</Code><Message>no\nRequestId:1</Message><AuthenticationErrorDetail>Request date header too old: 'x'</AuthenticationErrorDetail></Error>")
	f.Add(uint16(404), "", `{"error":{"code":"x"}}`)
	f.Add(uint16(301), "x", "<Error><Message>\x1b[0m</Message></Error>")
	f.Add(uint16(304), "", "")
	s, answer := answering(f)
	d := connect(f, access(s, "accountKey", key))
	f.Fuzz(func(t *testing.T, status uint16, code, body string) {
		status = 300 + status%300
		if status == 429 || status == 408 || status >= 500 || strings.ContainsFunc(code, func(r rune) bool { return r < ' ' || r > '~' }) {
			return // is asked again
		}
		answer.Store(&testenv.Defect{Status: int(status), Header: http.Header{"X-Ms-Error-Code": {code}, "Location": {code}}, Body: body})
		for _, o := range []bucket.Object{{}, {Key: "a", ETag: "0x1", Size: 1}} {
			var err error
			if o.Key == "" {
				_, err = keys(t.Context(), d, "")
			} else {
				_, err = text(t.Context(), d, o, 0)
			}
			if err == nil || len(err.Error()) > 900 || strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r == 0x7f }) {
				t.Errorf("%d: %v", status, err)
			}
		}
	})
}
