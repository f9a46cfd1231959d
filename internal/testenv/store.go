package testenv

import (
	"bytes"
	"cmp"
	"crypto/md5"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The phases of a conversation with a [Store], beside [GetToken].
const (
	ListObjects   Phase = "list objects" // one page of a listing
	GetObject     Phase = "get object"
	AssumeRole    Phase = "assume role"    // temporary keys of S3
	FindAuthority Phase = "find authority" // OpenID Connect Discovery, Azure
)

// StoreConfig says how an object store serves. The zero value is a server
// without TLS that everybody may read.
type StoreConfig struct {
	CA     *CA      // serve TLS with a certificate of this authority
	Names  []string // of the server, besides localhost and 127.0.0.1; buckets of S3 are served as BUCKET.NAME too
	Mutual bool     // and want client certificates of CA

	Anonymous bool   // serve clients without credentials, although some are wanted
	Token     string // want this bearer token (GCS, Azure)

	PageSize int // objects on one page at most; 0 is 1000

	// S3
	Region                     string // "" is us-east-1
	AccessKey, SecretKey       string // want signatures (AWS4-HMAC-SHA256)
	SessionToken               string // that goes with the keys
	LDAPUsername, LDAPPassword string // give temporary keys for them
	WebIdentityToken           string // and for this

	// Google
	ServiceAccount string // give tokens for the key of the service account of this e-mail address, see [Store.Key], and want one
	Empty          bool   // precede each page by an empty one, as may be

	// Azure
	Account        string // "" is acme
	Key            string // base64: want requests that are signed with it (SharedKey)
	SAS            string // want requests with this query; its sp and se are obeyed
	Tenant, Client string // issue tokens, which are wanted then, to an application
	Secret         string // with this secret,
	Certificate    []byte // or with the key of this certificate, PEM
	Hierarchical   bool   // list directories

	Defect *Defect
}

// A Store is a running object store. It holds objects in memory, and verifies
// signatures and tokens. Its token service or authority is at [Store.Base].
//
// Of the defects it knows all: [Loop] gives pages without objects and with one
// page token, [Endless] pages of new objects without end, and [Swell] a page,
// or a content, that does not end.
type Store struct {
	fakeServer
	clock
	URL string // the endpoint

	config StoreConfig
	dialect

	mu      sync.Mutex
	buckets map[string]*StoreBucket
	issued  map[string]*session // by access key, or token
	proofs  []string            // signatures and assertions that came
}

// A dialect is what the stores of one maker do by themselves.
type dialect struct {
	route  func(s *Store, r *http.Request) (phase Phase, bucket, key string)
	verify func(s *Store, r *http.Request, body []byte, phase Phase) *refusal // nil when the request is served
	other  func(s *Store, w http.ResponseWriter, r *http.Request, phase Phase)
	page   func(s *Store, w http.ResponseWriter, r *http.Request, p storePage)
	header func(h http.Header, o StoredObject)
	refuse func(w http.ResponseWriter, r *http.Request, e *refusal)
	codes  map[int]string // what refusals of objects and pages are called, by status
}

// A session is a credential that was issued.
type session struct {
	secret, token string
	expires       time.Time
}

// A refusal is how a store refuses.
type refusal struct {
	status        int
	code, message string
	region        string // of S3
	detail        string // more, for error texts
}

func (d dialect) start(t testing.TB, c StoreConfig, http2 bool) *Store {
	t.Helper()
	s := &Store{fakeServer: fakeServer{defectState: newDefectState(c.Defect)}, config: c, dialect: d, buckets: map[string]*StoreBucket{}, issued: map[string]*session{}}
	s.odd, s.fakeServer.refuse = s.misbehave, func(w http.ResponseWriter, r *http.Request, status int, message string) {
		d.refuse(w, r, &refusal{status: status, code: "UnknownError", message: message})
	}
	names := slices.Clone(c.Names)
	for _, name := range c.Names {
		names = append(names, "*."+name)
	}
	s.listen(t, s.serve, secured(c.CA, c.Mutual, names), http2)
	s.URL = s.Base
	return s
}

func (s *Store) serve(w http.ResponseWriter, r *http.Request) {
	phase, bucket, key := s.route(s, r)
	body, err := bodyOf(w, r)
	if err != nil {
		return
	}
	w = s.note(w, r, phase, body, phase == GetObject)
	w.Header().Set("X-Amz-Request-Id", rand.Text())
	w.Header().Set("Date", s.now().UTC().Format(http.TimeFormat))
	data := phase == ListObjects || phase == GetObject
	if data {
		if e := s.verify(s, r, body, phase); e != nil {
			s.dialect.refuse(w, r, e)
			return
		}
	}
	well := func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		b := s.buckets[bucket]
		s.mu.Unlock()
		switch {
		case !data:
			s.other(s, w, r, phase)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			s.dialect.refuse(w, r, &refusal{status: 405, code: "MethodNotAllowed", message: "The specified method is not allowed against this resource."})
		case b == nil:
			s.dialect.refuse(w, r, &refusal{status: 404, code: cmp.Or(s.codes[-404], s.codes[404]), message: "The specified bucket does not exist"})
		case phase == ListObjects:
			b.list(w, r)
		default:
			b.give(w, r, key)
		}
	}
	s.respond(w, r, phase, well)
}

