//go:build !windows

package packfile

import "os"

// unlink removes the name of f now, so that nothing is left behind whatever
// happens to the process.
func unlink(f *os.File) error { return os.Remove(f.Name()) }

func closeUnlinked(f *os.File) error { return f.Close() }
