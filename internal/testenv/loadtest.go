package testenv

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// An NGrinder answers like the load test server nGrinder, as versions before 3.5
// do if Old is set. Set its fields before the first request.
type NGrinder struct {
	Path           string // context path, as /ngrinder
	User, Password string
	States         []string // states of a test, one for each status request; the last one is repeated
	Old            bool
	GetOnly        bool // clone_and_start accepts only GET

	mu             sync.Mutex
	started        []int64 // ids of the cloned tests; their clones are 1001, 1002 …
	statusRequests int
	stopped        []int64
}

// Cloned returns the ids of the tests that were cloned, Stopped those of the clones that
// were stopped.
func (n *NGrinder) Cloned() []int64  { n.mu.Lock(); defer n.mu.Unlock(); return n.started }
func (n *NGrinder) Stopped() []int64 { n.mu.Lock(); defer n.mu.Unlock(); return n.stopped }

// ServeHTTP implements http.Handler.
func (n *NGrinder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if user, password, ok := r.BasicAuth(); !ok || user != n.User || password != n.Password {
		w.Header().Set("WWW-Authenticate", `Basic realm="nGrinder"`)
		http.Error(w, "unauthorized", http.StatusUnauthorized)
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, n.Path+"/perftest/api/")
	number, action, _ := strings.Cut(rest, "/")
	id, err := strconv.ParseInt(number, 10, 64)
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	if !ok || err != nil {
		http.NotFound(w, r)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case action == "clone_and_start":
		n.clone(w, r, id)
	case action == "status" && r.Method == http.MethodGet && n.known(id):
		n.status(w, id)
	case action == "" && r.Method == http.MethodPut && r.URL.RawQuery == "action=stop" && n.known(id):
		n.stopped = append(n.stopped, id)
		if n.Old {
			writeJSON(w, http.StatusOK, map[string]any{"success": true})
		}
	case n.Old:
		writeJSON(w, http.StatusOK, map[string]any{"success": false, "cause": fmt.Sprintf("perftest %d does not exist", id)})
	default:
		http.NotFound(w, r)
	}
}

func (n *NGrinder) known(id int64) bool { return id > 1000 && id <= 1000+int64(len(n.started)) }

func (n *NGrinder) clone(w http.ResponseWriter, r *http.Request, id int64) {
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case r.Method == http.MethodGet:
	case r.Method != http.MethodPost || n.GetOnly:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case !n.Old && media != "application/json":
		w.WriteHeader(http.StatusUnsupportedMediaType)
		return
	case !n.Old && json.NewDecoder(r.Body).Decode(&struct{}{}) != nil:
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	n.started = append(n.started, id)
	test := map[string]any{"id": 1000 + len(n.started), "testName": "checkout", "status": map[string]string{"name": "READY", "category": "READY"}}
	if n.Old {
		test["status"] = "READY"
	}
	writeJSON(w, http.StatusOK, test)
}

func (n *NGrinder) status(w http.ResponseWriter, id int64) {
	state := n.States[min(n.statusRequests, len(n.States)-1)]
	n.statusRequests++
	if n.Old {
		writeJSON(w, http.StatusOK, map[string]any{"status": []any{map[string]any{"id": id, "status_id": state, "status_type": state, "name": "a state"}}})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"id": id, "status": map[string]any{"name": state, "category": state}, "message": ""})
}

// A Concord answers like the workflow server Concord. Set its fields before the
// first request.
type Concord struct {
	Path   string   // path of its base URL
	Key    string   // API key
	States []string // states of a process, one for each status request; the last one is repeated

	mu             sync.Mutex
	forms          [][][2]string
	statusRequests int
	cancelled      []string
}

// Forms returns the names and values of the form fields that each process was
// started with, in order. Cancelled returns the ids of the cancelled processes.
func (c *Concord) Forms() [][][2]string { c.mu.Lock(); defer c.mu.Unlock(); return c.forms }
func (c *Concord) Cancelled() []string  { c.mu.Lock(); defer c.mu.Unlock(); return c.cancelled }

// ID returns the id of process i, counted from 0.
func (c *Concord) ID(i int) string { return fmt.Sprintf("6f9619ff-8b86-d011-b42d-00c04fc96%03d", i) }

// ServeHTTP implements http.Handler.
func (c *Concord) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != c.Key {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	rest, ok := strings.CutPrefix(r.URL.Path, c.Path+"/api/v1/process")
	id, one := strings.CutPrefix(rest, "/")
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	switch {
	case ok && rest == "" && r.Method == http.MethodPost:
		c.start(w, r)
	case one && c.known(id) && r.Method == http.MethodGet:
		state := c.States[min(c.statusRequests, len(c.States)-1)]
		c.statusRequests++
		writeJSON(w, http.StatusOK, map[string]any{"instanceId": id, "kind": "DEFAULT", "status": state, "meta": map[string]any{}})
	case one && c.known(id) && r.Method == http.MethodDelete:
		c.cancelled = append(c.cancelled, id)
	default:
		http.NotFound(w, r)
	}
}

func (c *Concord) known(id string) bool {
	for i := range c.forms {
		if c.ID(i) == id {
			return true
		}
	}
	return false
}

func (c *Concord) start(w http.ResponseWriter, r *http.Request) {
	form, err := r.MultipartReader()
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnsupportedMediaType)
		return
	}
	var fields [][2]string
	for {
		part, err := form.NextPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		value, err := io.ReadAll(part)
		if err != nil || part.FileName() != "" {
			http.Error(w, "a field, not a file", http.StatusBadRequest)
			return
		}
		fields = append(fields, [2]string{part.FormName(), string(value)})
	}
	c.forms = append(c.forms, fields)
	writeJSON(w, http.StatusOK, map[string]any{"instanceId": c.ID(len(c.forms) - 1), "ok": true})
}
