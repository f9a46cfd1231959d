package run

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/headgate-io/headgate/internal/bolt"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

// fileName is the name of the history in its directory. It has two buckets: the
// records by ID, and their outputs by ID.
const fileName = "runs.db"

var (
	recordBucket = []byte("runs")
	outputBucket = []byte("output")
)

// recordMax is the size of a record that is read, in bytes.
const recordMax = 1 << 20

// A stored is a run on its way to the file or out of it.
type stored struct {
	key         key
	failOnError bool
	run         api.Run // without output
	output      *string // nil to leave it as it is
}

// stored returns e for the file, with its output when that is not there.
func (e *entry) stored() stored {
	s := stored{key: e.key, failOnError: e.failOnError, run: e.run}
	if e.ended() && !e.saved && e.live != nil {
		s.output = &e.live.final.Output
	}
	return s
}

// A line is the JSON of a record.
type line struct {
	Key         string  `json:"key"`
	FailOnError bool    `json:"failOnError,omitempty"`
	Run         api.Run `json:"run"`
}

func encode(s stored) ([]byte, error) {
	return json.Marshal(line{hex.EncodeToString(s.key[:]), s.failOnError, s.run})
}

// decode reads a record. Whatever it is given, it returns one that the desk can
// work with, or an error.
func decode(id, text []byte) (s stored, err error) {
	if len(text) > recordMax {
		return s, fmt.Errorf("larger than %d bytes", recordMax)
	}
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return s, err
	}
	switch n, err := hex.Decode(s.key[:], []byte(l.Key[:min(len(l.Key), 2*len(s.key))])); {
	case err != nil || n != len(s.key) || len(l.Key) != 2*len(s.key):
		return s, errors.New("key: want a SHA-256")
	case !validID(l.Run.ID) || l.Run.ID != string(id):
		return s, errors.New("id: want that of the record")
	case idTime(l.Run.ID) > lastTime:
		return s, errors.New("id: want one of a year before 10000")
	case !known(l.Run.State):
		return s, errors.New("state: unknown")
	case final(l.Run.State) && l.Run.Ended.IsZero():
		return s, errors.New("ended: want the time when it ended")
	}
	l.Run.Output = ""
	s.failOnError, s.run = l.FailOnError, l.Run
	return s, nil
}

func known(s api.RunState) bool {
	switch s {
	case api.Queued, api.Running, api.Succeeded, api.Failed, api.TimedOut, api.Cancelled, api.Stopped, api.Lost:
		return true
	}
	return false
}

// A file is the history on disk.
type file struct{ db *bbolt.DB }

// openFile opens the history of a directory. A damaged one is set aside: warning
// says so then, and names it.
func openFile(dir string) (f *file, warning, err error) {
	if err := bolt.MkdirAll(dir); err != nil {
		return nil, nil, err
	}
	path := filepath.Join(dir, fileName)
	for range openTries {
		found, _ := os.Stat(path)
		if f, err = tryFile(path); !errors.Is(err, bolt.ErrCorrupt) {
			return f, warning, err
		}
		switch aside, moved := bolt.SetAside(path, found); {
		case moved != nil:
			return nil, warning, errors.Join(err, moved)
		case aside != "":
			warning = fmt.Errorf("%w; it was set aside as %s, and a new one begun", err, aside)
		}
	}
	return nil, warning, err
}

// openTries bounds how often a history is opened that is damaged each time.
const openTries = 3

func tryFile(path string) (*file, error) {
	db, err := bolt.Open(path)
	if err != nil {
		return nil, err
	}
	f := &file{db}
	err = f.update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(recordBucket)
		if err == nil {
			_, err = tx.CreateBucketIfNotExists(outputBucket)
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.close())
	}
	return f, nil
}

// update and view run do, and make errors of what the library panics of.
func (f *file) update(do func(*bbolt.Tx) error) error {
	return bolt.Guard(func() error { return f.db.Update(do) })
}

func (f *file) view(do func(*bbolt.Tx) error) error {
	return bolt.Guard(func() error { return f.db.View(do) })
}

// load returns the records, by ID, and the IDs of those that cannot be read.
func (f *file) load() (all []stored, bad []string, err error) {
	err = f.view(func(tx *bbolt.Tx) error {
		return tx.Bucket(recordBucket).ForEach(func(id, text []byte) error {
			if s, err := decode(id, text); err == nil {
				all = append(all, s)
			} else {
				bad = append(bad, string(id))
			}
			return nil
		})
	})
	return all, bad, err
}

// write puts and removes runs, all or none.
func (f *file) write(batch []stored, removed []string) error {
	return f.update(func(tx *bbolt.Tx) error {
		records, outputs := tx.Bucket(recordBucket), tx.Bucket(outputBucket)
		var errs error
		for _, s := range batch {
			text, err := encode(s)
			if err == nil {
				err = records.Put([]byte(s.run.ID), text)
			}
			if s.output != nil && err == nil {
				err = outputs.Put([]byte(s.run.ID), []byte(*s.output))
			}
			errs = errors.Join(errs, err)
		}
		for _, id := range removed {
			errs = errors.Join(errs, records.Delete([]byte(id)), outputs.Delete([]byte(id)))
		}
		return errs
	})
}

// output returns the output of a run; "" when there is none.
func (f *file) output(id string) (text string, err error) {
	err = f.view(func(tx *bbolt.Tx) error {
		text = string(tx.Bucket(outputBucket).Get([]byte(id)))
		return nil
	})
	return text, err
}

func (f *file) close() error { return bolt.Guard(f.db.Close) }
