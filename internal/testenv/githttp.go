package testenv

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// GitConfig says how [ServeGit] serves. The zero value is a public server without
// TLS that offers all of protocol version 2.
type GitConfig struct {
	CA     *CA      // serve TLS with a certificate of this authority
	Names  []string // host names besides localhost and 127.0.0.1
	Mutual bool     // also require client certificates of CA

	Username, Password string                   // require basic authentication
	Bearer             string                   // require this bearer token
	Allow              func(*http.Request) bool // decide instead, if set

	V0        bool // speak protocol version 0 only
	NoFilter  bool // do not offer partial clones
	NoAnyWant bool // in version 0, serve only tips of refs
	NoShallow bool // do not offer shallow fetches

	LFS *LFS // offer Git LFS

	Defect *Defect
}

// A GitServer is a running Git server.
type GitServer struct {
	fakeServer
	URL string // without a slash at its end; the repository is URL/repo.git

	config GitConfig
	repos  map[string]*Repo
}

// A Request is one request to a [GitServer].
type Request struct {
	Method, Path  string // Path with the query
	Phase         Phase
	Authorization string
	Certificate   string // common name of the client's certificate
	Header        http.Header
	Body          []byte
	Status        int // of the answer, 0 until there is one
}

// ServeGit serves a repository as /repo.git by git upload-pack until the test ends.
func ServeGit(t testing.TB, c GitConfig, repo *Repo) *GitServer {
	t.Helper()
	return ServeRepos(t, c, map[string]*Repo{"repo.git": repo})
}

// ServeRepos is [ServeGit] for several repositories, each by its path below the server.
func ServeRepos(t testing.TB, c GitConfig, repos map[string]*Repo) *GitServer {
	t.Helper()
	s := &GitServer{fakeServer: fakeServer{defectState: newDefectState(c.Defect)}, config: c, repos: repos}
	s.listen(t, s.serve, tlsConfig(c.CA, c.Mutual, c.Names), true)
	s.URL = s.Base
	return s
}

// Repo returns the URL of the repository that ServeGit serves.
func (s *GitServer) Repo() string { return s.URL + "/repo.git" }

// Bytes returns how many bytes of request bodies were received, and how many bytes of successful
// answers were sent, so far.
func (s *GitServer) Bytes() (received, sent int64) { return s.received.Load(), s.bytes.Load() }

func (s *GitServer) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	phase := s.phaseOf(r, body)
	w = s.record(w, r, phase, body, true)
	if !s.allowed(r, phase) {
		w.Header().Set("WWW-Authenticate", `Basic realm="testenv"`)
		http.Error(w, "credentials wanted", http.StatusUnauthorized)
		return
	}
	s.respond(w, r, phase, func(w http.ResponseWriter, r *http.Request) {
		if s.config.NoShallow && phase == Advertisement {
			w = noShallowWriter{w}
		}
		if phase == LFSBatch || phase == LFSObject {
			s.config.LFS.serve(w, r, s.URL, body)
			return
		}
		s.backendFor(r).ServeHTTP(w, r)
	})
}

