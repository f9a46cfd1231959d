package packfile

import (
	"errors"
	"io/fs"
	"os"
)

// tempFile makes a file, which keeps its name while it is open.
func tempFile() (*os.File, error) { return os.CreateTemp("", "headgate-pack-*") }

// closeTemp removes the name unless it is gone already.
func closeTemp(f *os.File) error {
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Remove(f.Name()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
