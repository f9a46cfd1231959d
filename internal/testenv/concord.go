package testenv

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// A Concord is a server of processes that answers like Concord. Its fields are
// set before the first request.
type Concord struct {
	Path   string   // of its base URL
	Key    string   // of the API
	States []string // of a process, one for each question; the last one stays

	mu        sync.Mutex
	forms     [][][2]string
	asked     int
	cancelled []string
}

// Forms returns what processes were started with, in the order of the fields;
// Cancelled the processes that were cancelled.
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
	switch {
	case ok && rest == "" && r.Method == http.MethodPost:
		c.start(w, r)
	case one && c.known(id) && r.Method == http.MethodGet:
		state := c.States[min(c.asked, len(c.States)-1)]
		c.asked++
		reply(w, map[string]any{"instanceId": id, "kind": "DEFAULT", "status": state, "meta": map[string]any{}})
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
	reply(w, map[string]any{"instanceId": c.ID(len(c.forms) - 1), "ok": true})
}
