package s3

import (
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/bucket/internal/markup"
)

// A pageReader reads a page, an answer to ListObjectsV2, of which it keeps these
// elements, in any order:
//
//	ListBucketResult
//		EncodingType, IsTruncated, NextContinuationToken
//		Contents
//			Key, ETag, Size
type pageReader struct {
	page                bucket.Page
	encoding, truncated string

	object bucket.Object // of Contents
	size   string

	inside bool // Contents
}

var errNoListing = errors.New("the answer is no listing of S3: check spec.endpoint")

// readPage reads a page of keys that begin with prefix.
func readPage(text, prefix string) (bucket.Page, error) {
	p := pageReader{page: bucket.Page{Objects: make([]bucket.Object, 0, 1000)}}
	err := markup.Walk(text, &p)
	if err == nil {
		err = p.finish(prefix)
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
	case depth == 1 && name != "ListBucketResult":
		return nil, errNoListing
	case depth == 2:
		if p.inside = name == "Contents"; p.inside {
			p.object, p.size = bucket.Object{}, ""
		}
		return p.ofPage(name), nil
	case depth == 3 && p.inside:
		return p.ofObject(name), nil
	}
	return nil, nil
}

func (p *pageReader) ofPage(name string) *string {
	switch name {
	case "EncodingType":
		return &p.encoding
	case "IsTruncated":
		return &p.truncated
	case "NextContinuationToken":
		return &p.page.Next
	}
	return nil
}

func (p *pageReader) ofObject(name string) *string {
	switch name {
	case "Key":
		return &p.object.Key
	case "ETag":
		return &p.object.ETag
	case "Size":
		return &p.size
	}
	return nil
}

// End implements [markup.Visitor].
func (p *pageReader) End(open []string) error {
	if len(open) != 1 || !p.inside {
		return nil
	}
	p.inside = false
	size, err := strconv.ParseInt(strings.TrimSpace(p.size), 10, 64)
	if err != nil || size < 0 || p.object.Key == "" {
		return errors.New("the answer lists an object without a key or a size")
	}
	p.object.Size, p.object.ETag = size, bucket.ETag(p.object.ETag)
	p.page.Objects = append(p.page.Objects, p.object)
	return nil
}

// finish makes of a page what its elements mean together.
func (p *pageReader) finish(prefix string) error {
	switch more := strings.TrimSpace(p.truncated); {
	case more != "true" && more != "false":
		return errors.New("the answer does not say whether there are more objects")
	case more == "false":
		p.page.Next = ""
	case p.page.Next == "":
		return errors.New("there are more objects, says the store, but not how to ask for them: it lacks ListObjectsV2")
	}
	for i := range p.page.Objects {
		o := &p.page.Objects[i]
		if p.encoding == "url" {
			key, err := url.QueryUnescape(o.Key)
			if err != nil {
				return errors.New("the answer lists a key that is not encoded as it says")
			}
			o.Key = key
		}
		if !strings.HasPrefix(o.Key, prefix) {
			return errors.New("the answer lists an object that does not begin with spec.prefix")
		}
	}
	return nil
}
