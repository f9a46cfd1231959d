package testenv

import (
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The phases of a conversation with an [S3] server.
const (
	ListObjects Phase = "list objects" // one page of a listing
	HeadObject  Phase = "head object"
	GetObject   Phase = "get object"
	AssumeRole  Phase = "assume role" // temporary keys
)

// S3Config says how [StartS3] serves. The zero value is a server without TLS in
// the region us-east-1, which everybody may read.
type S3Config struct {
	CA     *CA      // serve TLS with a certificate of this authority
	Names  []string // of the server, besides localhost and 127.0.0.1; buckets are served as BUCKET.NAME too
	Mutual bool     // and want client certificates of CA

	Region                     string        // "" is us-east-1
	AccessKey, SecretKey       string        // want signatures (AWS4-HMAC-SHA256), unless no keys of any sort are given
	SessionToken               string        // that goes with the keys
	Anonymous                  bool          // serve who comes without a signature nonetheless
	LDAPUsername, LDAPPassword string        // give temporary keys for them
	WebIdentityToken           string        // and for this
	Lifetime                   time.Duration // of temporary keys; 0 is an hour
	Uses                       int           // how many requests temporary keys are good for; 0: any number

	PageSize  int                          // keys on one page at most; 0 is 1000
	Arrange   func(keys []string) []string // what is listed in which order, of keys sorted as bytes; nil: those
	Multipart bool                         // ETags as those of objects that were uploaded in parts, HEX-3

	Defect *Defect
}

// An S3 is a running object store that speaks the protocol of S3: ListObjectsV2,
// GetObject and HeadObject, path style and virtual-host style, and AssumeRoleWithLDAPIdentity and AssumeRoleWithWebIdentity of its
// token service at [S3.Base]. Signatures are verified. It holds objects in memory.
//
// Of the misdeeds it knows all: [Loop] gives pages without keys and with one
// continuation token, [Endless] pages of new keys without end, and [Swell] a
// text, or a content, that does not end.
type S3 struct {
	desk
	clock

	config S3Config

	mu       sync.Mutex
	buckets  map[string]*S3Bucket
	sessions map[string]*session // by access key
	signed   []string            // signatures that came
}

// StartS3 runs an object store, without any bucket, until the test ends.
func StartS3(t testing.TB, c S3Config) *S3 {
	t.Helper()
	s := &S3{desk: desk{breaker: newBreaker(c.Defect)}, config: c, buckets: map[string]*S3Bucket{}, sessions: map[string]*session{}}
	if s.config.Region == "" {
		s.config.Region = "us-east-1"
	}
	names := slices.Clone(c.Names)
	for _, name := range c.Names {
		names = append(names, "*."+name)
	}
	s.listen(t, s.serve, secured(c.CA, c.Mutual, names), false)
	return s
}

func (s *S3) serve(w http.ResponseWriter, r *http.Request) {
	bucket, key := s.addressed(r)
	phase := s3Phase(r, bucket, key)
	body, err := bodyOf(w, r)
	if err != nil {
		return
	}
	w = s.note(w, r, phase, body)
	w.Header().Set("X-Amz-Request-Id", rand.Text())
	if phase != AssumeRole {
		if refusal := s.verify(r, body); refusal != nil {
			refusal.write(w, r)
			return
		}
	}
	next := func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, phase, bucket, key) }
	if phase == GetObject {
		w = &contentWriter{countingWriter: countingWriter{w, &s.bytes}}
	}
	s.respond(w, r, phase, next, s.misbehave)
}

// A contentWriter counts the bytes of answers that are no refusals.
type contentWriter struct {
	countingWriter
	refusal bool
}

func (w *contentWriter) WriteHeader(code int) {
	w.refusal = code >= http.StatusMultipleChoices
	w.countingWriter.WriteHeader(code)
}

func (w *contentWriter) Write(b []byte) (int, error) {
	if w.refusal {
		return w.ResponseWriter.Write(b)
	}
	return w.countingWriter.Write(b)
}

// addressed returns the bucket and the key of a request, "" for none.
func (s *S3) addressed(r *http.Request) (bucket, key string) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	host := r.Host
	if at := strings.LastIndexByte(host, ':'); at >= 0 {
		host = host[:at]
	}
	for _, name := range s.config.Names {
		if bucket, ok := strings.CutSuffix(host, "."+name); ok && !slices.Contains(s.config.Names, host) {
			return bucket, path
		}
	}
	bucket, key, _ = strings.Cut(path, "/")
	return bucket, key
}

func s3Phase(r *http.Request, bucket, key string) Phase {
	switch {
	case r.Method == http.MethodPost && bucket == "":
		return AssumeRole
	case key != "" && r.Method == http.MethodHead:
		return HeadObject
	case key != "":
		return GetObject
	}
	return ListObjects
}

// answer serves one request well.
func (s *S3) answer(w http.ResponseWriter, r *http.Request, phase Phase, bucket, key string) {
	if phase == AssumeRole {
		s.assumeRole(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		s3Refusal(http.StatusMethodNotAllowed, "MethodNotAllowed", "The specified method is not allowed against this resource.").write(w, r)
		return
	}
	s.mu.Lock()
	b := s.buckets[bucket]
	s.mu.Unlock()
	if b == nil {
		s3Refusal(http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist").write(w, r)
		return
	}
	if phase == ListObjects {
		b.list(w, r)
		return
	}
	b.give(w, r, key)
}
