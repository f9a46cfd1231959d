package testenv

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"
)

// The phases of requests to a [Charts] server.
const (
	GetIndex Phase = "get index"
	GetChart Phase = "get chart" // any other file below the server
)

// ChartsConfig says how [StartCharts] serves. The zero value is a public
// repository without TLS that has an index in YAML, an ETag and a Last-Modified
// for each file.
type ChartsConfig struct {
	CA     *CA  // serve TLS with a certificate of this authority
	Mutual bool // also require client certificates of CA

	Username, Password string                   // require basic authentication
	Allow              func(*http.Request) bool // decide instead, if set

	Path           string // of the repository; "" means /charts, "/" the root of the server
	JSON           bool   // serve the index in JSON
	Gzip           bool   // compress the index for clients that accept gzip
	NoETag         bool
	WeakETags      bool // ETags are weak
	NoLastModified bool // no Last-Modified

	Defect *Defect
}

// A Charts server is a running repository of charts. It holds them in memory.
//
// It supports all defects but [PageLoop]: [EndlessList] serves an index with versions without
// end, and [OversizedBody] serves an index that breaks off after a chart name of After bytes.
// The phases are [GetIndex] and [GetChart].
type Charts struct {
	fakeServer

	t      testing.TB
	config ChartsConfig
	path   string

	mu       sync.Mutex
	entries  map[string][]chartEntry // by name
	files    map[string]chartFile    // by path below the server
	raw      []byte                  // the index that SetIndex set; nil if it is generated
	modified time.Time               // of the index
}

type chartFile struct {
	data     []byte
	modified time.Time
}

// chartsEpoch is the base of modification times. Each file of a server is a second
// newer than the one before, so that dates tell files apart.
var chartsEpoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// StartCharts runs a repository, without any chart, until the test ends.
func StartCharts(t testing.TB, c ChartsConfig) *Charts {
	t.Helper()
	s := &Charts{
		fakeServer: fakeServer{defectState: newDefectState(c.Defect), defectHandler: serveChartsDefect, refuse: refuseOCI}, t: t, config: c,
		path: "/charts", entries: map[string][]chartEntry{}, files: map[string]chartFile{}, modified: chartsEpoch,
	}
	if c.Path != "" {
		s.path = strings.TrimSuffix(c.Path, "/")
	}
	s.listen(t, s.serve, tlsConfig(c.CA, c.Mutual, nil), true)
	return s
}

// URL returns the URL of the repository, without a slash at its end.
func (s *Charts) URL() string { return s.Base + s.path }

// URLOf returns the URL of a file, by its path relative to the repository.
func (s *Charts) URLOf(file string) string { return s.Base + s.serverPath(file) }

// serverPath returns the path below the server of a file of the repository.
func (s *Charts) serverPath(file string) string { return path.Join(s.path+"/", file) }

// PutFile stores any file, for example the provenance file of a chart, by its path
// relative to the repository, which may begin with ../. It replaces a file that
// exists, such as the archive of a chart.
func (s *Charts) PutFile(file string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touch()
	s.files[s.serverPath(file)] = chartFile{data, s.modified}
}

// RemoveFile removes a file. The index does not change.
func (s *Charts) RemoveFile(file string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.files, s.serverPath(file))
}

// SetIndex makes the server serve data as its index; nil restores the generated index.
func (s *Charts) SetIndex(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touch()
	s.raw = data
}

// touch advances the modification time of the index by a second.
func (s *Charts) touch() { s.modified = s.modified.Add(time.Second) }

// Index returns the index that is served now.
func (s *Charts) Index() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index()
}

func (s *Charts) index() []byte {
	if s.raw != nil {
		return s.raw
	}
	return s.encodeIndex()
}

func (s *Charts) serve(w http.ResponseWriter, r *http.Request) {
	phase := GetChart
	if r.URL.Path == s.path+"/index.yaml" {
		phase = GetIndex
	}
	w = s.record(w, r, phase, nil, true)
	if !s.allowed(r) {
		w.Header().Set("WWW-Authenticate", `Basic realm="testenv"`)
		http.Error(w, "credentials wanted", http.StatusUnauthorized)
		return
	}
	s.respond(w, r, phase, s.answer)
}

func (s *Charts) allowed(r *http.Request) bool {
	if s.config.Allow != nil {
		return s.config.Allow(r)
	}
	return authorized(r, s.config.Username, s.config.Password)
}

// answer serves one request correctly.
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
	if s.config.NoLastModified {
		f.modified = time.Time{}
	}
	if isIndex && s.config.Gzip && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Add("Vary", "Accept-Encoding")
		f.data = Gzip(s.t, f.data)
	}
	http.ServeContent(w, r, "", f.modified, bytes.NewReader(f.data))
}

// file returns the file or index at a path below the server.
func (s *Charts) file(at string) (chartFile, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at != s.path+"/index.yaml" {
		f, ok := s.files[at]
		return f, ok
	}
	return chartFile{s.index(), s.modified}, true
}

func (s *Charts) etag(data []byte) string {
	sum := sha256.Sum256(data)
	etag := fmt.Sprintf("%q", hex.EncodeToString(sum[:8]))
	if s.config.WeakETags {
		return "W/" + etag
	}
	return etag
}

