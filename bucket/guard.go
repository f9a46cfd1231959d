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
	maxTries     = 3       // of a page that breaks off
)

var (
	errBroken    = errors.New("the answer breaks off")
	errNoListing = errors.New("the answer is no listing: check spec.endpoint")
)

// A Call is what a driver asks an SDK for: an object, or a listing. SDKs make texts of
// the errors of their transport, and some ask again, so the call knows what ended it.
type Call struct {
	Doing  string  // for example "list objects"
	Object *Object // nil: a listing
	Offset int64   // in the object

	access *Access
	tokens cycle // of pages
	sent   bool
	err    error
}

// callKey is the key of the context value that is a *[Call].
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

// Failed returns the error of the call, given that of an SDK, fit to be shown.
func (c *Call) Failed(ctx context.Context, err error) error {
	if err == nil || c.err != nil {
		return c.err
	}
	return c.access.Explain(ctx, c.Doing, err)
}

// A Guard is the round tripper between an SDK and a store. It checks answers
// before the SDK reads them, which takes some on trust and spends kilobytes on each
// item of a page; reads a page again that breaks off; and sends one request for an object.
type Guard struct {
	Access *Access
	// Send sends a request of the SDK as the store is to have it.
	Send func(req *http.Request, c *Call) (*http.Response, error)
	// Page checks a page of at most PageBytes, and returns what the SDK is to read.
	Page      func(resp *http.Response, text []byte) ([]byte, error)
	PageBytes int64
	Token     string // the parameter of a request that names the page
	// Object reports why an answer is not what was asked for; nil: see [Access.CheckPart].
	Object    func(resp *http.Response, c *Call) error
	Hints     map[string]string // what to do about a refusal, see [Access.Refused]
	Anonymous string            // what to do when a request without credentials is refused; "": they have some
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
	err := c.next(req.URL.Query().Get(g.Token))
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

// next reports why the page that token names, "" for the first, is not to be asked for.
// A store that turns in circles is found out by its tokens, pages without objects included.
func (c *Call) next(token string) error {
	switch {
	case len(token) > maxPageToken:
		return fmt.Errorf("the store's page token has more than %d bytes", maxPageToken)
	case token != "" && c.tokens.repeats(token):
		return errors.New("the store repeats a page token: its listing would never end")
	}
	return nil
}

// send sends a request, and returns the answer when that is a success.
func (g *Guard) send(req *http.Request, c *Call) (*http.Response, error) {
	out := req.Clone(req.Context())
	out.Header.Set("User-Agent", "headgate")
	out.Header.Set("Accept-Encoding", "identity") // objects come as they are stored
	resp, err := g.Send(out, c)
	if err == nil && resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent {
		err = g.Access.Refused(resp, g.Hints)
	}
	if e, ok := errors.AsType[*StatusError](err); ok && g.Anonymous != "" && e.Is(fs.ErrPermission) {
		e.Hint = g.Anonymous
	}
	return resp, err
}

// check checks an answer, and leaves a page to be read again.
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

// A cycle notices a sequence of keys, or of page tokens, that repeats itself
// without keeping it (Brent's algorithm): it remembers one key, a later one each time that the
// sequence has doubled.
type cycle struct {
	key         string
	since, next int // keys since that one, and until the next is remembered
}

// repeats reports whether key is the remembered one.
func (c *cycle) repeats(key string) bool {
	if c.next > 0 && key == c.key {
		return true
	}
	if c.since++; c.since > c.next {
		c.key, c.since, c.next = key, 0, max(1, 2*c.next)
	}
	return false
}

// An XMLPage says what a page of a listing looks like where a store writes XML.
type XMLPage struct {
	Root, Item string   // names of elements
	Items      int      // at most
	Each       []string // elements that are there as often as items
	Needs      string   // an element that is there
}

// Check is the Page of a [Guard] for an SDK that takes any XML for a listing. It
// counts opening tags, those in comments and text included, so it may count too
// many, which refuses the page. No store writes such comments or text.
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
