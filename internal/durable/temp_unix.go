//go:build unix

package durable

import "os"

// TempFile creates a temporary file without a name. It disappears when it is closed, even by a crash.
func TempFile() (*os.File, error) {
	f, err := os.CreateTemp("", "headgate-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
