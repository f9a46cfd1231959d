package bundle

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"helm.sh/helm/v3/pkg/chart"

	"github.com/headgate-io/headgate/artifact"
)

var errTODO = errors.New("not done yet")

// ErrChart marks what is no chart, or one that no tool can use.
var ErrChart = errors.New("not a valid chart")

// A Chart is a chart as a tree of files.
type Chart struct {
	Metadata *chart.Metadata // Chart.yaml, with the dependencies of requirements.yaml for apiVersion v1
	Lock     *chart.Lock     // Chart.lock, or requirements.lock; nil when there is none
	Files    fs.FS           // its root is that of the chart; .helmignore has been applied
}

// OpenDir returns the chart in directory dir of tree. Errors wrap [ErrChart]
// when what is there is none, and fs.ErrNotExist when nothing is.
func OpenDir(tree fs.FS, dir string) (*Chart, error) { return nil, errTODO }

// An Archive is a chart in a file as it came (.tgz).
type Archive struct {
	*Chart
	Size   int64
	Digest string // sha256:HEX of the file
}

// ReadArchive reads a .tgz, whole. Limits are those of the archive and of each
// file; r itself may have l.Bytes. Errors wrap [ErrChart], or are those of r.
func ReadArchive(r io.Reader, l artifact.Limits) (*Archive, error) { return nil, errTODO }

// WriteTo writes the file as it came.
func (a *Archive) WriteTo(w io.Writer) (int64, error) { return 0, errTODO }

// Close releases the file.
func (a *Archive) Close() error { return nil }

// Limits returns l with the defaults of charts: 100 MiB unpacked, 5 MiB a file,
// 10,000 entries (what the package manager itself refuses, and the reference, A17).
func Limits(l artifact.Limits) artifact.Limits { return l }

// Values returns the text of values.yaml, nil when there is none.
func (c *Chart) Values() ([]byte, error) { return nil, errTODO }

// Vendored returns the charts in directory charts/, archives and directories alike.
func (c *Chart) Vendored(l artifact.Limits) ([]*chart.Metadata, error) { return nil, errTODO }

// An Edit is what is to be different in the archive of a chart.
type Edit struct {
	Version string   // in Chart.yaml, "" for what it has
	Values  []byte   // values.yaml, nil for what it has
	Charts  []*Chart // further ones in charts/
}

// Pack writes the archive of c with e: NAME/…, in the normal form of
// [artifact.Pack]. The same files make the same bytes.
func (c *Chart) Pack(ctx context.Context, w io.Writer, e Edit) (artifact.Report, error) {
	return artifact.Report{}, errTODO
}

// Merge merges texts of values: maps deeply, of all else the later wins (reference A14).
// Errors name the element of texts that is no map of values.
func Merge(texts ...[]byte) ([]byte, error) { return nil, errTODO }

// Stamp returns version with its build metadata replaced (reference A4).
func Stamp(version, metadata string) (string, error) { return "", errTODO }
