package durable

import "io/fs"

// setSystemFields does nothing: the number of a file is available for open files only.
func (s *Stamp) setSystemFields(fs.FileInfo) {}