// issue returns a new credential, by its id.
func (s *Store) issue(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &session{token: rand.Text(), expires: s.now().Add(time.Hour)}
	if id != "" {
		k.secret = rand.Text()
	}
	s.issued[cmp.Or(id, k.token)] = k
	return k
}

// use reports whether what was issued as id is good.
func (s *Store) use(id string) (k *session, known, good bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k = s.issued[id]
	return k, k != nil, k != nil && s.now().Before(k.expires)
}

// proved notes what no client may show.
func (s *Store) proved(proof string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proofs = append(s.proofs, proof)
}

// Expire ends all that was issued so far.
func (s *Store) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, k := range s.issued {
		s.issued[id] = &session{secret: k.secret, token: k.token}
	}
}

// Issued returns what no client may show: secrets and tokens that were issued
// so far, and the signatures and assertions that came.
func (s *Store) Issued() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone(s.proofs)
	for _, k := range s.issued {
		if all = append(all, k.token); k.secret != "" {
			all = append(all, k.secret)
		}
	}
	return all
}

// A StoreBucket is a bucket of a [Store]. It may be changed at any time.
type StoreBucket struct {
	store *Store
	name  string

	mu      sync.Mutex
	objects map[string]StoredObject
	listed  []string // keys as they are listed, nil when that is to be found out
	last    int64    // generation
}

// A StoredObject is an object of a [StoreBucket].
type StoredObject struct {
	Content  string
	Encoding string            // Content-Encoding
	Tier     string            // "" is Hot
	Metadata map[string]string // by name

	etag                 string // without quotes
	generation, revision int64
	since                time.Time
}

// Bucket returns the bucket of a name, a new one when there is none.
func (s *Store) Bucket(name string) *StoreBucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.buckets[name]
	if b == nil {
		b = &StoreBucket{store: s, name: name, objects: map[string]StoredObject{}, last: 1_790_000_000_000_000}
		s.buckets[name] = b
	}
	return b
}

// Put stores an object, and returns its ETag without quotes.
func (b *StoreBucket) Put(key, content string) (etag string) {
	return b.PutObject(key, StoredObject{Content: content})
}

// PutObject is Put of an object with properties.
func (b *StoreBucket) PutObject(key string, o StoredObject) (etag string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.put(key, o)
}

func (b *StoreBucket) put(key string, o StoredObject) string {
	b.last++
	sum := md5.Sum([]byte(o.Content))
	o.generation, o.revision, o.since, o.etag = b.last, 1, time.Now(), hex.EncodeToString(sum[:])
	b.objects[key], b.listed = o, nil
	return o.etag
}

// Touch changes the metadata of an object.
func (b *StoreBucket) Touch(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.objects[key]
	o.revision++
	b.objects[key] = o
}

