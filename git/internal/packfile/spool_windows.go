package packfile

import (
	"errors"
	"os"
)

// unlink does nothing: an open file keeps its name on Windows.
func unlink(*os.File) error { return nil }

func closeUnlinked(f *os.File) error {
	err := f.Close()
	if errors.Is(err, os.ErrClosed) {
		return err
	}
	return errors.Join(err, os.Remove(f.Name()))
}
