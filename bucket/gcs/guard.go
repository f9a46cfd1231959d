package gcs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/bucket"
)

const (
	maxPage = 16 << 20 // bytes of a page of a listing
	maxNext = 8 << 10  // bytes of a page token
)

var (
	errAgain     = errors.New("the SDK asks once more")
	errTorn      = errors.New("the answer breaks off")
	errNoListing = errors.New("the answer is not a listing: check spec.endpoint")
	errOdd       = errors.New("the answer is not a listing as Cloud Storage writes it")
)

// A call is what the driver asks the SDK for: an object, or a page.
type call struct {
	object *bucket.Object // nil: a page
	offset int64
	sent   bool
	err    error // what ended the body of the object
}

// callKey is the key of the context value that is a *[call].
type callKey struct{}

// A guard sends the requests of the SDK and checks answers before the SDK reads
// them. It sends one request a call: the SDK would ask again, without a bound,
// after pages without objects and bodies that break off.
type guard struct {
	next   http.RoundTripper
	access *bucket.Access
}

// RoundTrip implements [http.RoundTripper]. Of the SDK's header it sends the
// range. It asks for pages with their kind, and for objects as they are stored.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	c, ok := req.Context().Value(callKey{}).(*call)
	if !ok {
		return nil, errAgain
	}
	if c.sent {
		return nil, cmp.Or(c.err, errAgain)
	}
	c.sent = true
	out := req.Clone(req.Context())
	out.Header = http.Header{"User-Agent": {"headgate"}}
	if c.object == nil {
		out.Header.Set("User-Agent", "headgate (gzip)") // Google compresses listings for such names only
		values := out.URL.Query()
		values.Set("fields", "kind,"+values.Get("fields"))
		out.URL.RawQuery = values.Encode()
	} else {
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
		err = g.refusal(resp)
	case c.object == nil:
		err = g.checkPage(resp)
	default:
		if err = g.checkObject(resp, *c.object, c.offset); err == nil {
			left := c.object.Size - c.offset
			resp.Body, resp.ContentLength = &content{resp.Body, c, left}, left
		}
	}
	if err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// checkPage reads the page that resp has, and leaves it to be read again. The
// SDK takes about two kilobytes for each item, so there is no item too many.
func (g *guard) checkPage(resp *http.Response) error {
	text, err := io.ReadAll(bucket.Bounded(resp.Body, maxPage))
	if err != nil {
		return err
	}
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(text))
	var page struct {
		Kind  once[string] `json:"kind"`
		Next  once[string] `json:"nextPageToken"`
		Items once[items]  `json:"items"`
	}
	page.Items.value.access = g.access
	err = json.Unmarshal(text, &page)
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		if len(text) > 0 && e.Offset == int64(len(text)) && text[0] == '{' {
			return errTorn
		}
		return errNoListing
	}
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok || len(page.Next.value) > maxNext {
		return errOdd
	}
	if err == nil && page.Kind.value != "storage#objects" { // anything else would be an empty bucket
		return errNoListing
	}
	return err
}

// A once is the value of a field that may be there once.
type once[T any] struct {
	value T
	found bool
}

// UnmarshalJSON implements [json.Unmarshaler].
func (o *once[T]) UnmarshalJSON(text []byte) error {
	if o.found {
		return errOdd
	}
	o.found = true
	return json.Unmarshal(text, &o.value)
}

// items checks the items of a page one by one. It keeps none of them.
type items struct{ access *bucket.Access }

// UnmarshalJSON implements [json.Unmarshaler].
func (l *items) UnmarshalJSON(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return cmp.Or(err, errOdd)
	}
	for n := 1; dec.More(); n++ {
		var i item
		if err := dec.Decode(&i); err != nil {
			return err
		}
		if lacks := i.lacks(); lacks != "" {
			return fmt.Errorf("%q has no %s", l.access.Said(i.Name), lacks)
		}
		if n > pageSize {
			return fmt.Errorf("the answer lists more than the %d objects that were asked for", pageSize)
		}
	}
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
	header, want := resp.Header, http.StatusOK
	if offset > 0 {
		want = http.StatusPartialContent
	}
	generation, etag := header.Get("X-Goog-Generation"), bucket.ETag(header.Get("ETag"))
	stored, sent := header.Get("X-Goog-Stored-Content-Encoding"), cmp.Or(header.Get("Content-Encoding"), "identity")
	part := fmt.Sprintf("bytes %d-%d/%d", offset, o.Size-1, o.Size)
	switch got := header.Get("Content-Range"); {
	case generation != "" && generation != o.Version:
		return g.changed("the generation", generation, o.Version)
	case generation == "" && etag != "" && etag != o.ETag:
		return g.changed("the etag", etag, o.ETag)
	case stored != "" && !strings.EqualFold(stored, sent):
		return fmt.Errorf("it is stored with the content encoding %q and was sent with %q", g.access.Said(stored), g.access.Said(sent))
	case resp.StatusCode != want:
		return fmt.Errorf("the answer is %d, not %d", resp.StatusCode, want)
	case offset > 0 && got != part:
		return fmt.Errorf("asked for %s, got %q", part, g.access.Said(got))
	case resp.ContentLength >= 0 && resp.ContentLength != o.Size-offset:
		return g.changed("the size", strconv.FormatInt(resp.ContentLength+offset, 10), strconv.FormatInt(o.Size, 10))
	}
	return nil
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

func (g *guard) changed(what, now, listed string) error {
	return fmt.Errorf("%w: %s is %q, listed was %q", bucket.ErrChanged, what, g.access.Said(now), g.access.Said(listed))
}
