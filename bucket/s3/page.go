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

	depth  int     // of elements
	inside bool    // Contents
	to     *string // what the text of the innermost element goes to, nil for nowhere
}

const maxText = 8 << 10 // bytes of an element: a key of 1024 bytes, each of them escaped, has 3072

var (
	errNoListing  = errors.New("the answer is no listing of S3: check spec.endpoint")
	errOddListing = errors.New("the answer is no listing as stores write it: an element is there twice, or is not text")
)

// readPage reads a page of keys that begin with prefix.
func readPage(text, prefix string) (bucket.Page, error) {
	s := markup.Scanner{Text: text}
	p := pageReader{page: bucket.Page{Objects: make([]bucket.Object, 0, 1000)}}
	for {
		t, err := s.Next()
		switch {
		case err != nil:
		case t.Kind == markup.Start:
			err = p.start(t.Text)
		case t.Kind == markup.End:
			if err = p.end(); p.depth == 0 && err == nil {
				err = p.finish(prefix)
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
		return errTooLarge
	}
	return nil
}

func (p *pageReader) start(name string) error {
	p.depth++
	switch {
	case p.to != nil: // an element where there is to be text
		return errOddListing
	case p.depth == 1 && name != "ListBucketResult":
		return errNoListing
	case p.depth == 2:
		if p.inside = name == "Contents"; p.inside {
			p.object, p.size = bucket.Object{}, ""
		}
		p.to = p.ofPage(name)
	case p.depth == 3 && p.inside:
		p.to = p.ofObject(name)
	}
	if p.to != nil && *p.to != "" { // twice
		return errOddListing
	}
	return nil
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

func (p *pageReader) end() error {
	p.depth--
	p.to = nil
	if p.depth != 1 || !p.inside {
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
