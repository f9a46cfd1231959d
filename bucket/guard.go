package bucket

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
)

const (
	maxPageToken = 8 << 10 // bytes
	maxTries     = 3       // for a page whose response breaks off
)

var (
	errBroken    = errors.New("the answer breaks off")
	errNoListing = errors.New("the answer is no listing: check spec.endpoint")
)

// A Call is one operation of an SDK: reading an object, or listing a bucket. Some SDKs
// keep only the text of a transport error, and some retry, so the Call records the
// error that ended it.
type Call struct {
	Doing  string  // for example "list objects"
	Object *Object // nil: a listing
	Offset int64   // in the object

	access *Access
	tokens cycleDetector // detects repeated page tokens
	sent   bool
	err    error
}

// callKey is the context key of a *[Call].
type callKey struct{}

// Listing returns a call that lists a bucket, and a context for its requests.
func (a *Access) Listing(ctx context.Context) (context.Context, *Call) {
	c := &Call{Doing: "list objects", access: a}
	return context.WithValue(ctx, callKey{}, c), c
}

// Reading returns a call that reads o from offset on, and a context for its request.
func (a *Access) Reading(ctx context.Context, o Object, offset int64) (context.Context, *Call) {
	c := &Call{Doing: "get object", Object: &o, Offset: offset, access: a}
	return context.WithValue(ctx, callKey{}, c), c
}

// Failed returns the error of the call, given the error of an SDK. Its text contains
// no secrets. It returns nil if both the SDK and the requests succeeded.
func (c *Call) Failed(ctx context.Context, err error) error {
	if err == nil || c.err != nil {
		return c.err
	}
	return c.access.Explain(ctx, c.Doing, err)
}

// A Guard is the round tripper between an SDK and a store. It checks responses before
// the SDK reads them, because the SDK does not check all of them and allocates
// kilobytes for each item of a page. It retries a page whose response breaks off, and
// sends only one request for an object.
type Guard struct {
	Access *Access
	// Send converts a request of the SDK to the form that the store expects, and sends it.
	Send func(req *http.Request, c *Call) (*http.Response, error)
	// Page checks a page of at most PageBytes, and returns the text for the SDK.
	Page      func(resp *http.Response, text []byte) ([]byte, error)
	PageBytes int64
	Token     string // the query parameter that holds the page token
	// Object returns an error if a response is not the requested object. If Object
	// is nil, [Access.CheckPart] checks it.
	Object    func(resp *http.Response, c *Call) error
	Hints     map[string]string // what the user can do about a refusal, see [Access.ReadRefusal]
	Anonymous string            // the hint if a request without credentials is refused; "": requests have credentials
}

// RoundTrip implements [http.RoundTripper].
func (g *Guard) RoundTrip(req *http.Request) (*http.Response, error) {
	c, ok := req.Context().Value(callKey{}).(*Call)
	switch {
	case !ok:
		return nil, errors.New("the SDK sends a request that was not asked for")
	case c.Object != nil && c.sent:
		return nil, cmp.Or(c.err, errBroken)
	}
	c.sent = true
	err := c.checkToken(req.URL.Query().Get(g.Token))
	for try := 1; err == nil; try++ {
		var resp *http.Response
		if resp, err = g.send(req, c); err != nil {
			break
		}
		if err = g.check(resp, c); err == nil {
			return resp, nil
		}
		resp.Body.Close()
		if errors.Is(err, errBroken) && try < maxTries && req.Context().Err() == nil {
			err = nil
		}
	}
	c.err = g.Access.Explain(req.Context(), c.Doing, err)
	return nil, c.err
}

// checkToken returns an error if the page of token, "" for the first page, must not be
// requested. Repeated tokens reveal an endless listing even if its pages have no objects.
func (c *Call) checkToken(token string) error {
	switch {
	case len(token) > maxPageToken:
		return fmt.Errorf("the store's page token has more than %d bytes", maxPageToken)
	case token != "" && c.tokens.repeats(token):
		return errors.New("the store repeats a page token: its listing would never end")
	}
	return nil
}

// send sends a request, and returns the response if its status is a success.
func (g *Guard) send(req *http.Request, c *Call) (*http.Response, error) {
	out := req.Clone(req.Context())
	out.Header.Set("User-Agent", "headgate")
	out.Header.Set("Accept-Encoding", "identity") // read objects as they are stored
	resp, err := g.Send(out, c)
	if err == nil && resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent {
		err = g.Access.ReadRefusal(resp, g.Hints)
	}
	if e, ok := errors.AsType[*StatusError](err); ok && g.Anonymous != "" && e.Is(fs.ErrPermission) {
		e.Hint = g.Anonymous
	}
	return resp, err
}

// check checks a response. It replaces the body of a page by the checked text.
func (g *Guard) check(resp *http.Response, c *Call) error {
	if c.Object != nil && g.Object != nil {
		return g.Object(resp, c)
	}
	if c.Object != nil {
		return g.Access.CheckPart(resp, *c.Object, c.Offset)
	}
	text, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, g.PageBytes))
	switch {
	case err == nil:
		text, err = g.Page(resp, text)
	case !is[*http.MaxBytesError](err):
		err = fmt.Errorf("%w: %w", errBroken, err)
	}
	resp.Body.Close()
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return err
}

// A cycleDetector detects that a sequence of keys or page tokens repeats itself (Brent's
// algorithm). It stores a single key, which it replaces each time that the length of
// the sequence has doubled.
type cycleDetector struct {
	key         string
	since, next int // keys since key was stored; key is replaced when since exceeds next
}

// repeats reports whether key is equal to the stored one.
func (c *cycleDetector) repeats(key string) bool {
	if c.next > 0 && key == c.key {
		return true
	}
	if c.since++; c.since > c.next {
		c.key, c.since, c.next = key, 0, max(1, 2*c.next)
	}
	return false
}

// An XMLPage describes a valid page of a listing in XML.
type XMLPage struct {
	Root, Item string   // names of elements
	Items      int      // maximum number of items
	Each       []string // elements that must occur once per item
	Needs      string   // an element that must occur
}

// Check implements the Page field of a [Guard] for an SDK that accepts any XML as a
// listing. It counts opening tags, including tags in comments and text, so it may count
// too many and refuse a valid page. No store writes such comments or text.
func (f XMLPage) Check(resp *http.Response, text []byte) ([]byte, error) {
	kind := resp.Header.Get("Content-Type")
	count, root := map[string]int{}, ""
	_, tags, _ := bytes.Cut(text, []byte("<"))
	for tag := range bytes.SplitSeq(tags, []byte("<")) {
		end := bytes.IndexAny(tag, " \t\r\n/>")
		if end <= 0 || tag[0] == '?' || tag[0] == '!' {
			continue
		}
		name := tag[bytes.LastIndexByte(tag[:end], ':')+1 : end]
		if root == "" {
			root = string(name)
		}
		if string(name) == f.Item || string(name) == f.Needs || slices.Contains(f.Each, string(name)) {
			count[string(name)]++
		}
	}
	items := count[f.Item]
	switch {
	case root != f.Root || count[f.Needs] == 0, strings.Contains(kind, "html") && !strings.Contains(kind, "xml"), strings.Contains(kind, "json"):
		return nil, errNoListing
	case items > f.Items:
		return nil, fmt.Errorf("the answer lists more than the %d objects that were asked for", f.Items)
	}
	for _, name := range f.Each {
		if count[name] != items {
			return nil, fmt.Errorf("the answer lists an object without %s, or with several", name)
		}
	}
	return text, nil
}
