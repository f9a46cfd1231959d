package testenv

import (
	"bytes"
	"crypto/rand"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The phases of a conversation with an [Azblob] server are [ListObjects],
// [GetObject], [GetToken] and this.
const FindAuthority Phase = "find authority" // OpenID Connect Discovery

// AzblobConfig says how [StartAzblob] serves. The zero value is an account
// without TLS, which everybody may read.
type AzblobConfig struct {
	CA     *CA      // serve TLS with a certificate of this authority
	Names  []string // of the server, besides localhost and 127.0.0.1
	Mutual bool     // and want client certificates of CA

	Account   string   // "" is acme
	Key       string   // base64: want requests that are signed with it (SharedKey)
	SAS       string   // want requests with this query; its sp and se are obeyed
	Bearer    []string // want one of these tokens
	Anonymous bool     // serve who comes without any of them nonetheless

	Tenant, Client string        // issue tokens, which are wanted then, to an application
	Secret         string        // with this secret,
	Certificate    []byte        // or with the key of this certificate, PEM
	Lifetime       time.Duration // of tokens; 0 is an hour
	Uses           int           // how many requests a token is good for; 0: any number

	PageSize     int  // blobs on one page at most; 0 is 5000
	Hierarchical bool // list directories

	Defect *Defect
}

// An Azblob is a running storage account that speaks the protocol of Azure Blob
// Storage, List Blobs and Get Blob, and the authority that issues tokens for it.
// Signatures are verified. It holds blobs in memory.
//
// Of the misdeeds it knows all: [Loop] gives pages without blobs and with one
// marker, [Endless] pages of new blobs without end, and [Swell] a text, or a
// content, that does not end.
type Azblob struct {
	*breaker
	Host string // 127.0.0.1:PORT
	Base string // http://HOST or https://HOST: the authority
	URL  string // BASE/ACCOUNT: the endpoint

	config AzblobConfig
	bytes  atomic.Int64

	mu         sync.Mutex
	containers map[string]*AzblobContainer
	tokens     map[string]*session
	requests   []Request
	shift      time.Duration
}

// StartAzblob runs a storage account, without any container, until the test ends.
func StartAzblob(t testing.TB, c AzblobConfig) *Azblob {
	t.Helper()
	s := &Azblob{breaker: newBreaker(c.Defect), config: c, containers: map[string]*AzblobContainer{}, tokens: map[string]*session{}}
	if s.config.Account == "" {
		s.config.Account = "acme"
	}
	for _, token := range c.Bearer {
		s.tokens[token] = &session{token: token, uses: -1}
	}
	h := httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	h.Config.ErrorLog = quiet
	if c.CA != nil {
		h.TLS = c.CA.ServerConfig(c.Mutual, c.Names...)
		h.StartTLS()
	} else {
		h.Start()
	}
	s.Host, s.Base = h.Listener.Addr().String(), h.URL
	s.URL = s.Base + "/" + s.config.Account
	t.Cleanup(func() {
		close(s.done)
		h.CloseClientConnections()
		h.Close()
	})
	return s
}

// Requests returns what was asked so far, refused requests included. Bodies are
// recorded of requests for tokens only.
func (s *Azblob) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Count returns how many requests of the phases there were so far, refused ones
// included; without phases, of all.
func (s *Azblob) Count(phases ...Phase) (n int) {
	for _, q := range s.Requests() {
		if len(phases) == 0 || slices.Contains(phases, q.Phase) {
			n++
		}
	}
	return n
}

// ContentBytes returns how many bytes of blobs were served so far.
func (s *Azblob) ContentBytes() int64 { return s.bytes.Load() }

// Reset forgets requests and bytes.
func (s *Azblob) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
	s.bytes.Store(0)
}

// Shift sets the clock of the server ahead of that of the machine.
func (s *Azblob) Shift(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shift = d
}

func (s *Azblob) now() time.Time { return time.Now().Add(s.shift) }

func (s *Azblob) serve(w http.ResponseWriter, r *http.Request) {
	phase, container, blob := s.addressed(r)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.mu.Lock()
	s.requests = append(s.requests, newRequest(r, phase, body))
	s.mu.Unlock()
	w.Header().Set("X-Ms-Request-Id", rand.Text())
	if phase == ListObjects || phase == GetObject {
		w.Header().Set("X-Ms-Version", r.Header.Get("X-Ms-Version"))
		if refusal := s.verify(r, phase); refusal != nil {
			refusal.write(w)
			return
		}
	}
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, phase, container, blob) })
	if phase == GetObject {
		w = &countingWriter{w, &s.bytes}
	}
	if d := s.met(phase); d != nil {
		s.misbehave(w, r, *d, next)
		return
	}
	next(w, r)
}

// addressed returns what a request is for, and the container and blob that it names.
func (s *Azblob) addressed(r *http.Request) (phase Phase, container, blob string) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case first == s.config.Account:
	case strings.HasSuffix(r.URL.Path, "/token"):
		return GetToken, "", ""
	case first == s.config.Tenant || first == "common":
		return FindAuthority, "", ""
	default: // the account is in the name of the host
		rest = strings.TrimPrefix(r.URL.Path, "/")
	}
	container, blob, _ = strings.Cut(rest, "/")
	if blob != "" {
		return GetObject, container, blob
	}
	return ListObjects, container, ""
}

// answer serves one request well.
func (s *Azblob) answer(w http.ResponseWriter, r *http.Request, phase Phase, container, blob string) {
	switch phase {
	case GetToken:
		s.issue(w, r)
		return
	case FindAuthority:
		s.describe(w)
		return
	}
	s.mu.Lock()
	c := s.containers[container]
	s.mu.Unlock()
	switch {
	case r.Method != http.MethodGet:
		azureRefusal(http.StatusMethodNotAllowed, "UnsupportedHttpVerb", "The resource doesn't support specified Http Verb.").write(w)
	case c == nil:
		azureRefusal(http.StatusNotFound, "ContainerNotFound", "The specified container does not exist.").write(w)
	case phase == ListObjects:
		c.list(w, r)
	default:
		c.give(w, r, blob)
	}
}

// An azureError is how Azure Storage refuses.
type azureError struct {
	XMLName xml.Name `xml:"Error"`
	status  int
	Code    string
	Message string
	Detail  string `xml:"AuthenticationErrorDetail,omitempty"`
}

func azureRefusal(status int, code, message string) *azureError {
	return &azureError{status: status, Code: code, Message: message}
}

func (e azureError) write(w http.ResponseWriter) {
	e.Message += fmt.Sprintf("\nRequestId:%s\nTime:%s", w.Header().Get("X-Ms-Request-Id"), time.Now().UTC().Format(time.RFC3339Nano))
	w.Header().Set("X-Ms-Error-Code", e.Code)
	writeXML(w, e.status, e)
}
