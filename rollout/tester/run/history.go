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

	"go.etcd.io/bbolt"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/internal/store"
)

// fileName is the name of the history in its directory. It has two buckets: the
// records by ID, and their outputs by ID.
const fileName = "runs.db"

var (
	recordBucket = []byte("runs")
	outputBucket = []byte("output")
)

// A line is the JSON of a record.
type line struct {
	Key         string  `json:"key"`
	FailOnError bool    `json:"failOnError,omitempty"`
	Run         api.Run `json:"run"`
}

// A history writes what happens to runs to disk in the background. The runner's lock
// guards it, except for the database.
type history struct {
	db      *bbolt.DB       // nil: nothing is kept
	changed map[string]bool // IDs of runs that are to be written, or removed
	trouble error           // why nothing is written
	wake    chan struct{}
	quit    chan struct{}
	done    chan struct{}
}

// recall fills the runner from its file: runs that were under way are Lost, and
// verdicts that nobody received may be shared.
func (r *Runner) recall() error {
	bad := 0
	h := &r.history
	load := func(tx *bbolt.Tx) error {
		return tx.Bucket(recordBucket).ForEach(func(id, text []byte) error {
			if !r.load(string(id), text) {
				h.changed[string(id)] = true
				bad++
			}
			return nil
		})
	}
	*h = history{changed: map[string]bool{}, wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	db, err := store.Open(r.config.Dir, fileName, prepare, load)
	if errors.Is(err, store.ErrDamaged) {
		path := filepath.Join(r.config.Dir, fileName)
		aside := path + ".corrupt"
		if err := os.Rename(path, aside); err != nil {
			return err
		}
		r.config.Warn(fmt.Errorf("history of runs: %w; it was set aside as %s, and a new one begun", err, aside))
		r.all, r.byID, r.byKey, bad = nil, map[string]*entry{}, map[key]*entry{}, 0
		clear(h.changed)
		db, err = store.Open(r.config.Dir, fileName, prepare, load)
	}
	if err != nil {
		return err
	}
	if h.db = db; bad > 0 {
		r.config.Warn(fmt.Errorf("history of runs: %d of %d records cannot be read and are removed", bad, bad+len(r.all)))
	}
	for _, e := range r.all {
		if s := e.run.State; s == api.Queued || s == api.Running {
			e.run.State, e.run.Ended, e.run.Reason = api.Lost, r.config.Now().UTC(), "the test runner died before the run ended"
			h.changed[e.run.ID] = true
		}
	}
	h.poke()
	go r.keep()
	return nil
}

func prepare(tx *bbolt.Tx) error {
	_, err := tx.CreateBucketIfNotExists(recordBucket)
	if err == nil {
		_, err = tx.CreateBucketIfNotExists(outputBucket)
	}
	return err
}

// load reads a record, and returns false if it cannot be read.
func (r *Runner) load(id string, text []byte) bool {
	var l line
	sum, err := []byte(nil), json.Unmarshal(text, &l)
	if err == nil {
		sum, err = hex.DecodeString(l.Key)
	}
	if err != nil || len(sum) != len(key{}) || l.Run.ID != id || l.Run.State == "" {
		return false
	}
	e := &entry{key: key(sum), failOnError: l.FailOnError, run: l.Run, done: make(chan struct{})}
	close(e.done)
	r.add(e)
	if at, err := strconv.ParseInt(id[:min(12, len(id))], 32, 64); err == nil {
		r.last = max(r.last, at)
	}
	return true
}

// write says that the run of an ID is to be written, or removed when it is not known
// any more.
func (r *Runner) write(id string) {
	if h := &r.history; h.db != nil {
		h.changed[id] = true
		h.poke()
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
	records, outputs := map[string][]byte{}, map[string]*string{} // nil: to be removed, or to be left as it is
	r.mu.Lock()
	for id := range h.changed {
		if records[id] = nil; r.byID[id] != nil {
			e := r.byID[id]
			records[id], _ = json.Marshal(line{hex.EncodeToString(e.key[:]), e.failOnError, e.run}) // of texts, numbers and times
			outputs[id] = e.output
		}
	}
	clear(h.changed)
	r.mu.Unlock()
	if len(records) == 0 {
		return true
	}
	err := h.db.Update(func(tx *bbolt.Tx) error {
		runs, texts := tx.Bucket(recordBucket), tx.Bucket(outputBucket)
		for id, record := range records {
			var err error
			if record == nil {
				err = errors.Join(runs.Delete([]byte(id)), texts.Delete([]byte(id)))
			} else if err = runs.Put([]byte(id), record); err == nil && outputs[id] != nil {
				err = texts.Put([]byte(id), []byte(*outputs[id]))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("history of runs: %w", err)
		if h.trouble == nil || h.trouble.Error() != err.Error() {
			r.config.Warn(err)
		}
	}
	h.trouble = err
	for id := range records {
		if e := r.byID[id]; err != nil {
			h.changed[id] = true
		} else if e != nil && outputs[id] != nil {
			r.release(e)
		}
	}
	return err == nil
}

// savedOutput returns what is on disk of the output of a run; "" when there is
// nothing, or after the end.
func (r *Runner) savedOutput(id string) (text string) {
	if db := r.history.db; db != nil {
		_ = db.View(func(tx *bbolt.Tx) error {
			text = string(tx.Bucket(outputBucket).Get([]byte(id)))
			return nil
		})
	}
	return text
}

// endHistory writes what is left.
func (r *Runner) endHistory() error {
	h := &r.history
	if h.db == nil {
		return nil
	}
	close(h.quit)
	<-h.done
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(h.trouble, h.db.Close())
}
