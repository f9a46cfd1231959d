package testenv

import (
	"crypto/rand"
	"encoding/xml"
	"fmt"
	"net/http"
	"strings"
	"sync"
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
	desk
	clock
	URL string // BASE/ACCOUNT: the endpoint

	config AzblobConfig

	mu         sync.Mutex
	containers map[string]*AzblobContainer
	tokens     map[string]*session
}

// StartAzblob runs a storage account, without any container, until the test ends.
func StartAzblob(t testing.TB, c AzblobConfig) *Azblob {
	t.Helper()
	s := &Azblob{desk: desk{breaker: newBreaker(c.Defect)}, config: c, containers: map[string]*AzblobContainer{}, tokens: map[string]*session{}}
	if s.config.Account == "" {
		s.config.Account = "acme"
	}
	for _, token := range c.Bearer {
		s.tokens[token] = &session{token: token, uses: -1}
	}
	s.listen(t, s.serve, secured(c.CA, c.Mutual, c.Names), false)
	s.URL = s.Base + "/" + s.config.Account
	return s
}

func (s *Azblob) serve(w http.ResponseWriter, r *http.Request) {
	phase, container, blob := s.addressed(r)
	body, err := bodyOf(w, r)
	if err != nil {
		return
	}
	w = s.note(w, r, phase, body)
	w.Header().Set("X-Ms-Request-Id", rand.Text())
	w.Header().Set("Date", s.now().UTC().Format(http.TimeFormat))
	if phase == ListObjects || phase == GetObject {
		w.Header().Set("X-Ms-Version", r.Header.Get("X-Ms-Version"))
		if refusal := s.verify(r, phase); refusal != nil {
			refusal.write(w)
			return
		}
	}
	next := func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, phase, container, blob) }
	if phase == GetObject {
		w = &countingWriter{w, &s.bytes}
	}
	s.respond(w, r, phase, next, s.misbehave)
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
