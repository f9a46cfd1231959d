// Package feed reads the objects of a controller from files and directories,
// and watches them.
//
// It looks at every file once in a while, by its size, times and number, so
// that it works on every file system, with mounts that are swapped as a whole
// and with editors that replace files. What differs is read; a file whose last
// change is so recent that its time could not tell another one is read again at
// the next look. A file is decoded when its content changed, so that the
// objects of others are the very same values in each [controller.Desired].
//
// What is gone, or has become defective a moment ago, counts from the second
// look on: it may be in the middle of being replaced.
//
// Of documents of one object in several files the first in the order of the
// paths stays; the others are defects. Files in a directory come in lexical
// order.
package feed

import (
	"context"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/controller"
)

// Limits of what a feed reads. What is beyond them is not read, and is a defect.
const (
	MaxFiles   = 100_000   // with documents
	MaxObjects = 100_000   // in all files
	MaxBytes   = 256 << 20 // in all files
)

// Files is a [controller.Feed] of documents in files.
type Files struct {
	// Paths are files and directories with documents. Of a directory it reads
	// what [source.Set.DecodeFS] does: files that end in .yaml, .yml or .json,
	// also in directories below it whose names do not begin with a dot, but
	// not behind links to directories.
	Paths   []string
	Secrets string         // directory of Secrets (see source.DirSecrets), watched too; "" for none
	More    source.Secrets // looked up last; nil for none
	Every   time.Duration  // between two looks; default 1s
	Warn    func(error)    // told once of each warning and defect; nil for nobody
}

// Follow implements [controller.Feed]. A path that does not exist, or cannot be
// read, at first is an error; later it is a defect.
func (f *Files) Follow(ctx context.Context, set func(controller.Desired)) error {
	w, err := f.begin()
	if err != nil {
		return err
	}
	every := f.Every
	if every <= 0 {
		every = time.Second
	}
	told := make(map[string]bool)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		if w.look(ctx) {
			all := w.merged()
			if ctx.Err() != nil {
				return nil
			}
			set(f.desired(all))
			told = f.tell(told, all)
		}
		timer.Reset(every)
	}
}

// desired returns what files hold, with all places of Secrets.
func (f *Files) desired(all contents) controller.Desired {
	places := []source.Secrets{all.set}
	if f.Secrets != "" {
		places = append(places, source.DirSecrets(f.Secrets))
	}
	if f.More != nil {
		places = append(places, f.More)
	}
	return controller.Desired{Objects: all.set.Objects, Secrets: source.Chain(places...), Defects: all.defects}
}

// tell tells what was not told already, and returns what was told of what there is now.
func (f *Files) tell(told map[string]bool, all contents) map[string]bool {
	now := make(map[string]bool)
	for _, list := range [][]error{all.defects, all.set.Warnings} {
		for _, err := range list {
			text := err.Error()
			if f.Warn != nil && !told[text] && !now[text] {
				f.Warn(err)
			}
			now[text] = true
		}
	}
	return now
}
