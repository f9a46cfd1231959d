package bucket

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// An XMLPage says what a page of a listing looks like where a store writes XML.
type XMLPage struct {
	Root, Item string   // names of elements
	Items      int      // at most
	Each       []string // elements that are there as often as items
	Needs      string   // an element that is there
	Limit      int64    // bytes
}

// ErrBroken marks an answer whose body ended with an error.
var ErrBroken = errors.New("the answer breaks off")

var errNoListing = errors.New("the answer is no listing: check spec.endpoint")

// Check reads the page that resp has, and leaves it to be read again, by an SDK
// that takes any XML for a listing and spends kilobytes on each item.
func (f XMLPage) Check(resp *http.Response) error {
	kind := resp.Header.Get("Content-Type")
	if strings.Contains(kind, "html") && !strings.Contains(kind, "xml") || strings.Contains(kind, "json") {
		return errNoListing
	}
	text, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, f.Limit))
	if err != nil && !is[*http.MaxBytesError](err) {
		err = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	if err != nil {
		return err
	}
	resp.Body.Close()
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
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
