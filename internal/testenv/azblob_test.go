package testenv_test

import (
	"encoding/xml"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// askAzure sends a request of Azure's protocol, and returns the answer with its body.
func askAzure(t *testing.T, s *testenv.Azblob, path string, header ...string) (status int, text string, h http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Ms-Version", "2021-12-02")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body), resp.Header
}

// What is not signed, or long ago, is refused as the service does it.
func TestAzblobSignature(t *testing.T) {
	s := testenv.StartAzblob(t, testenv.AzblobConfig{Key: "a2V5"})
	s.Container("c").Put("a", "a")
	status, text, h := askAzure(t, s, "/c?restype=container&comp=list&timeout=20", "X-Ms-Date", "Fri, 26 Jun 2015 23:39:12 GMT", "Authorization", "SharedKey acme:AAAA")
	if status != 403 || h.Get("X-Ms-Error-Code") != "AuthenticationFailed" || !strings.Contains(text, "Request date header too old") {
		t.Errorf("%d %s", status, text)
	}
	var e struct{ Code, Message string }
	if err := xml.Unmarshal([]byte(text), &e); err != nil || e.Code != "AuthenticationFailed" || !strings.Contains(e.Message, "\nRequestId:") {
		t.Errorf("%+v, %v", e, err)
	}
	if status, _, h := askAzure(t, s, "/c/a"); status != 401 || h.Get("X-Ms-Error-Code") != "NoAuthenticationInformation" {
		t.Errorf("without a signature: %d", status)
	}
}

func TestAzblobList(t *testing.T) {
	s := testenv.StartAzblob(t, testenv.AzblobConfig{PageSize: 2, Hierarchical: true})
	c := s.Container("c")
	c.Replace(map[string]string{"a": "1", "b/c": "22", "b\ufffe +": "333"})
	var names []string
	marker := ""
	for {
		status, text, _ := askAzure(t, s, "/c?restype=container&comp=list&include=metadata&marker="+url.QueryEscape(marker))
		var page struct {
			Blobs struct {
				Blob []struct {
					Name struct {
						Encoded bool   `xml:",attr"`
						Text    string `xml:",chardata"`
					}
					Properties struct{ Etag, ResourceType string }
					Metadata   struct {
						Folder string `xml:"hdi_isfolder"`
					}
				}
			}
			NextMarker string
		}
		if err := xml.Unmarshal([]byte(text), &page); err != nil || status != 200 {
			t.Fatal(status, err, text)
		}
		for _, b := range page.Blobs.Blob {
			names = append(names, b.Name.Text+" "+b.Properties.ResourceType+" "+b.Metadata.Folder)
			if strings.Contains(b.Properties.Etag, `"`) || b.Properties.Etag == "" || b.Name.Encoded != strings.Contains(b.Name.Text, "%") {
				t.Errorf("%+v", b)
			}
		}
		if marker = page.NextMarker; marker == "" {
			break
		}
	}
	if want := []string{"a file ", "b directory true", "b/c file ", "b%EF%BF%BE%20%2B file "}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	if s.Count(testenv.ListObjects) != 2 || s.ContentBytes() != 0 {
		t.Errorf("%d pages, %d bytes", s.Count(testenv.ListObjects), s.ContentBytes())
	}
}

func TestAzblobGet(t *testing.T) {
	s := testenv.StartAzblob(t, testenv.AzblobConfig{SAS: "sp=r&sig=x"})
	c := s.Container("c")
	etag := c.Put("a b", "0123456789")
	for _, q := range []struct {
		path   string
		header []string
		status int
		text   string
	}{
		{"/c/a%20b?sp=r&sig=x", nil, 200, "0123456789"},
		{"/c/a%20b?sp=r&sig=x", []string{"If-Match", `"` + etag + `"`, "X-Ms-Range", "bytes=2-4"}, 206, "234"},
		{"/c/a%20b?sp=r&sig=x", []string{"Range", "bytes=8-"}, 206, "89"},
		{"/c/a%20b?sp=r&sig=x", []string{"If-Match", etag}, 412, ""},
		{"/c/a%20b?sp=r&sig=x", []string{"X-Ms-Range", "bytes=10-"}, 416, ""},
		{"/c/absent?sp=r&sig=x", nil, 404, ""},
		{"/d/absent?sp=r&sig=x", nil, 404, ""},
		{"/c/a%20b?sp=r&sig=y", nil, 403, ""},
		{"/c?restype=container&comp=list&sp=r&sig=x", nil, 403, ""},
	} {
		status, text, h := askAzure(t, s, q.path, q.header...)
		if status != q.status || q.text != "" && text != q.text || status < 300 && h.Get("ETag") != `"`+etag+`"` {
			t.Errorf("%s %q: %d %s", q.path, q.header, status, text)
		}
	}
	if again := c.Put("a b", "0123456789"); again == etag {
		t.Error("what is put again has the ETag of what was there")
	}
	before := c.Put("x", "x")
	c.Replace(map[string]string{"x": "x"})
	if _, _, h := askAzure(t, s, "/c/x?sp=r&sig=x"); h.Get("ETag") != `"`+before+`"` || len(c.Contents()) != 1 {
		t.Error("what stays as it is has another ETag")
	}
	c.Remove("x")
	if len(c.Contents()) > 0 {
		t.Error("still there")
	}
}
