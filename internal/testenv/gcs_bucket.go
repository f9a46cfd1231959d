package testenv

import (
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// A GCSBucket is a bucket of a [GCS] server. It may be changed at any time.
type GCSBucket struct {
	name string

	mu      sync.Mutex
	objects map[string]gcsObject
	last    int64 // generation
}

type gcsObject struct {
	data                       []byte
	encoding                   string
	generation, metageneration int64
}

// Put stores an object, and returns its generation.
func (b *GCSBucket) Put(key, content string) (generation int64) { return b.put(key, content, "") }

// PutGzip stores content compressed, as an object with the content encoding
// gzip, and returns what it stored.
func (b *GCSBucket) PutGzip(key, content string) (stored string) {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	io.WriteString(z, content)
	z.Close()
	b.put(key, buf.String(), "gzip")
	return buf.String()
}

func (b *GCSBucket) put(key, content, encoding string) (generation int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.store(key, content, encoding)
}

func (b *GCSBucket) store(key, content, encoding string) (generation int64) {
	b.last = max(b.last+1, 1_790_000_000_000_001)
	b.objects[key] = gcsObject{[]byte(content), encoding, b.last, 1}
	return b.last
}

// Touch changes the metadata of an object.
func (b *GCSBucket) Touch(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.objects[key]
	o.metageneration++
	b.objects[key] = o
}

// Remove removes objects.
func (b *GCSBucket) Remove(keys ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range keys {
		delete(b.objects, key)
	}
}

// Replace makes contents, by key, all that the bucket holds, at once. Objects
// that it holds already stay as they are.
func (b *GCSBucket) Replace(contents map[string]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.objects {
		if _, stays := contents[key]; !stays {
			delete(b.objects, key)
		}
	}
	for key, content := range contents {
		if o, is := b.objects[key]; !is || string(o.data) != content {
			b.store(key, content, "")
		}
	}
}

// etag is made of both generations, as fields 1 and 2 of a protocol buffer.
func (o gcsObject) etag() string {
	tag := binary.AppendUvarint([]byte{0x08}, uint64(o.generation))
	tag = binary.AppendUvarint(append(tag, 0x10), uint64(o.metageneration))
	return base64.StdEncoding.EncodeToString(tag)
}

// sum returns the CRC-32C of what is stored.
func (o gcsObject) sum() string {
	sum := crc32.Checksum(o.data, crc32.MakeTable(crc32.Castagnoli))
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

// give answers objects.get.
func (b *GCSBucket) give(w http.ResponseWriter, r *http.Request, key string) {
	query := r.URL.Query()
	b.mu.Lock()
	o, ok := b.objects[key]
	b.mu.Unlock()
	asks := func(name string) bool {
		return query.Has(name) && query.Get(name) != strconv.FormatInt(o.generation, 10)
	}
	switch {
	case !ok, asks("generation"):
		gcsRefusal(http.StatusNotFound, "notFound", "No such object: "+b.name+"/"+key).write(w, r)
		return
	case asks("ifGenerationMatch"):
		gcsRefusal(http.StatusPreconditionFailed, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.").write(w, r)
		return
	case query.Get("alt") != "media":
		writeJSON(w, "application/json; charset=UTF-8", gcsListed{Name: key, ETag: o.etag(), Size: strconv.Itoa(len(o.data)), Generation: strconv.FormatInt(o.generation, 10)})
		return
	}
	o.send(w, r)
}

// send answers with the content of o. A client that does not say that it takes
// gzip gets it decompressed, and all of it.
func (o gcsObject) send(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	sum := md5.Sum(o.data)
	h.Set("ETag", o.etag())
	h.Set("Content-Type", "application/octet-stream")
	h.Set("X-Goog-Generation", strconv.FormatInt(o.generation, 10))
	h.Set("X-Goog-Metageneration", strconv.FormatInt(o.metageneration, 10))
	h.Set("X-Goog-Hash", "crc32c="+o.sum()+",md5="+base64.StdEncoding.EncodeToString(sum[:]))
	h.Set("X-Goog-Stored-Content-Encoding", "identity")
	h.Set("X-Goog-Stored-Content-Length", strconv.Itoa(len(o.data)))
	if o.encoding != "" {
		h.Set("X-Goog-Stored-Content-Encoding", o.encoding)
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.WriteHeader(http.StatusOK)
			z, _ := gzip.NewReader(bytes.NewReader(o.data))
			io.Copy(w, z)
			return
		}
		h.Set("Content-Encoding", o.encoding)
	}
	from, to, ok := byteRange(r.Header.Get("Range"), len(o.data))
	if !ok {
		h.Set("Content-Range", fmt.Sprintf("bytes */%d", len(o.data)))
		gcsRefusal(http.StatusRequestedRangeNotSatisfiable, "requestedRangeNotSatisfiable", "Request range not satisfiable").write(w, r)
		return
	}
	status := http.StatusOK
	if r.Header.Get("Range") != "" {
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(o.data)))
		status = http.StatusPartialContent
	}
	h.Set("Content-Length", strconv.Itoa(to-from))
	w.WriteHeader(status)
	w.Write(o.data[from:to])
}
