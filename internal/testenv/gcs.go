package testenv

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// GCSConfig says how [StartGCS] serves. The zero value is a server without TLS
// that everybody may read.
type GCSConfig struct {
	CA     *CA      // serve TLS with a certificate of this authority
	Names  []string // of the server, besides localhost and 127.0.0.1
	Mutual bool     // and want client certificates of CA

	Account   string // give tokens for the key of the service account of this e-mail address, see [GCS.Key], and want one
	Token     string // want this token
	Anonymous bool   // serve who comes without a token nonetheless
	Uses      int    // how many requests a token that is given is good for; 0: any number

	PageSize int  // objects on one page at most; 0 is 1000
	Empty    bool // precede each page by an empty one, as may be

	Defect *Defect
}

// A GCS is a running object store that speaks the JSON API of Google Cloud
// Storage: objects.list and objects.get with alt=media, and gives tokens for
// keys of service accounts at [GCS.TokenURL]. It holds objects in memory.
//
// Of the misdeeds it knows all: [Loop] gives pages without objects and with one
// page token, [Endless] pages of new objects without end, and [Swell] a page
// that does not end. The phases are [ListObjects], [GetObject] and [GetToken].
type GCS struct {
	desk

	config GCSConfig

	mu      sync.Mutex
	buckets map[string]*GCSBucket
	tokens  map[string]int // how many requests each was good for
	proofs  []string       // that came
}

// StartGCS runs an object store, without any bucket, until the test ends.
func StartGCS(t testing.TB, c GCSConfig) *GCS {
	t.Helper()
	s := &GCS{desk: desk{breaker: newBreaker(c.Defect)}, config: c, buckets: map[string]*GCSBucket{}, tokens: map[string]int{}}
	s.listen(t, s.serve, secured(c.CA, c.Mutual, c.Names), true)
	return s
}

// Bucket returns the bucket of a name, a new one when there is none.
func (s *GCS) Bucket(name string) *GCSBucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.buckets[name]
	if b == nil {
		b = &GCSBucket{name: name, objects: map[string]gcsObject{}}
		s.buckets[name] = b
	}
	return b
}

func (s *GCS) serve(w http.ResponseWriter, r *http.Request) {
	bucket, key, phase := gcsPlace(r)
	w = s.note(w, r, phase, nil)
	if phase != GetToken {
		if refusal := s.verify(r); refusal != nil {
			refusal.write(w, r)
			return
		}
	}
	next := func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, phase, bucket, key) }
	s.respond(w, r, phase, next, s.misbehave)
}

const gcsAPI = "/storage/v1/b/"

// gcsPlace returns the bucket and the key of a request, "" for none. Both are
// one part of the path each, in which a slash is encoded.
func gcsPlace(r *http.Request) (bucket, key string, phase Phase) {
	if r.URL.Path == tokenPath {
		return "", "", GetToken
	}
	rest, _ := strings.CutPrefix(r.URL.EscapedPath(), gcsAPI)
	parts := strings.Split(rest, "/")
	for i := range parts {
		parts[i], _ = url.PathUnescape(parts[i])
	}
	switch {
	case len(parts) == 2 && parts[1] == "o":
		return parts[0], "", ListObjects
	case len(parts) == 3 && parts[1] == "o":
		return parts[0], parts[2], GetObject
	}
	return "", "", ListObjects
}

// answer serves one request well.
func (s *GCS) answer(w http.ResponseWriter, r *http.Request, phase Phase, bucket, key string) {
	if phase == GetToken {
		s.issue(w, r)
		return
	}
	s.mu.Lock()
	b := s.buckets[bucket]
	s.mu.Unlock()
	switch {
	case r.Method != http.MethodGet:
		gcsRefusal(http.StatusMethodNotAllowed, "methodNotAllowed", "Method not allowed.").write(w, r)
	case b == nil:
		gcsRefusal(http.StatusNotFound, "notFound", "The specified bucket does not exist.").write(w, r)
	case phase == ListObjects:
		s.list(w, r, b)
	default:
		b.give(&countingWriter{w, &s.bytes}, r, key)
	}
}

