package gcs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/bucket"
)

const maxPage = 8 << 20 // bytes of a page: 1000 names of 1024 bytes, each of them escaped, and more

var (
	errBroken    = errors.New("the answer breaks off")
	errNoListing = errors.New("the answer is not a listing: check spec.endpoint")
)

// hints say what to do about an answer.
var hints = map[string]string{
	"401": "check that the service account and its key were not deleted",
	"403": "grant the identity the role roles/storage.objectViewer on the bucket",
	"429": "fetch less often: raise spec.interval",
}

const anonymousHint = "the request was anonymous: set spec.secretRef to a Secret with serviceaccount, or run where there is an identity of Google Cloud"

// A call is what the driver asks the SDK for: an object, or a listing.
type call struct {
	object *bucket.Object // nil: a listing
	offset int64
	sent   bool
	err    error // that ended the body of the object
}

// callKey is the key of the context value that is a *[call].
type callKey struct{}

// A guard sends the requests of the SDK and checks answers before the SDK reads
// them. It sends one request for an object: the SDK would ask again, without a
// bound, after bodies that break off.
type guard struct {
	next   http.RoundTripper
	access *bucket.Access
}

// RoundTrip implements [http.RoundTripper]. Of the SDK's header it sends the
// range. It asks for pages with their kind, and for objects as they are stored.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	c, ok := req.Context().Value(callKey{}).(*call)
	if !ok {
		return nil, errBroken
	}
	if c.sent {
		return nil, cmp.Or(c.err, errBroken)
	}
	out := req.Clone(req.Context())
	out.Header = http.Header{"User-Agent": {"headgate"}}
	if c.object == nil {
		values := out.URL.Query()
		if err := bucket.NextPage(req.Context(), values.Get("pageToken")); err != nil {
			return nil, err
		}
		out.Header.Set("User-Agent", "headgate (gzip)") // Google compresses listings for such names only
		values.Set("fields", "kind,"+values.Get("fields"))
		out.URL.RawQuery = values.Encode()
	} else {
		c.sent = true
		out.Header.Set("Accept-Encoding", "gzip")
		if part := req.Header.Get("Range"); part != "" {
			out.Header.Set("Range", part)
		}
	}
	resp, err := g.next.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	switch {
	case resp.StatusCode/100 != 2:
		e := g.access.Refused(resp, hints)
		if _, bearer := g.next.(*bucket.Bearer); !bearer && e.Is(fs.ErrPermission) {
			e.Hint = anonymousHint
		}
		return nil, e
	case c.object == nil:
		err = g.checkPage(resp)
	default:
		err = g.checkObject(resp, *c.object, c.offset)
		left := c.object.Size - c.offset
		resp.Body, resp.ContentLength = &content{resp.Body, c, left}, left // the SDK logs what is longer
	}
	if err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// checkPage checks the page that resp has, before the SDK spends kilobytes on each item.
func (g *guard) checkPage(resp *http.Response) error {
	text, err := bucket.ReadPage(resp, maxPage)
	if err != nil {
		return err
	}
	var page struct {
		Kind  string            `json:"kind"`
		Next  string            `json:"nextPageToken"`
		Items []json.RawMessage `json:"items"` // of which there may be too many
	}
	if err := json.Unmarshal(text, &page); err != nil || page.Kind != "storage#objects" { // anything else would be an empty bucket
		return errNoListing
	}
	if len(page.Items) > pageSize {
		return fmt.Errorf("the answer lists more than the %d objects that were asked for", pageSize)
	}
	for _, text := range page.Items {
		var i item
		if err := json.Unmarshal(text, &i); err != nil {
			return errNoListing
		}
		if lacks := i.lacks(); lacks != "" {
			return fmt.Errorf("%.40q has no %s", g.access.Said(i.Name), lacks)
		}
	}
	bucket.SetPage(resp, text)
	return nil
}

// An item is an object as it is listed. Its numbers are texts.
type item struct {
	Name       string `json:"name"`
	ETag       string `json:"etag"`
	Size       string `json:"size"`
	Generation string `json:"generation"`
}

// lacks returns what of i is missing or cannot be, "" when nothing is.
func (i item) lacks() string {
	_, noSize := strconv.ParseUint(i.Size, 10, 63)
	generation, noGeneration := strconv.ParseUint(i.Generation, 10, 63)
	switch {
	case i.Name == "":
		return "name"
	case bucket.ETag(i.ETag) == "":
		return "etag"
	case noGeneration != nil || generation == 0:
		return "generation"
	case noSize != nil:
		return "size"
	}
	return ""
}

// checkObject reports why an answer is not o from offset on. The ETag changes
// with the metadata as well, so it counts only where there is no generation.
func (g *guard) checkObject(resp *http.Response, o bucket.Object, offset int64) error {
	same := *resp
	same.Header = resp.Header.Clone()
	generation := resp.Header.Get("X-Goog-Generation")
	stored, sent := resp.Header.Get("X-Goog-Stored-Content-Encoding"), cmp.Or(resp.Header.Get("Content-Encoding"), "identity")
	switch {
	case generation != "" && generation != o.Version:
		return fmt.Errorf("%w: its generation was %s, and is %q", bucket.ErrChanged, o.Version, g.access.Said(generation))
	case stored != "" && !strings.EqualFold(stored, sent):
		return fmt.Errorf("it is stored with the content encoding %q and was sent with %q", g.access.Said(stored), g.access.Said(sent))
	case generation != "" || resp.Header.Get("ETag") == "":
		same.Header.Set("ETag", o.ETag)
	}
	return g.access.CheckPart(&same, o, offset)
}

// A content is the body of an object, which may not be longer than it was listed.
type content struct {
	io.ReadCloser
	call *call
	left int64 // bytes that are still to come
}

// Read implements [io.Reader].
func (c *content) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if c.left -= int64(n); c.left < 0 {
		n, err = 0, fmt.Errorf("%w: it is longer", bucket.ErrChanged)
	}
	if err != nil && err != io.EOF {
		c.call.err = err
	}
	return n, err
}
