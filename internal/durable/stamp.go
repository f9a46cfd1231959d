package durable

import (
	"fmt"
	"io/fs"
	"time"
)

// A Stamp detects changes of the content of a file without reading it: if two stamps differ, the file may
// have changed. The zero Stamp stands for a missing file.
type Stamp struct {
	size           int64
	modified       int64  // nanoseconds
	changed        int64  // of the inode, in nanoseconds; 0 if the system does not provide it
	device, number uint64 // of the file; 0 if the system does not provide them
}

// timeResolution is the coarsest resolution of modification times of file systems.
const timeResolution = 2 * time.Second

// StampOf returns the stamp of the file that info describes.
func StampOf(info fs.FileInfo) Stamp {
	s := Stamp{size: info.Size(), modified: info.ModTime().UnixNano()}
	s.setSystemFields(info)
	return s
}

// String returns the part of the stamp that other processes can compare: size, modification time and number
// of the file. It omits the device number, which changes when a disk is mounted again.
func (s Stamp) String() string { return fmt.Sprintf("%d %d %d", s.size, s.modified, s.number) }

// Settled reports whether any change after now certainly results in another stamp. That is not the case
// if the last change is so recent that another one may get the same time.
func (s Stamp) Settled(now time.Time) bool {
	return now.UnixNano()-max(s.modified, s.changed) > int64(timeResolution)
}
