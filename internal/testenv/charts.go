package testenv

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"time"
)

// The phases of a conversation with a [Charts] server.
const (
	GetIndex Phase = "get index"
	GetChart Phase = "get chart" // any other file below the server
)

// ChartsConfig says how [StartCharts] serves. The zero value is a public
// repository without TLS that has an index in YAML, an ETag and a Last-Modified
// for each file.
type ChartsConfig struct {
	CA     *CA      // serve TLS with a certificate of this authority
	Names  []string // of the server, besides localhost and 127.0.0.1
	Mutual bool     // and want client certificates of CA

	Username, Password string                   // want basic authentication
	Allow              func(*http.Request) bool // decide otherwise

	Path    string // of the repository below the server, "" is /charts, "/" the server itself
	JSON    bool   // have an index in JSON
	Gzip    bool   // compress the index for who accepts that
	Restamp bool   // write another generated into the index at each request
	NoETag  bool
	Weak    bool // ETags are weak
	NoDate  bool // no Last-Modified

	Defect *Defect
}

// A Charts server is a running repository of charts. It holds them in memory.
//
// Of the misdeeds it knows all but [Loop]: [Endless] gives an index of one
// version after the other without end, and [Swell] one whose name of a chart is
// of After bytes and that does not end. The phases are [GetIndex] and [GetChart].
type Charts struct {
	desk

	t      testing.TB
	config ChartsConfig
	path   string

	mu       sync.Mutex
	entries  map[string][]chartEntry // by name
	files    map[string]chartFile    // by path below the server
	raw      []byte                  // the index as it was set, nil when it is written
	modified time.Time               // the index
	stamps   int                     // how often the index was stamped
}

type chartFile struct {
	data     []byte
	modified time.Time
}

// chartsEpoch is when the first file of each server was written. Each further
// one is a second later, so that dates tell files apart.
var chartsEpoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// StartCharts runs a repository, without any chart, until the test ends.
func StartCharts(t testing.TB, c ChartsConfig) *Charts {
	t.Helper()
	s := &Charts{
		desk: desk{breaker: newBreaker(c.Defect)}, t: t, config: c,
		path: "/charts", entries: map[string][]chartEntry{}, files: map[string]chartFile{}, modified: chartsEpoch,
	}
	if c.Path != "" {
		s.path = strings.TrimSuffix(c.Path, "/")
	}
	s.listen(t, s.serve, secured(c.CA, c.Mutual, c.Names), true)
	return s
}

// URL returns the URL of the repository, without a slash at its end.
func (s *Charts) URL() string { return s.Base + s.path }

// URLOf returns the URL of a file, by its path relative to the repository.
func (s *Charts) URLOf(file string) string { return s.Base + s.place(file) }

// place returns the path below the server of a file of the repository.
func (s *Charts) place(file string) string { return path.Join(s.path+"/", file) }

// PutFile puts any file, by its path relative to the repository, ../ included:
// for example the provenance file of a chart. A file at a place where one is,
// such as the archive of a chart, takes its place.
func (s *Charts) PutFile(file string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touch()
	s.files[s.place(file)] = chartFile{data, s.modified}
}

// RemoveFile removes a file. The index tells what it told.
func (s *Charts) RemoveFile(file string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.files, s.place(file))
}

// SetIndex makes the server give these bytes as its index, nil the index of what it has.
func (s *Charts) SetIndex(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touch()
	s.raw = data
}

// touch makes the index newer than it was.
func (s *Charts) touch() { s.modified = s.modified.Add(time.Second) }

// Index returns the index as it is given now, not counting [ChartsConfig.Restamp].
func (s *Charts) Index() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index()
}

func (s *Charts) index() []byte {
	if s.raw != nil {
		return s.raw
	}
	return s.writeIndex(chartsEpoch.Add(time.Duration(s.stamps) * time.Second))
}

func (s *Charts) serve(w http.ResponseWriter, r *http.Request) {
	phase := GetChart
	if r.URL.Path == s.path+"/index.yaml" {
		phase = GetIndex
	}
	w = s.note(w, r, phase, nil)
	if !s.allowed(r) {
		w.Header().Set("WWW-Authenticate", `Basic realm="testenv"`)
		http.Error(w, "credentials wanted", http.StatusUnauthorized)
		return
	}
	s.respond(&countingWriter{w, &s.bytes}, r, phase, s.answer, s.misbehave)
}

func (s *Charts) allowed(r *http.Request) bool {
	if s.config.Allow != nil {
		return s.config.Allow(r)
	}
	user, password, _ := r.BasicAuth()
	return s.config.Username == "" && s.config.Password == "" || same(user, s.config.Username) && same(password, s.config.Password)
}

// answer serves one request well.
func (s *Charts) answer(w http.ResponseWriter, r *http.Request) {
	f, ok := s.file(r.URL.Path)
	if !ok {
		http.NotFound(w, r)
		return
	}
	isIndex := r.URL.Path == s.path+"/index.yaml"
	w.Header().Set("Content-Type", "application/octet-stream")
	if isIndex {
		w.Header().Set("Content-Type", "text/yaml")
	}
	if !s.config.NoETag {
		w.Header().Set("ETag", s.etag(f.data))
	}
	if s.config.NoDate {
		f.modified = time.Time{}
	}
	if isIndex && s.config.Gzip && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Add("Vary", "Accept-Encoding")
		f.data = compressed(f.data)
	}
	http.ServeContent(w, r, "", f.modified, bytes.NewReader(f.data))
}

// file returns what is at a path below the server.
func (s *Charts) file(at string) (chartFile, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at != s.path+"/index.yaml" {
		f, ok := s.files[at]
		return f, ok
	}
	if s.config.Restamp {
		s.stamps++
		s.touch()
	}
	return chartFile{s.index(), s.modified}, true
}

func (s *Charts) etag(data []byte) string {
	sum := sha256.Sum256(data)
	etag := fmt.Sprintf("%q", hex.EncodeToString(sum[:8]))
	if s.config.Weak {
		return "W/" + etag
	}
	return etag
}

func compressed(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(data)
	w.Close()
	return b.Bytes()
}
