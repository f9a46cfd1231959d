package run

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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

	retryAfter = 5 * time.Second // when a write that failed is tried again
	idSize     = 24
)

// A line is the JSON of a record.
type line struct {
	Key         string  `json:"key"`
	FailOnError bool    `json:"failOnError,omitempty"`
	Run         api.Run `json:"run"`
}

// A history writes what happens to runs to disk in the background. The runner's lock
// guards what it has to write.
type history struct {
	file    *store.File // nil: nothing is kept
	wake    chan struct{}
	quit    context.CancelFunc
	writer  sync.WaitGroup
	pending map[string]bool // IDs of runs that are to be written, or removed
	trouble error           // why nothing is written
}

// recall fills the runner from its file: runs that were under way are Lost, and
// verdicts that nobody received may be shared.
func (r *Runner) recall() (err error) {
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
	r.wake = make(chan struct{}, 1)
	if bad := len(r.pending); bad > 0 {
		r.config.Warn(fmt.Errorf("history of runs: %d of %d records cannot be read and are removed", bad, bad+len(r.all)))
		r.poke()
	}
	for _, e := range r.all {
		if s := e.run.State; s == api.Queued || s == api.Running {
			e.run.State, e.run.Ended, e.run.Reason = api.Lost, r.config.Now().UTC(), "the test runner died before the run ended"
			r.write(e.run.ID)
		}
	}
	ctx, quit := context.WithCancel(context.Background())
	r.quit = quit
	r.writer.Go(func() {
		for ended := false; !ended; {
			select {
			case <-r.wake:
			case <-ctx.Done():
				ended = true
			}
			if !r.flush() {
				time.AfterFunc(retryAfter, r.poke)
			}
		}
	})
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
	if err != nil || err2 != nil || len(sum) != len(key{}) || len(id) != idSize || l.Run.ID != string(id) || l.Run.State == "" {
		r.pending[string(id)] = true
		return nil
	}
	e := &entry{key: key(sum), failOnError: l.FailOnError, run: l.Run, done: make(chan struct{})}
	close(e.done)
	r.add(e)
	return nil
}

// write says that the run of an ID is to be written, or removed when it is not known
// any more.
func (r *Runner) write(id string) {
	if r.file != nil {
		r.pending[id] = true
		r.poke()
	}
}

func (h *history) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// flush writes what there is, in one transaction.
func (r *Runner) flush() bool {
	lines, outputs := map[string][]byte{}, map[string]*string{} // nil for what is removed, or not written
	r.mu.Lock()
	for id := range r.pending {
		lines[id] = nil
		if e := r.byID[id]; e != nil {
			lines[id], outputs[id] = store.JSON(line{hex.EncodeToString(e.key[:]), e.failOnError, e.run}), e.output
		}
	}
	clear(r.pending)
	r.mu.Unlock()
	err := r.file.Update(func(put func(bucket string, key, value []byte)) {
		for id, text := range lines {
			put(recordBucket, []byte(id), text)
			if text == nil {
				put(outputBucket, []byte(id), nil)
			} else if outputs[id] != nil {
				put(outputBucket, []byte(id), []byte(*outputs[id]))
			}
		}
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("history of runs: %w", err)
		if r.trouble == nil || r.trouble.Error() != err.Error() {
			r.config.Warn(err)
		}
		for id := range lines {
			r.pending[id] = true
		}
	} else {
		for id, text := range outputs {
			if e := r.byID[id]; e != nil && text != nil {
				r.release(e)
			}
		}
	}
	r.trouble = err
	return err == nil
}
