// Package feed reads the objects of a controller from files and directories,
// and watches them.
package feed

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/controller"
)

// Files is a [controller.Feed] of documents in files.
type Files struct {
	Paths   []string       // files and directories with documents
	Secrets string         // directory of Secrets (see source.DirSecrets), watched too; "" for none
	More    source.Secrets // looked up last; nil for none
	Every   time.Duration  // between two looks; default 1s
	Warn    func(error)    // told once of each warning and defect; nil for nobody
}

// Follow implements [controller.Feed].
func (f *Files) Follow(ctx context.Context, set func(controller.Desired)) error {
	return errors.New("not written yet")
}
