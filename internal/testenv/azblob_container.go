package testenv

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// An AzblobContainer is a container of an [Azblob] server. It may be changed at any time.
type AzblobContainer struct {
	name   string
	url    string // of the account
	config *AzblobConfig

	mu    sync.Mutex
	blobs map[string]*storedBlob
}

// A StoredBlob is a blob of an [AzblobContainer].
type StoredBlob struct {
	Content  string
	Encoding string            // Content-Encoding
	Tier     string            // "" is Hot
	Metadata map[string]string // by name
}

type storedBlob struct {
	StoredBlob
	etag  string // without quotes
	since time.Time
}

// Container returns the container of a name, a new one when there is none.
func (s *Azblob) Container(name string) *AzblobContainer {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.containers[name]
	if c == nil {
		c = &AzblobContainer{name: name, url: s.URL, config: &s.config, blobs: map[string]*storedBlob{}}
		s.containers[name] = c
	}
	return c
}

// Put stores a blob, and returns its ETag without quotes, which another one of
// the same name and content never has.
func (c *AzblobContainer) Put(name, content string) (etag string) {
	return c.PutBlob(name, StoredBlob{Content: content})
}

// PutBlob is Put of a blob with properties.
func (c *AzblobContainer) PutBlob(name string, b StoredBlob) (etag string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.put(name, b)
}

func (c *AzblobContainer) put(name string, b StoredBlob) (etag string) {
	before := ""
	if old := c.blobs[name]; old != nil {
		before = old.etag
	}
	sum := sha256.Sum256([]byte(before + "\x00" + name + "\x00" + b.Content))
	etag = fmt.Sprintf("0x8D%X", sum[:7])
	c.blobs[name] = &storedBlob{b, etag, time.Now()}
	return etag
}

// Remove removes blobs.
func (c *AzblobContainer) Remove(names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		delete(c.blobs, name)
	}
}

// Replace makes contents, by name, all that the container holds, at once. What
// is the same stays as it is.
func (c *AzblobContainer) Replace(contents map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.blobs, func(name string, _ *storedBlob) bool { _, ok := contents[name]; return !ok })
	for name, content := range contents {
		if old := c.blobs[name]; old == nil || old.Content != content {
			c.put(name, StoredBlob{Content: content})
		}
	}
}

// Contents returns what the container holds, by name.
func (c *AzblobContainer) Contents() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[string]string, len(c.blobs))
	for name, b := range c.blobs {
		all[name] = b.Content
	}
	return all
}

// listed returns the names as they are listed; directories come with their names.
func (c *AzblobContainer) listed() []string {
	names := map[string]bool{}
	for name := range c.blobs {
		names[name] = true
		for at := strings.LastIndexByte(name, '/'); c.config.Hierarchical && at > 0; at = strings.LastIndexByte(name, '/') {
			name = name[:at]
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// give answers Get Blob.
func (c *AzblobContainer) give(w http.ResponseWriter, r *http.Request, name string) {
	c.mu.Lock()
	b := c.blobs[name]
	c.mu.Unlock()
	if b == nil {
		azureRefusal(http.StatusNotFound, "BlobNotFound", "The specified blob does not exist.").write(w)
		return
	}
	if match := r.Header.Get("If-Match"); match != "" && match != "*" && match != `"`+b.etag+`"` {
		azureRefusal(http.StatusPreconditionFailed, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met.").write(w)
		return
	}
	if b.Tier == "Archive" {
		azureRefusal(http.StatusConflict, "BlobArchived", "This operation is not permitted on an archived blob.").write(w)
		return
	}
	asked := r.Header.Get("X-Ms-Range")
	if asked == "" {
		asked = r.Header.Get("Range")
	}
	from, to, ok := byteRange(asked, len(b.Content))
	if !ok {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", len(b.Content)))
		azureRefusal(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "The range specified is invalid for the current size of the resource.").write(w)
		return
	}
	c.send(w, b, from, to, asked != "")
}

func (c *AzblobContainer) send(w http.ResponseWriter, b *storedBlob, from, to int, partial bool) {
	h := w.Header()
	h.Set("ETag", `"`+b.etag+`"`)
	h.Set("Last-Modified", b.since.UTC().Format(http.TimeFormat))
	h.Set("Accept-Ranges", "bytes")
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.Itoa(to-from))
	h.Set("X-Ms-Blob-Type", "BlockBlob")
	if b.Encoding != "" {
		h.Set("Content-Encoding", b.Encoding)
	}
	status := http.StatusOK
	if partial {
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(b.Content)))
		status = http.StatusPartialContent
	}
	w.WriteHeader(status)
	w.Write([]byte(b.Content[from:to]))
}
