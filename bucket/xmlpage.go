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
	Once       []string // elements in an item that hold text, and are there once at most
	Each       []string // of these, what each item has
	Needs      []string // elements that are there
	Limit      int64    // bytes
}

// ErrBroken marks an answer whose body ended with an error.
var ErrBroken = errors.New("the answer breaks off")

var (
	errNoListing = errors.New("the answer is no listing: check spec.endpoint")
	errOddXML    = errors.New("the answer is no listing: in an item an element is there twice, or is not text")
)

// Check reads the page that resp has, and leaves it to be read again, by an SDK
// that takes any XML for a listing and spends kilobytes on each item.
func (f XMLPage) Check(resp *http.Response) error {
	kind := resp.Header.Get("Content-Type")
	if strings.Contains(kind, "html") && !strings.Contains(kind, "xml") || strings.Contains(kind, "json") {
		return errNoListing
	}
	text, err := io.ReadAll(Bounded(resp.Body, f.Limit))
	if err != nil && !errors.Is(err, errLarger) {
		err = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	if err != nil {
		return err
	}
	resp.Body.Close()
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return f.check(text)
}

func (f XMLPage) check(text []byte) error {
	depth, items := 0, 0
	item := -1        // depth of the item that is open, -1 when none is
	leaf := -1        // depth of the element of Once that is open
	var seen []string // of Once, in the item
	missing := slices.Clone(f.Needs)
	for {
		_, rest, found := bytes.Cut(text, []byte("<"))
		if text = rest; !found {
			break
		}
		if bytes.HasPrefix(text, []byte("!--")) {
			_, text, _ = bytes.Cut(text, []byte("-->"))
			continue
		}
		if bytes.HasPrefix(text, []byte("![CDATA[")) {
			_, text, _ = bytes.Cut(text, []byte("]]>"))
			continue
		}
		if bytes.HasPrefix(text, []byte("!")) || bytes.HasPrefix(text, []byte("?")) {
			continue
		}
		name, end, empty := nameOf(text)
		switch {
		case leaf >= 0 && !end:
			return errOddXML
		case end:
			if depth--; depth == leaf {
				leaf = -1
			}
			if depth == item {
				item = -1
				if lacking := f.lacking(seen); lacking != "" {
					return fmt.Errorf("the answer lists an object without %s", lacking)
				}
			}
			continue
		case depth == 0 && name != f.Root:
			return errNoListing
		case name == f.Item && item < 0:
			if items++; items > f.Items {
				return fmt.Errorf("the answer lists more than the %d objects that were asked for", f.Items)
			}
			if seen = seen[:0]; !empty {
				item = depth
			} else if len(f.Each) > 0 {
				return fmt.Errorf("the answer lists an object without %s", f.Each[0])
			}
		case item >= 0 && depth == item+1 && slices.Contains(f.Once, name):
			if slices.Contains(seen, name) {
				return errOddXML
			}
			seen = append(seen, name)
			if !empty {
				leaf = depth
			}
		}
		missing = slices.DeleteFunc(missing, func(needed string) bool { return needed == name })
		if !empty {
			depth++
		}
	}
	if depth != 0 || len(missing) > 0 {
		return errNoListing
	}
	return nil
}

// lacking returns what of Each is not in seen, "" for nothing.
func (f XMLPage) lacking(seen []string) string {
	for _, name := range f.Each {
		if !slices.Contains(seen, name) {
			return name
		}
	}
	return ""
}

// nameOf returns the name, without a prefix, of the tag that text is behind the
// < of, and whether it ends an element or is an empty one.
func nameOf(text []byte) (name string, end, empty bool) {
	tag, _, _ := bytes.Cut(text, []byte(">"))
	tag, end = bytes.CutPrefix(tag, []byte("/"))
	tag, empty = bytes.CutSuffix(tag, []byte("/"))
	if space := bytes.IndexAny(tag, " \t\r\n"); space >= 0 {
		tag = tag[:space]
	}
	return string(tag[bytes.LastIndexByte(tag, ':')+1:]), end, empty
}