// Remove removes objects.
func (b *StoreBucket) Remove(keys ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range keys {
		delete(b.objects, key)
	}
	b.listed = nil
}

// Replace makes contents, by key, all that the bucket holds, at once. What is the same stays as it is.
func (b *StoreBucket) Replace(contents map[string]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.objects, func(key string, _ StoredObject) bool { _, stays := contents[key]; return !stays })
	for key, content := range contents {
		if o, is := b.objects[key]; !is || o.Content != content {
			b.put(key, StoredObject{Content: content})
		}
	}
	b.listed = nil
}

// Contents returns what the bucket holds, by key.
func (b *StoreBucket) Contents() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[string]string, len(b.objects))
	for key, o := range b.objects {
		all[key] = o.Content
	}
	return all
}

// A storePage is a page of a listing.
type storePage struct {
	bucket, prefix, token, next string
	size                        int
	names                       []string
	objects                     []StoredObject
}

// list answers a request for a page.
func (b *StoreBucket) list(w http.ResponseWriter, r *http.Request) {
	query, c := r.URL.Query(), &b.store.config
	p := storePage{bucket: b.name, prefix: query.Get("prefix"), size: 1000, token: cmp.Or(query.Get("continuation-token"), query.Get("pageToken"), query.Get("marker"))}
	for _, text := range []string{query.Get("max-keys"), query.Get("maxResults"), query.Get("maxresults"), strconv.Itoa(c.PageSize)} {
		if n, err := strconv.Atoi(text); err == nil && n > 0 {
			p.size = min(n, p.size)
		}
	}
	after, err := base64.RawURLEncoding.DecodeString(p.token)
	if err != nil {
		b.store.dialect.refuse(w, r, &refusal{status: 400, code: "InvalidArgument", message: "The continuation token provided is incorrect"})
		return
	}
	b.mu.Lock()
	if c.Empty && !bytes.HasPrefix(after, []byte{1}) {
		p.next = pageToken("\x01" + string(after))
	} else {
		b.fill(&p, strings.TrimPrefix(string(after), "\x01"))
	}
	b.mu.Unlock()
	b.store.page(b.store, w, r, p)
}

func pageToken(after string) string { return base64.RawURLEncoding.EncodeToString([]byte(after)) }

// fill puts the objects behind the key after on a page.
func (b *StoreBucket) fill(p *storePage, after string) {
	if b.listed == nil {
		b.listed = b.names()
	}
	at, found := slices.BinarySearch(b.listed, max(after, p.prefix))
	if found && b.listed[at] == after {
		at++
	}
	for ; at < len(b.listed) && strings.HasPrefix(b.listed[at], p.prefix); at++ {
		name := b.listed[at]
		if len(p.names) == p.size {
			p.next = pageToken(p.names[p.size-1])
			return
		}
		p.names, p.objects = append(p.names, name), append(p.objects, b.objects[name])
	}
}

// names returns what is listed, in order; directories come with their names.
func (b *StoreBucket) names() []string {
	names := map[string]bool{}
	for name := range b.objects {
		names[name] = true
		for at := strings.LastIndexByte(name, '/'); b.store.config.Hierarchical && at > 0; at = strings.LastIndexByte(name, '/') {
			name = name[:at]
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// give answers a request for an object.
func (b *StoreBucket) give(w http.ResponseWriter, r *http.Request, key string) {
	b.mu.Lock()
	o, ok := b.objects[key]
	b.mu.Unlock()
	s, h := b.store, http.Header{}
	s.header(h, o)
	refuse := func(status int, message string) {
		s.dialect.refuse(w, r, &refusal{status: status, code: s.codes[status], message: message})
	}
	match, generation := r.Header.Get("If-Match"), r.URL.Query().Get("ifGenerationMatch")
	asked := cmp.Or(r.Header.Get("X-Ms-Range"), r.Header.Get("Range"))
	from, to, inside := byteRange(asked, len(o.Content))
	switch {
	case !ok:
		refuse(404, "The specified key does not exist.")
		return
	case match != "" && strings.Trim(match, `"`) != strings.Trim(h.Get("ETag"), `"`), generation != "" && generation != h.Get("X-Goog-Generation"):
		refuse(412, "At least one of the pre-conditions you specified did not hold")
		return
	case o.Tier == "Archive":
		refuse(409, "This operation is not permitted on an archived blob.")
		return
	case !inside:
		w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", len(o.Content)))
		refuse(416, "The requested range is not satisfiable")
		return
	}
	maps.Copy(w.Header(), h)
	if o.Encoding != "" {
		if h.Get("X-Goog-Generation") != "" && !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			fmt.Fprint(w, "decompressed") // whatever is stored
			return
		}
		w.Header().Set("Content-Encoding", o.Encoding)
	}
	w.Header().Set("Content-Length", strconv.Itoa(to-from))
	status := http.StatusOK
	if asked != "" {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(o.Content)))
		status = http.StatusPartialContent
	}
	w.WriteHeader(status)
	w.Write([]byte(o.Content[from:to]))
}

