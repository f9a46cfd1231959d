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
	Delimiter             string `xml:",omitempty"`
	StartAfter            string `xml:",omitempty"`
	EncodingType          string `xml:",omitempty"`
	KeyCount              int
	MaxKeys               int
	IsTruncated           bool
	ContinuationToken     string `xml:",omitempty"`
	NextContinuationToken string `xml:",omitempty"`
	Contents              []s3Listed
	CommonPrefixes        []s3Prefix
}

type s3Listed struct {
	Key          string
	LastModified time.Time
	ETag         string
	Size         int
	StorageClass string
}

type s3Prefix struct{ Prefix string }

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
	p := s3Page{Name: b.name, Prefix: query.Get("prefix"), Delimiter: query.Get("delimiter"), StartAfter: query.Get("start-after"),
		EncodingType: query.Get("encoding-type"), MaxKeys: size, ContinuationToken: query.Get("continuation-token")}
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

// fill puts up to p.MaxKeys keys and common prefixes on a page. It reports
// whether the continuation token is one of its own.
func (b *S3Bucket) fill(p *s3Page) bool {
	keys := b.keys()
	at, ok := b.begin(p, keys)
	last := ""
	for ; ok && at < len(keys); at++ {
		key := keys[at]
		if !strings.HasPrefix(key, p.Prefix) {
			continue
		}
		folder := p.folder(key)
		if folder != "" && folder == last {
			continue
		}
		if p.KeyCount == p.MaxKeys {
			if p.IsTruncated = p.MaxKeys > 0; p.IsTruncated {
				p.NextContinuationToken = b.token(at, last)
			}
			break
		}
		p.KeyCount++
		if last = folder; folder != "" {
			p.CommonPrefixes = append(p.CommonPrefixes, s3Prefix{folder})
			continue
		}
		last = key
		o := b.objects[key]
		p.Contents = append(p.Contents, s3Listed{key, o.since.UTC().Truncate(time.Millisecond), `"` + o.etag + `"`, len(o.data), "STANDARD"})
	}
	return ok
}

// folder returns the common prefix that stands for key, "" when it is listed itself.
func (p *s3Page) folder(key string) string {
	if p.Delimiter == "" {
		return ""
	}
	at := strings.Index(key[len(p.Prefix):], p.Delimiter)
	if at < 0 {
		return ""
	}
	return key[:len(p.Prefix)+at+len(p.Delimiter)]
}

// token returns what a listing goes on with: behind the key or the common
// prefix last; where keys are arranged, at a position.
func (b *S3Bucket) token(at int, last string) string {
	if b.config.Arrange != nil {
		last = strconv.Itoa(at)
	}
	return base64.RawURLEncoding.EncodeToString([]byte("after " + last))
}

// begin returns where a page begins.
func (b *S3Bucket) begin(p *s3Page, keys []string) (at int, ok bool) {
	after := p.StartAfter
	if p.ContinuationToken != "" {
		text, err := base64.RawURLEncoding.DecodeString(p.ContinuationToken)
		if after, ok = strings.CutPrefix(string(text), "after "); !ok || err != nil {
			return 0, false
		}
	}
	if b.config.Arrange != nil {
		at, _ = strconv.Atoi(after)
		return at, true
	}
	at, found := slices.BinarySearch(keys, max(after, p.Prefix))
	if found && keys[at] == after {
		at++
	}
	for p.ContinuationToken != "" && p.folder(after) == after && after != "" && at < len(keys) && strings.HasPrefix(keys[at], after) {
		at++
	}
	return at, true
}

// encode spells keys as the client asked for.
func (p *s3Page) encode() {
	if p.EncodingType != "url" {
		return
	}
	p.Prefix, p.Delimiter, p.StartAfter = listedKey(p.Prefix), listedKey(p.Delimiter), listedKey(p.StartAfter)
	for i := range p.Contents {
		p.Contents[i].Key = listedKey(p.Contents[i].Key)
	}
	for i := range p.CommonPrefixes {
		p.CommonPrefixes[i].Prefix = listedKey(p.CommonPrefixes[i].Prefix)
	}
}

// listedKey returns a key, or a prefix, as listings spell it with encoding-type=url.
func listedKey(key string) string { return strings.ReplaceAll(url.QueryEscape(key), "%2F", "/") }
