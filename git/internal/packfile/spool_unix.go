//go:build !windows

package packfile

import (
	"errors"
	"os"
)

// tempFile makes a file and removes its name at once, so that nothing is left
// behind whatever happens to the process.
func tempFile() (*os.File, error) {
	f, err := os.CreateTemp("", "headgate-pack-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func closeTemp(f *os.File) error { return f.Close() }
