package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// ErrBroken marks a page whose body ended with an error.
var ErrBroken = errors.New("the answer breaks off")

var errNoListing = errors.New("the answer is no listing: check spec.endpoint")

// ReadPage returns the body of resp, a page of a listing of at most limit bytes, and closes it.
func ReadPage(resp *http.Response, limit int64) ([]byte, error) {
	defer resp.Body.Close()
	text, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, limit))
	if err != nil && !is[*http.MaxBytesError](err) {
		err = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return text, err
}

// SetPage makes text the body of resp.
func SetPage(resp *http.Response, text []byte) {
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
}

const maxPageToken = 8 << 10 // bytes

// tokensKey is the key of the context value that is the [cycle] of the page tokens of a listing.
type tokensKey struct{}

// Listing returns a context for the requests of one listing, which [NextPage] checks.
func Listing(ctx context.Context) context.Context {
	return context.WithValue(ctx, tokensKey{}, new(cycle))
}

// NextPage reports why the page that token names, "" for the first, is not to be asked for.
// A store that turns in circles is found out by its tokens, pages without objects included.
func NextPage(ctx context.Context, token string) error {
	tokens, ok := ctx.Value(tokensKey{}).(*cycle)
	switch {
	case len(token) > maxPageToken:
		return fmt.Errorf("the store's page token has more than %d bytes", maxPageToken)
	case ok && token != "" && tokens.repeats(token):
		return errors.New("the store repeats a page token: its listing would never end")
	}
	return nil
}

// An XMLPage says what a page of a listing looks like where a store writes XML.
type XMLPage struct {
	Root, Item string   // names of elements
	Items      int      // at most
	Each       []string // elements that are there as often as items
	Needs      string   // an element that is there
	Limit      int64    // bytes
}

// Check reads the page that resp has, and leaves it to be read again, by an SDK
// that takes any XML for a listing and spends kilobytes on each item.
func (f XMLPage) Check(resp *http.Response) error {
	kind := resp.Header.Get("Content-Type")
	if strings.Contains(kind, "html") && !strings.Contains(kind, "xml") || strings.Contains(kind, "json") {
		return errNoListing
	}
	text, err := ReadPage(resp, f.Limit)
	if err != nil {
		return err
	}
	SetPage(resp, text)
	return f.check(text)
}

// check counts the elements, whatever is in them, comments and text included:
// what that takes for one too many, no store writes.
func (f XMLPage) check(text []byte) error {
	count, root := map[string]int{}, ""
	_, text, _ = bytes.Cut(text, []byte("<"))
	for tag := range bytes.SplitSeq(text, []byte("<")) {
		if end := bytes.IndexAny(tag, " \t\r\n/>"); end > 0 && tag[0] != '?' && tag[0] != '!' {
			name := tag[bytes.LastIndexByte(tag[:end], ':')+1 : end]
			switch {
			case root == "" && string(name) != f.Root:
				return errNoListing
			case root == "":
				root = f.Root
			case string(name) == f.Item || string(name) == f.Needs || slices.Contains(f.Each, string(name)):
				count[string(name)]++
			}
		}
	}
	items := count[f.Item]
	switch {
	case root == "":
		return errNoListing
	case items > f.Items:
		return fmt.Errorf("the answer lists more than the %d objects that were asked for", f.Items)
	}
	for _, name := range f.Each {
		if count[name] != items {
			return fmt.Errorf("the answer lists an object without %s, or with several", name)
		}
	}
	if count[f.Needs] == 0 {
		return errNoListing
	}
	return nil
}
