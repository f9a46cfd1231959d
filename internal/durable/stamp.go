package durable

import (
	"fmt"
	"io/fs"
	"time"
)

// A Stamp tells one content of a file from another without reading it: what is
// known of a file that was not read again. The zero Stamp is that of no file.
type Stamp struct {
	size           int64
	modified       int64  // nanoseconds
	changed        int64  // of the inode, in nanoseconds, where the system tells it
	device, number uint64 // of the file, where the system tells them
}

// tick is the coarsest unit in which file systems write the time of a change.
const tick = 2 * time.Second

// StampOf returns the stamp of the file that info describes.
func StampOf(info fs.FileInfo) Stamp {
	s := Stamp{size: info.Size(), modified: info.ModTime().UnixNano()}
	s.system(info)
	return s
}

// String returns what of the stamp also another process can compare: size, time
// and number of the file. Device numbers change when a disk is mounted again.
func (s Stamp) String() string { return fmt.Sprintf("%d %d %d", s.size, s.modified, s.number) }

// Settled reports whether a change after now gets another stamp for certain.
// One that follows another within the same tick of the clock may not.
func (s Stamp) Settled(now time.Time) bool {
	return now.UnixNano()-max(s.modified, s.changed) > int64(tick)
}
