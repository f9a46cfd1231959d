package azure

import (
	"bytes"
	"io"
	"net/http"
	"regexp"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/headgate-io/headgate/bucket"
)

// Bytes of answers. The core bounds what an object holds.
const (
	maxPage   = 16 << 20 // blobs with the longest names and metadata
	maxAnswer = 1 << 20  // of an authority
	maxNo     = 64 << 10 // of a refusal: the rest is left out
)

var pages = bucket.XMLPage{Root: "EnumerationResults", Item: "Blob", Items: pageSize, Once: []string{"Name"}, Needs: []string{"Blobs"}, Limit: maxPage}

// A guard checks answers before the SDK reads them, and has objects sent as they are stored.
type guard struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("User-Agent", "headgate")
	resp, err := g.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Header.Del("X-Ms-Structured-Body") // a framing that was not asked for, and that the SDK would undo
	switch {
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent:
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxNo), resp.Body}
	case req.URL.Query().Get("comp") == "list":
		if err := checkPage(resp); err != nil {
			resp.Body.Close()
			return nil, err
		}
	}
	return resp, nil
}

// encodedName is the name of a blob that has characters which XML has not.
var encodedName = regexp.MustCompile(`<Name Encoded="true">[^<]*`)

// checkPage checks a page, and spells + in encoded names as the SDK reads it.
func checkPage(resp *http.Response) error {
	if err := pages.Check(resp); err != nil {
		return err
	}
	text, err := io.ReadAll(resp.Body) // of memory
	text = encodedName.ReplaceAllFunc(text, func(name []byte) []byte { return bytes.ReplaceAll(name, []byte("+"), []byte("%2B")) })
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return err
}

// A header is sent with every request.
type header struct{ name, value string }

// Do implements [policy.Policy].
func (h header) Do(req *policy.Request) (*http.Response, error) {
	req.Raw().Header.Del(h.name)
	req.Raw().Header[h.name] = []string{h.value}
	return req.Next()
}
