package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// asides is how many damaged files are kept. The last place is taken again.
const asides = 9

// SetAside gives a damaged file the name PATH.corrupt-N, which it returns. It
// does so under the lock of the file, and to that file alone: "" says that another
// process was faster, and may have a new one in its place. The error wraps
// [ErrInUse] when it uses that.
func SetAside(path string, damaged os.FileInfo) (aside string, err error) {
	f, err := openAlone(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, cause(err))
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !os.SameFile(info, damaged) {
		return "", err
	}
	for n := 1; n <= asides; n++ {
		aside = fmt.Sprintf("%s.corrupt-%d", path, n)
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err = os.Rename(path, aside); err != nil {
		f.Close() // there are systems that rename no file that is open
		err = os.Rename(path, aside)
	}
	return aside, err
}
