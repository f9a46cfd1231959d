package durable

import (
	"os"

	"golang.org/x/sys/windows"
)

// TempFile creates a temporary file that disappears when it is closed, even by a crash.
func TempFile() (*os.File, error) {
	f, err := os.CreateTemp("", "headgate-*")
	if err != nil {
		return nil, err
	}
	name := f.Name()
	if err := f.Close(); err != nil {
		return nil, err
	}
	return os.OpenFile(name, os.O_RDWR|os.O_TRUNC|windows.FILE_FLAG_DELETE_ON_CLOSE, 0o600)
}
