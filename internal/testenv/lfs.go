package testenv

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

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
