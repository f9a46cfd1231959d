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

// The phases of requests to a [Store], besides [GetToken].
const (
	ListObjects   Phase = "list objects" // one page of a listing
	GetObject     Phase = "get object"
	AssumeRole    Phase = "assume role"    // issue temporary keys of S3
	FindAuthority Phase = "find authority" // OpenID Connect Discovery, Azure
)

// StoreConfig says how an object store serves. The zero value is a server
// without TLS that requires no credentials.
type StoreConfig struct {
	CA     *CA      // serve TLS with a certificate of this authority
	Names  []string // host names besides localhost and 127.0.0.1; S3 buckets are also served as BUCKET.NAME
	Mutual bool     // also require client certificates of CA

	Anonymous bool   // also serve clients without credentials
	Token     string // require this bearer token (GCS, Azure)

	PageSize int // maximum number of objects per page; 0 means 1000

	// S3
	Region                     string // "" means us-east-1
	AccessKey, SecretKey       string // require signatures (AWS4-HMAC-SHA256)
	SessionToken               string // session token of the keys
	LDAPUsername, LDAPPassword string // issue temporary keys for them
	WebIdentityToken           string // and for this

	// Google
	ServiceAccount string // require tokens, issued for the key of the service account with this e-mail address, see [Store.Key]
	Empty          bool   // send an empty page before each page, as the API allows

	// Azure
	Account        string // "" means acme
	Key            string // base64: require requests signed with it (SharedKey)
	SAS            string // require this query; its sp and se are enforced
	Tenant, Client string // require tokens, issued to this application
	Secret         string // for this secret,
	Certificate    []byte // or for the key of this certificate, PEM
	Hierarchical   bool   // list directories too

	Defect *Defect
}

// A Store is a running object store. It holds objects in memory, and verifies
// signatures and tokens. Its token service or authority is at [Store.Base].
//
// It supports all defects: [PageLoop] serves empty pages that all have the same page
// token, [EndlessList] serves pages of new objects without end, and [OversizedBody] serves a
// page or content that does not end.
type Store struct {
	fakeServer
	clock
	URL string // the endpoint

	config StoreConfig
	dialect

	mu      sync.Mutex
	buckets map[string]*StoreBucket
	issued  map[string]*credential // by access key or token
	proofs  []string               // received signatures and assertions
}

// A dialect implements the protocol of one vendor.
type dialect struct {
	route     func(s *Store, r *http.Request) (phase Phase, bucket, key string)
	verify    func(s *Store, r *http.Request, body []byte, phase Phase) *refusal // nil to serve the request
	serveAuth func(s *Store, w http.ResponseWriter, r *http.Request, phase Phase)
	page      func(s *Store, w http.ResponseWriter, r *http.Request, p storePage)
	header    func(h http.Header, o StoredObject)
	refuse    func(w http.ResponseWriter, r *http.Request, e *refusal)
	codes     map[int]string // error codes by status; -404 is for a missing bucket, if it differs
}

// A credential is a credential that was issued.
type credential struct {
	secret, token string
	expires       time.Time
}

// A refusal is an error answer of a store.
type refusal struct {
	status        int
	code, message string
	region        string // the right region (S3)
	detail        string // further text of the error
}

func (d dialect) start(t testing.TB, c StoreConfig, http2 bool) *Store {
	t.Helper()
	s := &Store{fakeServer: fakeServer{defectState: newDefectState(c.Defect)}, config: c, dialect: d, buckets: map[string]*StoreBucket{}, issued: map[string]*credential{}}
	s.defectHandler, s.fakeServer.refuse = s.serveDefect, func(w http.ResponseWriter, r *http.Request, status int, message string) {
		d.refuse(w, r, &refusal{status: status, code: "UnknownError", message: message})
	}
	names := slices.Clone(c.Names)
	for _, name := range c.Names {
		names = append(names, "*."+name)
	}
	s.listen(t, s.serve, tlsConfig(c.CA, c.Mutual, names), http2)
	s.URL = s.Base
	return s
}

