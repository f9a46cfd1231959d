package testenv

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// An S3Bucket is a bucket of an [S3] server. It may be changed at any time.
type S3Bucket struct {
	name   string
	config *S3Config

	mu      sync.Mutex
	objects map[string]s3Object
	listed  []string // keys as they are listed, nil when that is to be found out
}

type s3Object struct {
	data  []byte
	etag  string // without quotes
	since time.Time
}

// Bucket returns the bucket of a name, a new one when there is none.
func (s *S3) Bucket(name string) *S3Bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.buckets[name]
	if b == nil {
		b = &S3Bucket{name: name, config: &s.config, objects: map[string]s3Object{}}
		s.buckets[name] = b
	}
	return b
}

// Put stores an object, and returns its ETag without quotes.
func (b *S3Bucket) Put(key, content string) (etag string) {
	o := b.object(content)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.objects[key], b.listed = o, nil
	return o.etag
}

// Remove removes objects.
func (b *S3Bucket) Remove(keys ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range keys {
		delete(b.objects, key)
	}
	b.listed = nil
}

// Replace makes contents, by key, all that the bucket holds, at once.
func (b *S3Bucket) Replace(contents map[string]string) {
	all := make(map[string]s3Object, len(contents))
	for key, content := range contents {
		all[key] = b.object(content)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.objects, b.listed = all, nil
}

// Contents returns what the bucket holds, by key.
func (b *S3Bucket) Contents() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[string]string, len(b.objects))
	for key, o := range b.objects {
		all[key] = string(o.data)
	}
	return all
}

func (b *S3Bucket) object(content string) s3Object {
	sum := md5.Sum([]byte(content))
	o := s3Object{data: []byte(content), etag: hex.EncodeToString(sum[:]), since: time.Now()}
	if b.config.Multipart {
		o.etag += "-3"
	}
	return o
}

// keys returns the keys as they are listed.
func (b *S3Bucket) keys() []string {
	if b.listed == nil {
		b.listed = slices.Sorted(maps.Keys(b.objects))
		if b.config.Arrange != nil {
			b.listed = b.config.Arrange(b.listed)
		}
	}
	return b.listed
}

// give answers GetObject and HeadObject.
func (b *S3Bucket) give(w http.ResponseWriter, r *http.Request, key string) {
	b.mu.Lock()
	o, ok := b.objects[key]
	b.mu.Unlock()
	if !ok {
		s3Refusal(http.StatusNotFound, "NoSuchKey", "The specified key does not exist.").write(w, r)
		return
	}
	if match := r.Header.Get("If-Match"); match != "" && match != "*" && strings.Trim(match, `"`) != o.etag {
		s3Refusal(http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold").write(w, r)
		return
	}
	from, to, ok := byteRange(r.Header.Get("Range"), len(o.data))
	if !ok {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", len(o.data)))
		s3Refusal(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "The requested range is not satisfiable").write(w, r)
		return
	}
	h := w.Header()
	h.Set("ETag", `"`+o.etag+`"`)
	h.Set("Last-Modified", o.since.UTC().Format(http.TimeFormat))
	h.Set("Accept-Ranges", "bytes")
	h.Set("Content-Type", "binary/octet-stream")
	h.Set("Content-Length", strconv.Itoa(to-from))
	status := http.StatusOK
	if r.Header.Get("Range") != "" {
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(o.data)))
		status = http.StatusPartialContent
	}
	w.WriteHeader(status)
	if r.Method == http.MethodGet {
		w.Write(o.data[from:to])
	}
}

// byteRange returns the part of size bytes that a header asks for, all without
// one; not ok when there are no such bytes.
func byteRange(header string, size int) (from, to int, ok bool) {
	text, ok := strings.CutPrefix(header, "bytes=")
	if !ok {
		return 0, size, true
	}
	first, last, _ := strings.Cut(text, "-")
	from, err := strconv.Atoi(first)
	if err != nil { // the last bytes
		n, _ := strconv.Atoi(last)
		return max(size-n, 0), size, n > 0 && size > 0
	}
	to = size
	if n, err := strconv.Atoi(last); err == nil {
		to = min(n+1, size)
	}
	return from, to, from < size
}
