package bolt

import (
	"errors"
	"os"

	"go.etcd.io/bbolt"
)

const (
	leastFree = 4 << 20  // bytes; files with less to gain stay as they are
	copyBytes = 16 << 20 // of one transaction of a copy
)

// shrink returns a database without the free pages of db, which it closes, in
// the file at path: when most of it is free. A crash leaves one of the two
// files there, which hold the same. Where there is no room for a copy, or the
// system does not replace files that are open, db stays as it is. The file is
// locked all the time. With an error comes the database to be closed.
func shrink(db *bbolt.DB, path string, s space) (*bbolt.DB, error) {
	temp := path + ".new"
	os.Remove(temp) // of a process that was killed
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || s.free < leastFree || s.free < s.all/2 {
		return db, nil
	}
	small, err := copied(db, temp)
	if err != nil {
		os.Remove(temp)
		return db, nil
	}
	if err := os.Rename(temp, path); err != nil {
		small.Close()
		os.Remove(temp)
		return db, nil
	}
	return small, db.Close()
}

// copied returns the database of a new file that holds what db holds, durably.
func copied(db *bbolt.DB, path string) (*bbolt.DB, error) {
	small, _, err := open(path)
	if err != nil {
		return nil, err
	}
	small.NoSync = true
	err = Guard(func() error { return bbolt.Compact(small, db, copyBytes) })
	small.NoSync = false
	if err = errors.Join(err, small.Sync()); err != nil {
		return nil, errors.Join(err, small.Close())
	}
	return small, nil
}
