package index

import (
	"io"
	"iter"
	"time"

	"github.com/headgate-io/headgate/chart/internal/yaml"
)

// An Entry is one version of a chart.
type Entry struct {
	Name        string
	Version     string // as it is spelled
	AppVersion  string
	Description string
	Type        string // application, library or ""
	Deprecated  bool
	Created     time.Time // zero when it is not told
	Digest      string    // sha256 in hex or sha256:HEX, "" when it is not told
	URLs        []string  // where its archive is, as they are spelled; at least one
	Line        int       // of the index, where the entry begins, from 1
}

// Entries returns the versions of the named chart, in the order of the index.
// What is malformed is passed over: see [Check]. The error, the last element,
// is that of r or tells that r is no index; what belongs to other charts is
// read only as far as it takes to pass over it.
func Entries(r io.Reader, name string) iter.Seq2[Entry, error] {
	return openFiltered(r, name).matching(func(key []byte) bool { return string(key) == name })
}

// matching returns the versions of the charts that are wanted.
func (d *document) matching(wanted func(chart []byte) bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		err := d.walk(visitor{
			chart:  wanted,
			oddity: func([]byte, int, error) {},
			version: func(chart []byte, value *record) error {
				e, problem := value.entry(chart)
				if problem == nil && !yield(e, nil) {
					return errStop
				}
				return nil
			},
		})
		if err != nil && err != errStop {
			yield(Entry{}, err)
		}
	}
}

// limits of a document.
var limits = yaml.Limits{}

// open returns the document in r, of which nothing is left out.
func open(r io.Reader) *document {
	src := &input{r: r}
	return &document{src: src, in: yaml.NewReader(src, limits), line: func(n int) int { return n }}
}

// openFiltered returns the document in r, of which the versions of other charts
// may be left out.
func openFiltered(r io.Reader, name string) *document {
	src := &input{r: r}
	f := newFilter(src, name)
	return &document{src: src, in: yaml.NewReader(f, limits), line: f.line}
}
