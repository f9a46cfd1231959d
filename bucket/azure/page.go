package azure

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/internal/markup"
)

// A listed blob is what a page says of a blob, each as it is written.
type listed struct {
	name, snapshot, deleted, current string
	etag, size, kind, folder         string
	spelling                         string // the attributes of its name
}

// A pageReader reads a page, an answer to List Blobs, of which it keeps these elements, in any order:
//
//	EnumerationResults
//		NextMarker
//		Blobs
//			Blob
//				Name, Snapshot, Deleted, IsCurrentVersion
//				Properties
//					Etag, Content-Length, ResourceType
//				Metadata
//					hdi_isfolder
type pageReader struct {
	page   bucket.Page
	blob   listed
	open   []string // names of the elements that are open, outermost first
	blobs  bool     // there was an element Blobs
	inside bool     // Blob
	to     *string  // what the text of the innermost element goes to, nil for nowhere
}

const maxText = 8 << 10 // bytes of an element: a name of 1024 characters, each of them escaped, has less

var (
	errNoListing  = errors.New("the answer is no listing: check spec.endpoint")
	errOddListing = errors.New("the answer is no listing as the service writes it: an element is there twice, or is not text")
	errLongText   = fmt.Errorf("the answer has an element of more than %d bytes", maxText)
	errManyBlobs  = fmt.Errorf("the answer lists more than the %d blobs that were asked for", pageSize)
)

// readPage reads a page.
func readPage(text string) (bucket.Page, error) {
	if text == "" {
		return bucket.Page{}, errNoListing
	}
	s := markup.Scanner{Text: text}
	var p pageReader
	for {
		t, err := s.Next()
		switch {
		case err != nil:
		case t.Kind == markup.Start:
			err = p.start(t)
		case t.Kind == markup.End:
			if err = p.end(); err == nil && len(p.open) == 0 {
				if !p.blobs {
					err = errNoListing
				}
				return p.page, err
			}
		case p.to != nil:
			err = p.add(t)
		}
		if err != nil {
			return bucket.Page{}, err
		}
	}
}

// add adds to the text of an element, which is nearly always of one piece.
func (p *pageReader) add(t markup.Token) error {
	text, err := t.Meant()
	if err != nil {
		return err
	}
	if *p.to += text; len(*p.to) > maxText {
		return errLongText
	}
	return nil
}

func (p *pageReader) start(t markup.Token) error {
	if p.to != nil { // an element where there is to be text
		return errOddListing
	}
	p.open = append(p.open, t.Text)
	switch depth := len(p.open); {
	case depth == 1 && t.Text != "EnumerationResults":
		return errNoListing
	case depth == 2 && t.Text == "NextMarker":
		p.to = &p.page.Next
	case depth == 2:
		p.blobs = p.blobs || t.Text == "Blobs"
	case depth == 3 && p.open[1] == "Blobs" && t.Text == "Blob":
		p.blob, p.inside = listed{}, true
	case depth == 4 && p.inside:
		if p.to = p.blob.own(t.Text); t.Text == "Name" {
			p.blob.spelling = t.Attributes
		}
	case depth == 5 && p.inside:
		p.to = p.blob.more(p.open[3], t.Text)
	}
	if p.to != nil && *p.to != "" { // twice
		return errOddListing
	}
	return nil
}

// own returns what the text of an element of a blob goes to.
func (l *listed) own(name string) *string {
	switch name {
	case "Name":
		return &l.name
	case "Snapshot":
		return &l.snapshot
	case "Deleted":
		return &l.deleted
	case "IsCurrentVersion":
		return &l.current
	}
	return nil
}

// more returns what the text of an element of a blob's properties or metadata goes to.
func (l *listed) more(in, name string) *string {
	switch {
	case in == "Metadata" && strings.EqualFold(name, "hdi_isfolder"):
		return &l.folder
	case in != "Properties":
		return nil
	case name == "Etag":
		return &l.etag
	case name == "Content-Length":
		return &l.size
	case name == "ResourceType":
		return &l.kind
	}
	return nil
}

func (p *pageReader) end() error {
	p.to = nil
	p.open = p.open[:len(p.open)-1]
	if len(p.open) != 2 || !p.inside {
		return nil
	}
	p.inside = false
	if p.blob.old() {
		return nil
	}
	o, err := p.blob.object()
	if err == nil && len(p.page.Objects) == pageSize {
		err = errManyBlobs
	}
	p.page.Objects = append(p.page.Objects, o)
	return err
}

// old reports whether l is not what the blob is now. None was asked for.
func (l *listed) old() bool {
	return l.snapshot != "" || l.deleted == "true" || l.current == "false"
}

// object returns what is listed. A directory of a hierarchical namespace, and
// what stands for one, is a directory marker.
func (l *listed) object() (bucket.Object, error) {
	name, err := l.meant()
	if err != nil {
		return bucket.Object{}, err
	}
	o := bucket.Object{Key: name, ETag: bucket.ETag(l.etag)}
	if l.kind == "directory" || strings.EqualFold(l.folder, "true") {
		o.Key = strings.TrimSuffix(name, "/") + "/"
	}
	o.Size, err = strconv.ParseInt(strings.TrimSpace(l.size), 10, 64)
	switch {
	case o.ETag == "":
		return o, fmt.Errorf("%q has no ETag", o.Key)
	case err != nil || o.Size < 0:
		return o, fmt.Errorf("%q has no size", o.Key)
	}
	return o, nil
}

// encodedForm is the form of the attributes of a name that says whether it is encoded for URLs.
var encodedForm = regexp.MustCompile(`^Encoded\s*=\s*["'](true|false)["']$`)

// meant returns the name of the blob.
func (l *listed) meant() (name string, err error) {
	name = l.name
	if l.spelling != "" {
		m := encodedForm.FindStringSubmatch(l.spelling)
		if m == nil {
			return "", errors.New("the name of a blob is written in an unknown way")
		}
		if m[1] == "true" {
			if name, err = url.PathUnescape(name); err != nil {
				return "", errors.New("the name of a blob is not encoded as it says")
			}
		}
	}
	if name == "" {
		return "", errors.New("a blob has no name")
	}
	return name, nil
}