// byteRange returns the part of size bytes that a header bytes=N- asks for, all
// without one; not ok when there are no such bytes.
func byteRange(header string, size int) (from, to int, ok bool) {
	text, ok := strings.CutPrefix(header, "bytes=")
	if !ok {
		return 0, size, true
	}
	from, _ = strconv.Atoi(strings.TrimSuffix(text, "-"))
	return from, size, from < size
}

// Failure returns a defect that answers as the store refuses.
func (d dialect) failure(status int, code, message string) *Defect {
	rec := httptest.NewRecorder()
	d.refuse(rec, httptest.NewRequest(http.MethodGet, "/", nil), &refusal{status: status, code: code, message: message})
	rec.Header().Del("Content-Length")
	return &Defect{Do: Answer, Status: status, Header: rec.Header(), Body: rec.Body.String()}
}

// Without returns a defect by which a server ignores headers of requests.
func Without(headers ...string) *Defect {
	return &Defect{Do: Serve, Handler: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		for _, name := range headers {
			r.Header.Del(name)
		}
		next.ServeHTTP(w, r)
	}}
}

// With returns a defect by which a header of answers has another value, or none when that is "".
func With(header, value string) *Defect {
	return &Defect{Do: Serve, Handler: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		rec := recorded(next, r)
		maps.Copy(w.Header(), rec.Header())
		if w.Header().Set(header, value); value == "" {
			w.Header().Del(header)
		}
		w.WriteHeader(rec.Code)
		http.NewResponseController(w).Flush()
		w.Write(rec.Body.Bytes())
	}}
}

// misbehave answers with pages without end, or with more than is right; what is added to a page is before its end.
func (s *Store) misbehave(w http.ResponseWriter, r *http.Request, d Defect, next http.Handler) {
	if d.Do == Swell {
		rec := recorded(next, r)
		text, kind := rec.Body.Bytes(), rec.Header().Get("Content-Type")
		if end := bytes.LastIndex(text, []byte("</")); end >= 0 && strings.HasSuffix(kind, "xml") {
			text = text[:end]
		} else if strings.Contains(kind, "json") {
			text = []byte(`{"items":[{"name":"`)
		}
		d.swell(w, rec, text)
		return
	}
	p := storePage{bucket: "app", prefix: r.URL.Query().Get("prefix"), size: 1000, next: "again"}
	if d.Do == Endless {
		p.next = rand.Text()
		p.names, p.objects = []string{p.prefix + p.next + "-0", p.prefix + p.next + "-1"}, []StoredObject{{etag: "0", generation: 1}, {etag: "0", generation: 1}}
	}
	s.page(s, w, r, p)
}

func writeXML(w http.ResponseWriter, status int, v any) {
	text, err := xml.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("Content-Length", strconv.Itoa(len(xml.Header)+len(text)))
	w.WriteHeader(status)
	w.Write(append([]byte(xml.Header), text...))
}

// writeJSON answers with a document, of type application/json unless the header says so already.
func writeJSON(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // of things that can be written
	}
	w.Header().Set("Content-Type", cmp.Or(w.Header().Get("Content-Type"), "application/json"))
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	w.Write(text)
}