func (s *Store) serve(w http.ResponseWriter, r *http.Request) {
	phase, bucket, key := s.route(s, r)
	body, err := bodyOf(w, r)
	if err != nil {
		return
	}
	w = s.record(w, r, phase, body, phase == GetObject)
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
			s.serveAuth(s, w, r, phase)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			s.dialect.refuse(w, r, &refusal{status: 405, code: "MethodNotAllowed", message: "The specified method is not allowed against this resource."})
		case b == nil:
			s.dialect.refuse(w, r, &refusal{status: 404, code: cmp.Or(s.codes[-404], s.codes[404]), message: "The specified bucket does not exist"})
		case phase == ListObjects:
			b.servePage(w, r)
		default:
			b.serveObject(w, r, key)
		}
	}
	s.respond(w, r, phase, well)
}

// issue returns a new credential that is valid for an hour. It stores it by id, or by
// its token if id is "".
func (s *Store) issue(id string) *credential {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &credential{token: rand.Text(), expires: s.now().Add(time.Hour)}
	if id != "" {
		k.secret = rand.Text()
	}
	s.issued[cmp.Or(id, k.token)] = k
	return k
}

// findCredential returns the credential issued as id, whether there is one, and whether it is
// still valid.
func (s *Store) findCredential(id string) (k *credential, known, valid bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k = s.issued[id]
	return k, k != nil, k != nil && s.now().Before(k.expires)
}

// recordProof records a signature or assertion, which clients must not disclose, for [Store.Issued].
func (s *Store) recordProof(proof string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proofs = append(s.proofs, proof)
}

// Expire makes all credentials that were issued so far expire.
func (s *Store) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, k := range s.issued {
		s.issued[id] = &credential{secret: k.secret, token: k.token}
	}
}

// Issued returns everything that clients must not disclose: the secrets and tokens
// issued so far, and the signatures and assertions received so far.
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

	mu         sync.Mutex
	objects    map[string]StoredObject
	listed     []string // sorted keys of the listing, nil if they have to be computed
	generation int64    // last generation
}

// A StoredObject is an object of a [StoreBucket].
type StoredObject struct {
	Content  string
	Encoding string            // Content-Encoding
	Tier     string            // "" means Hot
	Metadata map[string]string // by name

	etag                 string // without quotes
	generation, revision int64
	modified             time.Time
}

// Bucket returns the bucket with a name. It creates the bucket if there is none.
func (s *Store) Bucket(name string) *StoreBucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.buckets[name]
	if b == nil {
		b = &StoreBucket{store: s, name: name, objects: map[string]StoredObject{}, generation: 1_790_000_000_000_000}
		s.buckets[name] = b
	}
	return b
}

// Put stores an object, and returns its ETag without quotes.
func (b *StoreBucket) Put(key, content string) (etag string) {
	return b.PutObject(key, StoredObject{Content: content})
}

// PutObject is [StoreBucket.Put] for an object with properties.
func (b *StoreBucket) PutObject(key string, o StoredObject) (etag string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.put(key, o)
}

