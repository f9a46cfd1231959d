package index

import (
	"bufio"
	"io"
)

// Scanned reports whether a scanner reads an index to its end, so that it is not read
// whole.
func Scanned(r io.Reader, name string) bool {
	return scan(bufio.NewReader(r), &visitor{
		chart:     func(chart string) bool { return chart == name },
		malformed: func(string, int, error) {},
		version:   func(string, version) error { return nil },
	}) == nil
}

// Whole reads an index whole, whatever its layout.
func Whole(r io.ReadSeeker, name string) ([]Entry, error) {
	var list []Entry
	err := readWhole(r, &layoutError{}, &visitor{
		chart:     func(chart string) bool { return chart == name },
		malformed: func(string, int, error) {},
		version: func(chart string, v version) error {
			if e, problem := v.entry(chart); problem == nil {
				list = append(list, e)
			}
			return nil
		},
	})
	return list, err
}
