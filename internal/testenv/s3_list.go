package testenv

import (
	"encoding/base64"
	"encoding/xml"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An s3Page is one page of a listing.
type s3Page struct {
	XMLName               xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListBucketResult"`
	Name                  string
	Prefix                string
	EncodingType          string `xml:",omitempty"`
	KeyCount              int
	MaxKeys               int
	IsTruncated           bool
	ContinuationToken     string `xml:",omitempty"`
	NextContinuationToken string `xml:",omitempty"`
	Contents              []s3Listed
}

type s3Listed struct {
	Key          string
	LastModified time.Time
	ETag         string
	Size         int
	StorageClass string
}

// list answers ListObjectsV2.
func (b *S3Bucket) list(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("list-type") != "2" {
		s3Refusal(http.StatusNotImplemented, "NotImplemented", "Only version 2 of ListObjects is implemented").write(w, r)
		return
	}
	size := 1000
	if n, err := strconv.Atoi(query.Get("max-keys")); err == nil {
		size = min(n, size)
	}
	if n := b.config.PageSize; n > 0 {
		size = min(n, size)
	}
	p := s3Page{Name: b.name, Prefix: query.Get("prefix"), EncodingType: query.Get("encoding-type"), MaxKeys: size, ContinuationToken: query.Get("continuation-token")}
	b.mu.Lock()
	ok := b.fill(&p)
	b.mu.Unlock()
	if !ok {
		s3Refusal(http.StatusBadRequest, "InvalidArgument", "The continuation token provided is incorrect").write(w, r)
		return
	}
	p.encode()
	writeXML(w, http.StatusOK, p)
}

// fill puts up to p.MaxKeys keys on a page. It reports whether the continuation
// token is one of its own: it tells the key, or where keys are arranged the
// position, that the page begins behind.
func (b *S3Bucket) fill(p *s3Page) bool {
	keys, at, after := b.keys(), 0, ""
	if p.ContinuationToken != "" {
		text, err := base64.RawURLEncoding.DecodeString(p.ContinuationToken)
		var ok bool
		if after, ok = strings.CutPrefix(string(text), "after "); !ok || err != nil {
			return false
		}
	}
	if b.config.Arrange != nil {
		at, _ = strconv.Atoi(after)
	} else {
		var found bool
		if at, found = slices.BinarySearch(keys, max(after, p.Prefix)); found && keys[at] == after {
			at++
		}
	}
	for ; at < len(keys); at++ {
		key := keys[at]
		if !strings.HasPrefix(key, p.Prefix) {
			continue
		}
		if p.KeyCount == p.MaxKeys {
			if p.IsTruncated = p.MaxKeys > 0; p.IsTruncated {
				if b.config.Arrange != nil {
					after = strconv.Itoa(at)
				}
				p.NextContinuationToken = base64.RawURLEncoding.EncodeToString([]byte("after " + after))
			}
			break
		}
		p.KeyCount++
		o := b.objects[key]
		after = key
		p.Contents = append(p.Contents, s3Listed{key, o.since.UTC().Truncate(time.Millisecond), `"` + o.etag + `"`, len(o.data), "STANDARD"})
	}
	return true
}

// encode spells keys as the client asked for.
func (p *s3Page) encode() {
	if p.EncodingType != "url" {
		return
	}
	p.Prefix = listedKey(p.Prefix)
	for i := range p.Contents {
		p.Contents[i].Key = listedKey(p.Contents[i].Key)
	}
}

// listedKey returns a key, or a prefix, as listings spell it with encoding-type=url.
func listedKey(key string) string { return strings.ReplaceAll(url.QueryEscape(key), "%2F", "/") }
