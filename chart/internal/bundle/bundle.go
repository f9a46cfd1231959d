package bundle

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"

	"helm.sh/helm/v3/pkg/chart"

	"github.com/headgate-io/headgate/artifact"
)

// ErrChart marks what is no chart, or one that no tool can use.
var ErrChart = errors.New("not a valid chart")

// ErrVersion marks a Chart.yaml that cannot be given another version.
var ErrVersion = errors.New("set the version of the chart")

// Names of files at the root of a chart.
const (
	chartFile    = "Chart.yaml"
	lockFile     = "Chart.lock"
	valuesFile   = "values.yaml"
	requiresFile = "requirements.yaml" // apiVersion v1
	requiredLock = "requirements.lock" // apiVersion v1
	ignoreFile   = ".helmignore"
	chartsDir    = "charts"
)

// A Chart is a chart as a tree of files.
type Chart struct {
	Metadata *chart.Metadata // Chart.yaml, with the dependencies of requirements.yaml
	Lock     *chart.Lock     // Chart.lock, or requirements.lock; nil when there is none
	Files    fs.FS           // its root is that of the chart; .helmignore has been applied
}

// Limits returns l with the defaults of charts: 100 MiB unpacked, 5 MiB a file,
// 10,000 entries (what the package manager itself refuses, and the reference, A17).
func Limits(l artifact.Limits) artifact.Limits {
	l.Bytes = cmp.Or(l.Bytes, 100<<20)
	l.FileBytes = cmp.Or(l.FileBytes, 5<<20)
	l.Entries = cmp.Or(l.Entries, 10_000)
	return l
}

// invalid is the error about one file of a chart.
func invalid(file, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %w", ErrChart, plain(file), fmt.Errorf(format, args...))
}