func (b *StoreBucket) put(key string, o StoredObject) string {
	b.generation++
	sum := md5.Sum([]byte(o.Content))
	o.generation, o.revision, o.modified, o.etag = b.generation, 1, time.Now(), hex.EncodeToString(sum[:])
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

// Replace makes contents, by key, the whole content of the bucket in one step. It does not touch
// objects whose content stays the same.
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

// Contents returns the content of all objects of the bucket, by key.
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

// servePage answers a request for a page.
func (b *StoreBucket) servePage(w http.ResponseWriter, r *http.Request) {
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

// fill adds the objects that follow the key after to a page.
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

// names returns the keys of the listing in order, including directories if the store lists them.
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

// serveObject answers a request for an object.
func (b *StoreBucket) serveObject(w http.ResponseWriter, r *http.Request, key string) {
	b.mu.Lock()
	o, ok := b.objects[key]
	b.mu.Unlock()
	s, h := b.store, http.Header{}
	s.header(h, o)
	refuse := func(status int, message string) {
		s.dialect.refuse(w, r, &refusal{status: status, code: s.codes[status], message: message})
	}
	match, generation := r.Header.Get("If-Match"), r.URL.Query().Get("ifGenerationMatch")
	rangeHeader := cmp.Or(r.Header.Get("X-Ms-Range"), r.Header.Get("Range"))
	from, to, inside := byteRange(rangeHeader, len(o.Content))
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
			fmt.Fprint(w, "decompressed") // stands for the decompressed content
			return
		}
		w.Header().Set("Content-Encoding", o.Encoding)
	}
	w.Header().Set("Content-Length", strconv.Itoa(to-from))
	status := http.StatusOK
	if rangeHeader != "" {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(o.Content)))
		status = http.StatusPartialContent
	}
	w.WriteHeader(status)
	w.Write([]byte(o.Content[from:to]))
}

// byteRange returns the part of size bytes that a header bytes=N- asks for, or all
// of them without such a header. ok is false if the part would be empty.
func byteRange(header string, size int) (from, to int, ok bool) {
	text, ok := strings.CutPrefix(header, "bytes=")
	if !ok {
		return 0, size, true
	}
	from, _ = strconv.Atoi(strings.TrimSuffix(text, "-"))
	return from, size, from < size
}

// failure returns a defect that answers with an error in the format of the store.
func (d dialect) failure(status int, code, message string) *Defect {
	rec := httptest.NewRecorder()
	d.refuse(rec, httptest.NewRequest(http.MethodGet, "/", nil), &refusal{status: status, code: code, message: message})
	rec.Header().Del("Content-Length")
	return &Defect{Do: Answer, Status: status, Header: rec.Header(), Body: rec.Body.String()}
}

// IgnoreHeaders returns a defect that makes a server ignore these request headers.
func IgnoreHeaders(headers ...string) *Defect {
	return &Defect{Do: Serve, Handler: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		for _, name := range headers {
			r.Header.Del(name)
		}
		next.ServeHTTP(w, r)
	}}
}

// SetHeader returns a defect that sets a header of answers, or removes it if value is "".
func SetHeader(header, value string) *Defect {
	return &Defect{Do: Serve, Handler: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		rec := recordAnswer(next, r)
		maps.Copy(w.Header(), rec.Header())
		if w.Header().Set(header, value); value == "" {
			w.Header().Del(header)
		}
		w.WriteHeader(rec.Code)
		http.NewResponseController(w).Flush()
		w.Write(rec.Body.Bytes())
	}}
}

// serveDefect serves the defects [PageLoop], [EndlessList] and [OversizedBody]. Swell adds to the
// document before its end, so that the document is never complete.
func (s *Store) serveDefect(w http.ResponseWriter, r *http.Request, d Defect, next http.Handler) {
	if d.Do == OversizedBody {
		rec := recordAnswer(next, r)
		text, kind := rec.Body.Bytes(), rec.Header().Get("Content-Type")
		if end := bytes.LastIndex(text, []byte("</")); end >= 0 && strings.HasSuffix(kind, "xml") {
			text = text[:end]
		} else if strings.Contains(kind, "json") {
			text = []byte(`{"items":[{"name":"`)
		}
		d.writeOversized(w, rec, text)
		return
	}
	p := storePage{bucket: "app", prefix: r.URL.Query().Get("prefix"), size: 1000, next: "again"}
	if d.Do == EndlessList {
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

// writeJSON answers with body as JSON. It sets Content-Type to application/json unless it is set.
func writeJSON(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err) // callers pass only values that can be encoded
	}
	w.Header().Set("Content-Type", cmp.Or(w.Header().Get("Content-Type"), "application/json"))
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	w.Write(text)
}
