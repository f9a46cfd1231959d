//go:build unix

package source

import (
	"errors"
	"os"
	"path"
)

// syncDirs makes the entries of dir and of all directories above it durable.
func syncDirs(root *os.Root, dir string) error {
	for ; ; dir = path.Dir(dir) {
		d, err := root.Open(dir)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil || dir == "." {
			return err
		}
	}
}