// newRequest returns the record of r.
func newRequest(r *http.Request, phase Phase, body []byte) Request {
	q := Request{
		Method: r.Method, Path: r.URL.RequestURI(), Phase: phase, Body: body,
		Authorization: r.Header.Get("Authorization"),
		Header:        r.Header.Clone(),
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		q.Certificate = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	return q
}

func (s *GitServer) phaseOf(r *http.Request, body []byte) Phase {
	switch {
	case s.config.LFS != nil && strings.HasSuffix(r.URL.Path, "/info/lfs/objects/batch"):
		return LFSBatch
	case s.config.LFS != nil && strings.Contains(r.URL.Path, "/info/lfs/"):
		return LFSObject
	case strings.HasSuffix(r.URL.Path, "/info/refs"):
		return Advertisement
	case bytes.Contains(body, []byte("command=ls-refs")):
		return LsRefs
	case strings.HasSuffix(r.URL.Path, "/git-upload-pack"):
		return Pack
	}
	return OtherRequest
}

func (s *GitServer) allowed(r *http.Request, phase Phase) bool {
	want := s.config
	if lfs := want.LFS; lfs != nil && lfs.Token != "" && (phase == LFSBatch || phase == LFSObject) {
		return equalSecret(r.Header.Get("Authorization"), lfs.Token)
	}
	if want.Allow != nil {
		return want.Allow(r)
	}
	if want.Bearer != "" {
		return equalSecret(r.Header.Get("Authorization"), "Bearer "+want.Bearer)
	}
	return authorized(r, want.Username, want.Password)
}

// authorized reports whether a request has this user name and password, or both are "".
func authorized(r *http.Request, username, password string) bool {
	user, given, _ := r.BasicAuth()
	return username == "" && password == "" || equalSecret(user, username) && equalSecret(given, password)
}

func equalSecret(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// backendFor returns the handler of a request of the smart protocol for the
// repository in the path of r.
func (s *GitServer) backendFor(r *http.Request) http.Handler {
	for path, repo := range s.repos {
		switch rest, _ := strings.CutPrefix(r.URL.Path, "/"+path+"/"); {
		case r.Method == http.MethodGet && rest == "info/refs" && r.URL.Query().Get("service") == "git-upload-pack":
			return s.uploadPack(repo, true)
		case r.Method == http.MethodPost && rest == "git-upload-pack" && r.Header.Get("Content-Type") == "application/x-git-upload-pack-request":
			return s.uploadPack(repo, false)
		}
	}
	return http.NotFoundHandler()
}

// uploadPack returns a handler that runs git upload-pack as git http-backend does, with
// one process fewer.
func (s *GitServer) uploadPack(repo *Repo, advertise bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		protocol := r.Header.Get("Git-Protocol")
		if s.config.V0 {
			protocol = ""
		}
		kind := "result"
		if advertise {
			kind = "advertisement"
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-"+kind)
		if advertise && !strings.Contains(protocol, "version=2") {
			io.WriteString(w, "001e# service=git-upload-pack\n0000")
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		// In version 2 only capabilities and requests with a filter depend on noFilter,
		// and clients may request any object.
		noFilter := s.config.NoFilter && (advertise || protocol == "" || bytes.Contains(body, []byte("filter ")))
		env := append(uploadPackConfig(noFilter, s.config.NoAnyWant && protocol == ""), "GIT_PROTOCOL="+protocol)
		uploadPack(r.Context(), w, repo, advertise, env, body) // upload-pack reports errors itself
	}
}

// uploadPack writes the answer of git upload-pack to one request. It caches answers
// of up to 1 MiB, because starting git takes longer than most tests do.
func uploadPack(ctx context.Context, w io.Writer, repo *Repo, advertise bool, env []string, body []byte) {
	requestKey := newRequestDigest(repo, advertise, env, body)
	if answer, ok := answerCache.Load(requestKey); ok {
		w.Write(answer.([]byte))
		return
	}
	args := []string{"upload-pack", "--stateless-rpc"}
	if advertise {
		args = append(args, "--advertise-refs")
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, "git", append(args, ".")...)
	defer func() { cancel(); cmd.Wait() }() // also when a defect ends the handler by a panic
	cmd.Dir, cmd.Stdin, cmd.Env = repo.Dir, bytes.NewReader(body), slices.Concat(repo.env, env)
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return
	}
	var answer bytes.Buffer
	_, err = io.Copy(io.MultiWriter(w, &answer), out)
	if err == nil && cmd.Wait() == nil && answer.Len() <= 1<<20 && requestKey == newRequestDigest(repo, advertise, env, body) {
		answerCache.Store(requestKey, answer.Bytes())
	}
}

// answerCache caches the answers of git upload-pack by [requestDigest].
var answerCache sync.Map

// A requestDigest is a digest of everything that an answer of git upload-pack depends on.
type requestDigest [sha256.Size]byte

// newRequestDigest returns the digest of a request to a repository in its current state.
// An advertisement of version 2 depends only on the configuration of the repository.
func newRequestDigest(repo *Repo, advertise bool, env []string, body []byte) requestDigest {
	var state []byte
	if advertise && slices.Contains(env, "GIT_PROTOCOL=version=2") {
		state, _ = os.ReadFile(filepath.Join(repo.Dir, "config"))
	} else {
		state = repo.state()
	}
	return requestDigest(sha256.Sum256(fmt.Appendf(nil, "%v %q %q %q", advertise, env, body, state)))
}

// uploadPackConfig returns environment variables that configure what git upload-pack offers.
func uploadPackConfig(noFilter, noAnyWant bool) []string {
	return []string{
		"GIT_CONFIG_COUNT=2",
		"GIT_CONFIG_KEY_0=uploadpack.allowFilter", "GIT_CONFIG_VALUE_0=" + strconv.FormatBool(!noFilter),
		"GIT_CONFIG_KEY_1=uploadpack.allowAnySHA1InWant", "GIT_CONFIG_VALUE_1=" + strconv.FormatBool(!noAnyWant),
	}
}

// A noShallowWriter writer misspells the capability shallow in an advertisement, which
// is written in one call.
type noShallowWriter struct{ http.ResponseWriter }

func (s noShallowWriter) Write(b []byte) (int, error) {
	return s.ResponseWriter.Write(bytes.ReplaceAll(b, []byte("shallow"), []byte("hallows")))
}

// The phases of requests for Git LFS to a [GitServer] with [GitConfig].LFS.
const (
	LFSBatch  Phase = "lfs batch"  // request for links to objects
	LFSObject Phase = "lfs object" // all others, such as the download of an object
)

// An LFS is a store of Git LFS objects that a [GitServer] offers below each of its
// repositories, by the batch API and basic transfers. The zero value is empty
// and requires the credentials of the server.
type LFS struct {
	// Token, if set, is the Authorization header that is required instead, as
	// git-lfs-authenticate returns it.
	Token string
	// Edit, if set, changes the answer of the batch API for each object.
	Edit func(o *LFSAnswer)
	// Extra is sent after the content of every object.
	Extra string

	mu      sync.Mutex
	objects map[string][]byte
}

// An LFSAnswer is the part of a batch answer about one object.
type LFSAnswer struct {
	OID           string               `json:"oid"`
	Size          int                  `json:"size"`
	Authenticated bool                 `json:"authenticated,omitempty"`
	Actions       map[string]LFSAction `json:"actions,omitempty"`
	Error         *LFSError            `json:"error,omitempty"`
}

// An LFSAction is a link to an object.
type LFSAction struct {
	Href      string            `json:"href"`
	Header    map[string]string `json:"header,omitempty"`
	ExpiresIn int               `json:"expires_in,omitempty"`
	ExpiresAt string            `json:"expires_at,omitempty"`
}

// An LFSError says why there is no link.
type LFSError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Add stores content and returns the pointer to it.
func (l *LFS) Add(content string) (pointer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.objects == nil {
		l.objects = map[string][]byte{}
	}
	sum := sha256.Sum256([]byte(content))
	oid := hex.EncodeToString(sum[:])
	l.objects[oid] = []byte(content)
	return LFSPointer(oid, len(content))
}

// LFSPointer returns the text of a pointer.
func LFSPointer(oid string, size int) string {
	return fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n", oid, size)
}

func (l *LFS) object(oid string) ([]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, ok := l.objects[oid]
	return b, ok
}

// serve answers a request below /info/lfs.
func (l *LFS) serve(w http.ResponseWriter, r *http.Request, base string, body []byte) {
	endpoint, rest, _ := strings.Cut(r.URL.Path, "/info/lfs/")
	oid, isObject := strings.CutPrefix(rest, "objects/")
	switch {
	case rest == "objects/batch" && r.Method == http.MethodPost:
		l.batch(w, r, base+endpoint+"/info/lfs/objects/", body)
	case isObject && r.Method == http.MethodPut:
		if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != oid {
			http.Error(w, "wrong digest", http.StatusUnprocessableEntity)
			return
		}
		l.Add(string(body))
	case isObject:
		content, ok := l.object(oid)
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Write(content)
		w.Write([]byte(l.Extra))
	default: // locks
		http.NotFound(w, r)
	}
}

func (l *LFS) batch(w http.ResponseWriter, r *http.Request, at string, body []byte) {
	const kind = "application/vnd.git-lfs+json"
	var q struct {
		Operation string
		Transfers []string
		Objects   []LFSAnswer
	}
	w.Header().Set("Content-Type", kind)
	if err := json.Unmarshal(body, &q); err != nil || !strings.HasPrefix(r.Header.Get("Content-Type"), kind) || len(q.Objects) == 0 || len(q.Objects) > 100 {
		w.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprintln(w, `{"message": "not a batch request"}`)
		return
	}
	for i := range q.Objects {
		o := &q.Objects[i]
		action := LFSAction{Href: at + o.OID}
		if l.Token != "" {
			action.Header = map[string]string{"Authorization": r.Header.Get("Authorization")}
		}
		l.link(o, q.Operation, action)
		if l.Edit != nil {
			l.Edit(o)
		}
	}
	json.NewEncoder(w).Encode(map[string]any{"transfer": "basic", "objects": q.Objects})
}

// link adds action to o, or an error if there is no object of that size to download.
func (l *LFS) link(o *LFSAnswer, operation string, action LFSAction) {
	content, ok := l.object(o.OID)
	switch {
	case operation == "upload" && ok: // the object is there already
	case operation == "download" && len(content) != o.Size, operation == "download" && !ok:
		o.Error = &LFSError{http.StatusNotFound, "Object does not exist"}
	default:
		o.Actions = map[string]LFSAction{operation: action}
	}
}