// list answers objects.list.
func (s *GCS) list(w http.ResponseWriter, r *http.Request, b *GCSBucket) {
	query := r.URL.Query()
	size, err := strconv.Atoi(query.Get("maxResults"))
	if err != nil || size < 1 || size > 1000 {
		size = 1000
	}
	if s.config.PageSize > 0 {
		size = min(size, s.config.PageSize)
	}
	after, ok := gcsToken(query.Get("pageToken"))
	if !ok {
		gcsRefusal(http.StatusBadRequest, "invalidArgument", "Invalid page token.").write(w, r)
		return
	}
	skip := s.config.Empty && !strings.HasPrefix(after, "\x01")
	after = strings.TrimPrefix(after, "\x01")
	var p gcsPage
	if skip {
		p.Next = gcsTokenOf("\x01" + after)
	} else {
		p.fill(b, query.Get("prefix"), after, size)
	}
	p.write(w, query.Get("fields"))
}

// A gcsPage is a page of a listing.
type gcsPage struct {
	Kind  string      `json:"kind,omitempty"`
	Next  string      `json:"nextPageToken,omitempty"`
	Items []gcsListed `json:"items,omitempty"`
}

type gcsListed struct {
	Name       string `json:"name"`
	ETag       string `json:"etag"`
	Size       string `json:"size"`
	Generation string `json:"generation"`

	Kind           string `json:"kind,omitempty"`
	Bucket         string `json:"bucket,omitempty"`
	Metageneration string `json:"metageneration,omitempty"`
	CRC32C         string `json:"crc32c,omitempty"`
	Encoding       string `json:"contentEncoding,omitempty"`
}

// fill takes the objects behind the key after, size of them at most.
func (p *gcsPage) fill(b *GCSBucket, prefix, after string, size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(b.objects)) {
		if !strings.HasPrefix(key, prefix) || key <= after {
			continue
		}
		if len(p.Items) == size {
			p.Next = gcsTokenOf(p.Items[size-1].Name)
			return
		}
		o := b.objects[key]
		p.Items = append(p.Items, gcsListed{Name: key, ETag: o.etag(), Size: strconv.Itoa(len(o.data)), Generation: strconv.FormatInt(o.generation, 10),
			Kind: "storage#object", Bucket: b.name, Metageneration: strconv.FormatInt(o.metageneration, 10), CRC32C: o.sum(), Encoding: o.encoding})
	}
}

// gcsFields is the one selection of fields that is known.
const gcsFields = "kind,nextPageToken,items(name,etag,size,generation)"

// write answers with p, or the fields of it that are asked for.
func (p *gcsPage) write(w http.ResponseWriter, fields string) {
	p.Kind = "storage#objects"
	if fields == gcsFields {
		for i := range p.Items {
			o := &p.Items[i]
			o.Kind, o.Bucket, o.Metageneration, o.CRC32C, o.Encoding = "", "", "", "", ""
		}
	}
	writeJSON(w, "application/json; charset=UTF-8", p)
}

// A gcsError is how the store refuses.
type gcsError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Errors  []gcsErrorCause `json:"errors"`
}

type gcsErrorCause struct {
	Message string `json:"message"`
	Domain  string `json:"domain"`
	Reason  string `json:"reason"`
}

func gcsRefusal(status int, reason, message string) *gcsError {
	return &gcsError{status, message, []gcsErrorCause{{message, "global", reason}}}
}

// write answers with e: as a text where content was asked for.
func (e *gcsError) write(w http.ResponseWriter, r *http.Request) {
	text, kind := []byte(e.Message), "text/plain; charset=UTF-8"
	if r.URL.Query().Get("alt") != "media" {
		text, _ = json.Marshal(map[string]any{"error": e})
		kind = "application/json; charset=UTF-8"
	}
	if e.Code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="https://accounts.google.com/"`)
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(e.Code)
	w.Write(text)
}
