package run

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
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

	retryAfter = 5 * time.Second // delay before a failed write is tried again
	idSize     = 24
)

// A storedRun is the JSON of a record.
type storedRun struct {
	Key         string  `json:"key"`
	FailOnError bool    `json:"failOnError,omitempty"`
	Run         api.Run `json:"run"`
}

// A history writes runs to disk in the background. The runner's lock guards its fields.
type history struct {
	file       *store.File     // nil: nothing is kept
	pending    map[string]bool // IDs of runs to write or remove
	writing    bool            // flush is running, in a goroutine of background
	background sync.WaitGroup
	writeErr   error // error of the last write, or nil
}

// openHistory fills the runner from its file. Runs that were under way become Lost;
// undelivered verdicts may still be shared.
func (r *Runner) openHistory() (err error) {
	path := filepath.Join(r.config.Dir, fileName)
	for range 2 {
		r.all, r.byID, r.byKey, r.pending = nil, map[string]*entry{}, map[key]*entry{}, map[string]bool{}
		r.file, err = store.Open(r.config.Dir, fileName, []string{recordBucket, outputBucket}, r.load)
		if !errors.Is(err, store.ErrDamaged) {
			break
		}
		aside := path + ".corrupt"
		if err := os.Rename(path, aside); err != nil {
			return err
		}
		r.config.Warn(fmt.Errorf("history of runs: %w; it was set aside as %s, and a new one begun", err, aside))
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.pending {
		r.scheduleWrite(id)
	}
	if unreadable := len(r.pending); unreadable > 0 {
		r.config.Warn(fmt.Errorf("history of runs: %d of %d records cannot be read and are removed", unreadable, unreadable+len(r.all)))
	}
	for _, e := range r.all {
		if s := e.run.State; s == api.Queued || s == api.Running {
			e.run.State, e.run.Ended, e.run.Reason = api.Lost, r.config.Now().UTC(), "the test runner died before the run ended"
			r.scheduleWrite(e.run.ID)
		}
	}
	return nil
}

// load reads a record. It marks a record that cannot be read for removal.
func (r *Runner) load(bucket string, id, text []byte) error {
	if bucket != recordBucket {
		return nil
	}
	var l storedRun
	err := json.Unmarshal(text, &l)
	sum, err2 := hex.DecodeString(l.Key)
	if err != nil || err2 != nil || len(sum) != len(key{}) || len(id) != idSize || l.Run.ID != string(id) || l.Run.State == "" {
		r.pending[string(id)] = true
		return nil
	}
	e := &entry{key: key(sum), failOnError: l.FailOnError, run: l.Run, done: make(chan struct{})}
	close(e.done)
	r.add(e)
	return nil
}

// scheduleWrite has the run of an ID written, or removed if the run is not known any more.
func (r *Runner) scheduleWrite(id string) {
	if r.file == nil {
		return
	}
	r.pending[id] = true
	if !r.writing {
		r.writing = true
		r.background.Go(r.flush)
	}
}

// flush writes pending runs, one transaction after the other. It tries a failed transaction
// again after retryAfter, except at a shutdown.
func (r *Runner) flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.pending) > 0 {
		var writes []store.Write
		var outputs []*entry // runs whose output is written
		changed := r.pending
		r.pending = map[string]bool{}
		for id := range changed {
			record, output := store.Write{Bucket: recordBucket, Key: []byte(id)}, store.Write{Bucket: outputBucket, Key: []byte(id)}
			e := r.byID[id]
			if e != nil {
				record.Value = storedRun{hex.EncodeToString(e.key[:]), e.failOnError, e.run}
			}
			if writes = append(writes, record); e == nil {
				writes = append(writes, output)
			} else if e.output != "" {
				output.Value = []byte(e.output)
				writes, outputs = append(writes, output), append(outputs, e)
			}
		}
		r.mu.Unlock()
		err := r.file.Write(writes)
		r.mu.Lock()
		if err == nil {
			for _, e := range outputs {
				e.output = ""
			}
			r.writeErr = nil
			continue
		}
		err = fmt.Errorf("history of runs: %w", err)
		if r.writeErr == nil || r.writeErr.Error() != err.Error() {
			r.config.Warn(err)
		}
		maps.Copy(r.pending, changed)
		if r.writeErr = err; r.root.Err() != nil {
			break
		}
		r.mu.Unlock()
		select {
		case <-time.After(retryAfter):
		case <-r.root.Done():
		}
		r.mu.Lock()
	}
	r.writing = false
}
