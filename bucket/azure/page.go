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
	blobs  bool // there was an element Blobs
	inside bool // Blob
}

var (
	errNoListing = errors.New("the answer is no listing: check spec.endpoint")
	errManyBlobs = fmt.Errorf("the answer lists more than the %d blobs that were asked for", pageSize)
)

// readPage reads a page.
func readPage(text string) (bucket.Page, error) {
	if text == "" {
		return bucket.Page{}, errNoListing
	}
	var p pageReader
	err := markup.Walk(text, &p)
	if err == nil && !p.blobs {
		err = errNoListing
	}
	if err != nil {
		return bucket.Page{}, err
	}
	return p.page, nil
}

// Start implements [markup.Visitor].
func (p *pageReader) Start(open []string, element markup.Token) (*string, error) {
	name := element.Text
	switch depth := len(open); {
	case depth == 1 && name != "EnumerationResults":
		return nil, errNoListing
	case depth == 2 && name == "NextMarker":
		return &p.page.Next, nil
	case depth == 2:
		p.blobs = p.blobs || name == "Blobs"
	case depth == 3 && open[1] == "Blobs" && name == "Blob":
		p.blob, p.inside = listed{}, true
	case depth == 4 && p.inside:
		if name == "Name" {
			p.blob.spelling = element.Attributes
		}
		return p.blob.own(name), nil
	case depth == 5 && p.inside:
		return p.blob.more(open[3], name), nil
	}
	return nil, nil
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

// End implements [markup.Visitor].
func (p *pageReader) End(open []string) error {
	if len(open) != 2 || !p.inside {
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
