package run

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// recall fills the runner from its file: runs that were under way are Lost, and
// verdicts that nobody received may be shared.
func (r *Runner) recall() error {
	db, err := store.Open(r.config.Dir, fileName, prepare, r.load)
	if errors.Is(err, store.ErrDamaged) {
		path := filepath.Join(r.config.Dir, fileName)
		aside := ""
		for n := 1; n < 10; n++ { // the last place is taken again
			if aside = path + ".corrupt-" + strconv.Itoa(n); !exists(aside) {
				break
			}
		}
		if err := os.Rename(path, aside); err != nil {
			return err
		}
		r.config.Warn(fmt.Errorf("history of runs: %w; it was set aside as %s, and a new one begun", err, aside))
		r.all, r.byID, r.byKey = nil, map[string]*entry{}, map[key]*entry{}
		db, err = store.Open(r.config.Dir, fileName, prepare, r.load)
	}
	if err != nil {
		return err
	}
	r.history = &history{runner: r, db: db, changed: map[string]*entry{}, wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	bad := 0
	r.all = slices.DeleteFunc(r.all, func(e *entry) bool {
		if e.run.State == "" {
			bad++
			r.history.remove(e)
		}
		return e.run.State == ""
	})
	if bad > 0 {
		r.config.Warn(fmt.Errorf("history of runs: %d of %d records cannot be read and are removed", bad, bad+len(r.all)))
	}
	for _, e := range r.all {
		if s := e.run.State; s == api.Queued || s == api.Running {
			e.run.State, e.run.Ended, e.run.Reason = api.Lost, r.config.Now().UTC(), "the test runner died before the run ended"
			r.history.put(e)
		}
	}
	go r.history.keep()
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func prepare(tx *bbolt.Tx) error {
	_, err := tx.CreateBucketIfNotExists(recordBucket)
	if err == nil {
		_, err = tx.CreateBucketIfNotExists(outputBucket)
	}
	return err
}

// load reads the records. Those that cannot be read have no state.
func (r *Runner) load(tx *bbolt.Tx) error {
	return tx.Bucket(recordBucket).ForEach(func(id, text []byte) error {
		e := &entry{saved: true, done: make(chan struct{})}
		close(e.done)
		var l line
		sum, err := []byte(nil), json.Unmarshal(text, &l)
		if err == nil {
			sum, err = hex.DecodeString(l.Key)
		}
		if err != nil || len(sum) != len(e.key) || l.Run.ID != string(id) || l.Run.State == "" {
			r.all = append(r.all, &entry{run: api.Run{ID: string(id)}})
			return nil
		}
		e.key, e.failOnError, e.run = key(sum), l.FailOnError, l.Run
		r.add(e)
		if at, err := strconv.ParseInt(l.Run.ID[:min(12, len(l.Run.ID))], 32, 64); err == nil {
			r.last = max(r.last, at)
		}
		return nil
	})
}

// A history writes what happens to runs to disk in the background. A nil one
// keeps nothing. The runner's lock guards it, except for the database.
type history struct {
	runner  *Runner
	db      *bbolt.DB
	changed map[string]*entry // to be written
	removed []string          // to be removed
	trouble error             // why nothing is written
	wake    chan struct{}
	quit    chan struct{}
	done    chan struct{}
}

// put and remove say what is to be written.
func (h *history) put(e *entry) {
	if h != nil {
		h.changed[e.run.ID] = e
		h.poke()
	}
}

func (h *history) remove(e *entry) {
	if h != nil {
		delete(h.changed, e.run.ID)
		h.removed = append(h.removed, e.run.ID)
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
func (h *history) keep() {
	defer close(h.done)
	for {
		select {
		case <-h.wake:
		case <-h.quit:
			h.flush()
			return
		}
		if !h.flush() {
			select {
			case <-time.After(retryAfter):
				h.poke()
			case <-h.quit:
			}
		}
	}
}

// flush writes what there is, in one transaction.
func (h *history) flush() bool {
	type write struct {
		entry  *entry
		record []byte
		output *string // nil to leave it as it is
	}
	r := h.runner
	r.mu.Lock()
	writes, removed := make([]write, 0, len(h.changed)), h.removed
	for _, e := range h.changed {
		text, _ := json.Marshal(line{hex.EncodeToString(e.key[:]), e.failOnError, e.run}) // of texts, numbers and times
		w := write{entry: e, record: text}
		if !e.saved {
			w.output = e.output
		}
		writes = append(writes, w)
	}
	h.changed, h.removed = map[string]*entry{}, nil
	r.mu.Unlock()
	if len(writes)+len(removed) == 0 {
		return true
	}
	err := h.db.Update(func(tx *bbolt.Tx) error {
		records, outputs := tx.Bucket(recordBucket), tx.Bucket(outputBucket)
		for _, w := range writes {
			id := []byte(w.entry.run.ID)
			if err := records.Put(id, w.record); err != nil {
				return err
			}
			if w.output != nil {
				if err := outputs.Put(id, []byte(*w.output)); err != nil {
					return err
				}
			}
		}
		for _, id := range removed {
			if err := errors.Join(records.Delete([]byte(id)), outputs.Delete([]byte(id))); err != nil {
				return err
			}
		}
		return nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && (h.trouble == nil || h.trouble.Error() != err.Error()) {
		r.config.Warn(fmt.Errorf("history of runs: %w", err))
	}
	h.trouble = err
	for _, w := range writes {
		switch known := r.byID[w.entry.run.ID] == w.entry; {
		case err == nil && w.output != nil:
			w.entry.saved = true
			r.release(w.entry)
		case err != nil && known:
			h.put(w.entry)
		}
	}
	if err != nil {
		h.removed = append(removed, h.removed...)
	}
	return err == nil
}

// output returns what is on disk of the output of a run; "" when there is
// nothing, or after the end.
func (h *history) output(id string) (text string) {
	if h == nil {
		return ""
	}
	_ = h.db.View(func(tx *bbolt.Tx) error {
		text = string(tx.Bucket(outputBucket).Get([]byte(id)))
		return nil
	})
	return text
}

func (h *history) ready() error {
	if h == nil || h.trouble == nil {
		return nil
	}
	return fmt.Errorf("history of runs: %w", h.trouble)
}

// close writes what is left.
func (h *history) close() error {
	if h == nil {
		return nil
	}
	close(h.quit)
	<-h.done
	h.runner.mu.Lock()
	defer h.runner.mu.Unlock()
	return errors.Join(h.ready(), h.db.Close())
}
