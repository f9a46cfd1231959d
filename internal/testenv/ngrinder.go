package testenv

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// An NGrinder is a server of load tests that answers like nGrinder: before 3.5
// with Old, since then without. Its fields are set before the first request.
type NGrinder struct {
	Path           string // context path, as /ngrinder
	User, Password string
	States         []string // of a test, one for each question; the last one stays
	Old            bool
	GetOnly        bool // a clone is started with GET alone

	mu      sync.Mutex
	started []int64 // tests that were cloned; they are numbered 1001, 1002 …
	asked   int
	stopped []int64
}

// Cloned returns the tests that were cloned, Stopped those that were stopped.
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
			reply(w, map[string]any{"success": true})
		}
	case n.Old:
		reply(w, map[string]any{"success": false, "cause": fmt.Sprintf("perftest %d does not exist", id)})
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
	reply(w, test)
}

func (n *NGrinder) status(w http.ResponseWriter, id int64) {
	state := n.States[min(n.asked, len(n.States)-1)]
	n.asked++
	if n.Old {
		reply(w, map[string]any{"status": []any{map[string]any{"id": id, "status_id": state, "status_type": state, "name": "a state"}}})
		return
	}
	reply(w, map[string]any{"id": id, "status": map[string]any{"name": state, "category": state}, "message": ""})
}

func reply(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	json.NewEncoder(w).Encode(body)
}