// A ChartVersion is one version of a chart, to be put into a repository.
type ChartVersion struct {
	Name, Version string
	Files         map[string]string // of the archive, by path below the directory NAME; Chart.yaml, values.yaml and a template are added if missing
	Archive       []byte            // the archive itself, instead of Files

	File   string         // path of the archive relative to the repository; "" means NAME-VERSION.tgz
	URLs   []string       // in the index; nil means File alone
	Digest string         // in the index; "" means the right one in hex
	Entry  map[string]any // further fields of the index entry; a nil value removes a field
}

type chartEntry struct {
	version string
	fields  map[string]any
}

// Put adds a version of a chart, or replaces the one with the same name and version,
// and returns its archive.
func (s *Charts) Put(v ChartVersion) []byte {
	s.t.Helper()
	archive, fields := s.prepare(v)
	file := cmp.Or(v.File, v.Name+"-"+v.Version+".tgz")
	if v.URLs == nil {
		v.URLs = []string{file}
	}
	fields["urls"] = v.URLs

	s.mu.Lock()
	defer s.mu.Unlock()
	s.touch()
	fields["created"] = s.modified.Format(time.RFC3339Nano)
	overlay(fields, v.Entry)
	s.drop(v.Name, v.Version)
	s.entries[v.Name] = append(s.entries[v.Name], chartEntry{v.Version, fields})
	s.files[s.serverPath(file)] = chartFile{archive, s.modified}
	return archive
}

// Remove removes a version of a chart from the index, but not its archive.
func (s *Charts) Remove(name, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touch()
	s.drop(name, version)
}

func (s *Charts) drop(name, version string) {
	s.entries[name] = slices.DeleteFunc(s.entries[name], func(e chartEntry) bool { return e.version == version })
	if len(s.entries[name]) == 0 {
		delete(s.entries, name)
	}
}

// prepare returns the archive of v, and the fields of its index entry: those of
// Chart.yaml and the digest.
func (s *Charts) prepare(v ChartVersion) (archive []byte, fields map[string]any) {
	s.t.Helper()
	meta := fmt.Sprintf("apiVersion: v2\nname: %s\nversion: %s\ndescription: A chart for tests\ntype: application\nappVersion: \"1.0\"\n", v.Name, v.Version)
	files := map[string]string{
		"Chart.yaml":               meta,
		"values.yaml":              "replicas: 1\nimage: web:1.0\n",
		"templates/configmap.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n  replicas: {{ .Values.replicas | quote }}\n",
	}
	maps.Copy(files, v.Files)
	if archive = v.Archive; archive == nil {
		within := make(map[string]string, len(files))
		for name, data := range files {
			within[path.Join(v.Name, name)] = data
		}
		archive = ChartArchive(s.t, within)
	}
	Must(s.t, yaml.Unmarshal([]byte(files["Chart.yaml"]), &fields))
	fields["name"], fields["version"] = v.Name, v.Version
	sum := sha256.Sum256(archive)
	fields["digest"] = cmp.Or(v.Digest, hex.EncodeToString(sum[:]))
	return archive, fields
}

func overlay(fields, overrides map[string]any) {
	for name, value := range overrides {
		if value == nil {
			delete(fields, name)
			continue
		}
		fields[name] = value
	}
}

// ChartArchive returns a .tgz archive of files, given by path. The same files always
// give the same bytes.
func ChartArchive(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var entries []TarEntry
	for _, name := range slices.Sorted(maps.Keys(files)) {
		entries = append(entries, TarEntry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, ModTime: chartsEpoch, Format: tar.FormatPAX}, []byte(files[name])})
	}
	return Gzip(t, Tar(t, entries...))
}

// encodeIndex returns an index of the charts of the server as Helm writes it: sorted by
// name, and for each name with the highest version first.
func (s *Charts) encodeIndex() []byte {
	entries := map[string]any{}
	for name, versions := range s.entries {
		all := slices.Clone(versions)
		slices.SortStableFunc(all, byVersion)
		fields := make([]any, len(all))
		for i, e := range all {
			fields[i] = e.fields
		}
		entries[name] = fields
	}
	doc := map[string]any{"apiVersion": "v1", "entries": entries, "generated": chartsEpoch.Format(time.RFC3339Nano)}
	write := yaml.Marshal
	if s.config.JSON {
		write = func(v any) ([]byte, error) { return json.MarshalIndent(v, "", "  ") }
	}
	data, err := write(doc)
	if err != nil {
		panic(err) // maps of strings can always be encoded
	}
	return data
}

// byVersion sorts higher versions first, and invalid ones last.
func byVersion(a, b chartEntry) int { return semver.Compare("v"+b.version, "v"+a.version) }

// serveChartsDefect serves the defects [EndlessList] and [OversizedBody].
func serveChartsDefect(w http.ResponseWriter, r *http.Request, d Defect, next http.Handler) {
	if d.Do == EndlessList {
		endlessIndex(w)
	} else {
		d.writeOversized(w, httptest.NewRecorder(), []byte("apiVersion: v1\nentries:\n  "))
	}
}

// endlessIndex answers with versions of one chart until the client disconnects.
func endlessIndex(w http.ResponseWriter) {
	_, err := fmt.Fprint(w, "apiVersion: v1\nentries:\n  endless:\n")
	for major := 1; err == nil; major++ {
		var b strings.Builder
		for minor := range 500 {
			fmt.Fprintf(&b, "  - name: endless\n    version: %d.%d.0\n    urls:\n    - endless.tgz\n", major, minor)
		}
		_, err = io.WriteString(w, b.String())
	}
}
