package gcs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/headgate-io/headgate/bucket"
)

const (
	pageSize = "1000"   // objects, the most that Cloud Storage sends
	maxPage  = 16 << 20 // bytes of a page of a listing
	maxNext  = 8 << 10  // bytes of a page token
	fields   = "kind,nextPageToken,items(name,etag,size,generation)"
)

var (
	errNoListing = errors.New("the answer is not a listing: check spec.endpoint")
	errOdd       = errors.New("the answer is not a listing as Cloud Storage writes it")
	errTorn      = errors.New("the answer breaks off")
	errTooLarge  = fmt.Errorf("the answer is larger than %d bytes", maxPage)
)

// A pageReader reads a page, an answer to objects.list. Objects are decoded one
// by one: what is none ends the page before it takes any memory.
type pageReader struct {
	page  bucket.Page
	kind  string
	vault *bucket.Vault
}

// readPage reads a page of maxPage bytes at most.
func readPage(r io.Reader, v *bucket.Vault) (bucket.Page, error) {
	p := pageReader{vault: v}
	dec := json.NewDecoder(&bounded{r, maxPage, v})
	if err := p.read(dec); err != nil {
		return bucket.Page{}, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return bucket.Page{}, explain(err, errOdd)
	}
	if p.kind != "storage#objects" { // what else would be an empty bucket
		return bucket.Page{}, errNoListing
	}
	return p.page, nil
}

// read reads the one object that a page is.
func (p *pageReader) read(dec *json.Decoder) error {
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		if err == io.EOF {
			return errNoListing
		}
		return explain(err, errNoListing)
	}
	for seen := (map[string]bool{}); dec.More(); {
		t, err := dec.Token()
		name, _ := t.(string)
		if err != nil || seen[name] {
			return explain(err, errOdd)
		}
		switch seen[name] = true; name {
		case "kind":
			err = dec.Decode(&p.kind)
		case "nextPageToken":
			if err = dec.Decode(&p.page.Next); len(p.page.Next) > maxNext {
				return errOdd
			}
		case "items":
			err = p.items(dec)
		default: // nothing else was asked for
			var other json.RawMessage
			err = dec.Decode(&other)
		}
		if err != nil {
			return explain(err, nil)
		}
		if len(seen) > maxNames {
			return errOdd
		}
	}
	_, err := dec.Token()
	return explain(err, nil)
}

// maxNames is how many fields a page may have, known or not.
const maxNames = 100

func (p *pageReader) items(dec *json.Decoder) error {
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return explain(err, errOdd)
	}
	for dec.More() {
		var i item
		if err := dec.Decode(&i); err != nil {
			return err
		}
		o, err := i.object(p.vault)
		if err != nil {
			return err
		}
		p.page.Objects = append(p.page.Objects, o)
	}
	_, err := dec.Token()
	return err
}

// An item is an object as it is listed. Its numbers are texts.
type item struct {
	Name       string `json:"name"`
	ETag       string `json:"etag"`
	Size       string `json:"size"`
	Generation string `json:"generation"`
}

func (i item) object(v *bucket.Vault) (bucket.Object, error) {
	o := bucket.Object{Key: i.Name, ETag: bucket.ETag(i.ETag)}
	size, noSize := strconv.ParseUint(i.Size, 10, 63)
	generation, noGeneration := strconv.ParseUint(i.Generation, 10, 63)
	without := ""
	switch {
	case o.Key == "":
		without = "no name"
	case o.ETag == "":
		without = "no etag"
	case noGeneration != nil || generation == 0:
		without = "no generation"
	case noSize != nil:
		without = "no size"
	default:
		o.Size, o.Version = int64(size), strconv.FormatUint(generation, 10)
		return o, nil
	}
	return o, fmt.Errorf("%q has %s", said(i.Name, v), without)
}

// explain returns why a page cannot be decoded, otherwise when err does not
// say. The decoder's errors repeat values of the answer.
func explain(err, otherwise error) error {
	switch {
	case err == nil:
		return otherwise
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errTorn
	}
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		return errNoListing
	}
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return errOdd
	}
	return err
}

// A bounded reader ends with an error after left bytes.
type bounded struct {
	io.Reader
	left  int64
	vault *bucket.Vault
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.Reader.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if err != nil && err != io.EOF {
		err = cause(err, b.vault)
	}
	return n, err
}
