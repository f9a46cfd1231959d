package azure

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// Bytes of answers. What an object holds is bounded by who reads it.
const (
	maxPage   = 64 << 20 // 5000 blobs with the longest names and metadata
	maxAnswer = 1 << 20  // of an authority
	maxNo     = 64 << 10 // of a refusal: the rest is left out
)

// pageKey is the key of the context value, a *string, that a page of a listing goes to.
type pageKey struct{}

// A guard bounds answers that the SDK reads as a whole, and has objects sent as
// they are stored. Pages of listings it keeps from the SDK, whose model of them
// takes ten times the time and much memory.
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
		return hold(resp)
	}
	return resp, nil
}

// hold takes the body of a page out of an answer.
func hold(resp *http.Response) (*http.Response, error) {
	defer resp.Body.Close()
	var b strings.Builder
	if _, err := io.Copy(&b, &bounded{resp.Body, maxPage, maxPage}); err != nil {
		return nil, err
	}
	if page, ok := resp.Request.Context().Value(pageKey{}).(*string); ok {
		*page = b.String()
	}
	resp.Body, resp.ContentLength = http.NoBody, 0
	return resp, nil
}

// A bounded body ends with an error after left bytes.
type bounded struct {
	io.ReadCloser
	left, limit int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, fmt.Errorf("the answer is larger than %d bytes", b.limit)
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, fmt.Errorf("the answer is larger than %d bytes", b.limit)
	}
	return n, err
}

// A header is sent with every request.
type header struct{ name, value string }

// Do implements [policy.Policy].
func (h header) Do(req *policy.Request) (*http.Response, error) {
	req.Raw().Header.Del(h.name)
	req.Raw().Header[h.name] = []string{h.value}
	return req.Next()
}
