package run

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/internal/store"
)

// fileName is the name of the history in its directory. It has two buckets: the
// records by ID, and their outputs by ID.
const (
	fileName     = "runs.db"
	recordBucket = "runs"
	outputBucket = "output"
)

// A line is the JSON of a record.
type line struct {
	Key         string  `json:"key"`
	FailOnError bool    `json:"failOnError,omitempty"`
	Run         api.Run `json:"run"`
}

// A history writes what happens to runs to disk in the background. The runner's lock
// guards it, except for the file.
type history struct {
	file    *store.File     // nil: nothing is kept
	changed map[string]bool // IDs of runs that are to be written, or removed
	trouble error           // why nothing is written
	ended   bool
	wake    chan struct{}
	quit    chan struct{}
	done    chan struct{}
}

// recall fills the runner from its file: runs that were under way are Lost, and
// verdicts that nobody received may be shared.
func (r *Runner) recall() (err error) {
	h := &r.history
	*h = history{changed: map[string]bool{}, wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	buckets := []string{recordBucket, outputBucket}
	h.file, err = store.Open(r.config.Dir, fileName, buckets, r.load)
	if errors.Is(err, store.ErrDamaged) {
		path := filepath.Join(r.config.Dir, fileName)
		aside := path + ".corrupt"
		if err := os.Rename(path, aside); err != nil {
			return err
		}
		r.config.Warn(fmt.Errorf("history of runs: %w; it was set aside as %s, and a new one begun", err, aside))
		r.all, r.byID, r.byKey, h.changed = nil, map[string]*entry{}, map[key]*entry{}, map[string]bool{}
		h.file, err = store.Open(r.config.Dir, fileName, buckets, r.load)
	}
	if err != nil {
		return err
	}
	if bad := len(h.changed); bad > 0 {
		r.config.Warn(fmt.Errorf("history of runs: %d of %d records cannot be read and are removed", bad, bad+len(r.all)))
		h.poke()
	}
	for _, e := range r.all {
		if s := e.run.State; s == api.Queued || s == api.Running {
			e.run.State, e.run.Ended, e.run.Reason = api.Lost, r.config.Now().UTC(), "the test runner died before the run ended"
			r.write(e.run.ID)
		}
	}
	go r.keep()
	return nil
}

// load reads a record. One that cannot be read is to be removed.
func (r *Runner) load(bucket string, id, text []byte) error {
	if bucket != recordBucket {
		return nil
	}
	var l line
	err := json.Unmarshal(text, &l)
	sum, err2 := hex.DecodeString(l.Key)
	if err != nil || err2 != nil || len(sum) != len(key{}) || l.Run.ID != string(id) || l.Run.State == "" {
		r.history.changed[string(id)] = true
		return nil
	}
	e := &entry{key: key(sum), failOnError: l.FailOnError, run: l.Run, done: make(chan struct{})}
	close(e.done)
	r.add(e)
	if at, err := strconv.ParseInt(l.Run.ID[:min(12, len(id))], 32, 64); err == nil {
		r.last = max(r.last, at)
	}
	return nil
}

// write says that the run of an ID is to be written, or removed when it is not known
// any more.
func (r *Runner) write(id string) {
	if r.history.file != nil {
		r.history.changed[id] = true
		r.history.poke()
	}
}

func (h *history) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// retryAfter is when a write that failed is tried again.
const retryAfter = 5 * time.Second

// keep writes until the runner is shut down.
func (r *Runner) keep() {
	defer close(r.history.done)
	for {
		select {
		case <-r.history.wake:
			if !r.flush() {
				time.AfterFunc(retryAfter, r.history.poke)
			}
		case <-r.history.quit:
			r.flush()
			return
		}
	}
}

// flush writes what there is, in one transaction.
func (r *Runner) flush() bool {
	h := &r.history
	var writes []store.Write
	outputs := map[string]*string{} // that are written
	r.mu.Lock()
	for id := range h.changed {
		e, key := r.byID[id], []byte(id)
		if e == nil {
			writes = append(writes, store.Write{Bucket: recordBucket, Key: key}, store.Write{Bucket: outputBucket, Key: key})
			continue
		}
		writes = append(writes, store.Put(recordBucket, key, &line{hex.EncodeToString(e.key[:]), e.failOnError, e.run}))
		if outputs[id] = e.output; e.output != nil {
			writes = append(writes, store.Write{Bucket: outputBucket, Key: key, Value: []byte(*e.output)})
		}
	}
	changed := h.changed
	h.changed = map[string]bool{}
	r.mu.Unlock()
	err := h.file.Write(writes)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		h.trouble = nil
		for id, text := range outputs {
			if e := r.byID[id]; e != nil && text != nil {
				r.release(e)
			}
		}
		return true
	}
	err = fmt.Errorf("history of runs: %w", err)
	if h.trouble == nil || h.trouble.Error() != err.Error() {
		r.config.Warn(err)
	}
	h.trouble = err
	for id := range changed {
		h.changed[id] = true
	}
	return false
}
