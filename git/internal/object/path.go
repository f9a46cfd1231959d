package object

import "strings"

// CheckPath returns an error for a slash-separated path with a part that no
// honest tree has: "..", or what some file system takes for .git.
func CheckPath(path string) error {
	for part := range strings.SplitSeq(path, "/") {
		if err := checkName(part); err != nil {
			return err
		}
	}
	return nil
}
