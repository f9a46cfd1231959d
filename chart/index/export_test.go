package index

import (
	"fmt"
	"io"
	"iter"
)

// Unfiltered is Entries without passing over anything unread.
func Unfiltered(r io.Reader, name string) iter.Seq2[Entry, error] {
	return open(r).matching(func(key []byte) bool { return string(key) == name })
}

// Filter returns what is left of an index.
func Filter(r io.Reader, name string) ([]byte, error) { return io.ReadAll(newFilter(r, name)) }

// A Version is the canonical form of a version of a chart, whether anyone can
// use it or not, and the line of the index where it begins.
type Version struct {
	Form string
	Line int
}

func (v Version) String() string { return fmt.Sprintf("line %d: %q", v.Line, v.Form) }

// Versions returns those of one chart.
func Versions(r io.Reader, name string, filtered bool) (list []Version, err error) {
	d := open(r)
	if filtered {
		d = openFiltered(r, name)
	}
	err = d.walk(visitor{
		chart:  func(key []byte) bool { return string(key) == name },
		oddity: func([]byte, int, error) {},
		version: func(_ []byte, value *record) error {
			if value.big {
				return errStop
			}
			list = append(list, Version{string(value.canonical(nil, 0)), value.nodes[0].line})
			return nil
		},
	})
	return list, err
}
