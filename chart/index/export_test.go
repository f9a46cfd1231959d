package index

import (
	"io"
	"iter"
)

// Unfiltered is Entries without passing over anything unread.
func Unfiltered(r io.Reader, name string) iter.Seq2[Entry, error] {
	return open(r).matching(func(key []byte) bool { return string(key) == name })
}

// Filter returns what is left of an index.
func Filter(r io.Reader, name string) ([]byte, error) { return io.ReadAll(newFilter(r, name)) }

// Forms returns the canonical forms of the versions of a chart, whether anyone
// can use them or not.
func Forms(r io.Reader, name string, filtered bool) (forms []string, err error) {
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
			forms = append(forms, string(value.canonical(nil, 0)))
			return nil
		},
	})
	return forms, err
}
