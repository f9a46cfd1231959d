package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// LookPath returns the file of a command. A name without a separator is looked
// up in the PATH of env, not in that of this process.
func LookPath(name string, env []string) (string, error) {
	if strings.ContainsRune(name, '/') || strings.ContainsRune(name, filepath.Separator) {
		return name, nil
	}
	for _, dir := range filepath.SplitList(path(env)) {
		if !filepath.IsAbs(dir) {
			continue // it would depend on the working directory, which the user did not choose
		}
		file := filepath.Join(dir, name)
		if runtime.GOOS == "windows" { // exec.LookPath knows the extensions of programs
			if found, err := exec.LookPath(file); err == nil {
				return found, nil
			}
			continue
		}
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

// path returns the PATH of env. The last entry counts, as for an [exec.Cmd].
func path(env []string) string {
	value := ""
	for _, entry := range env {
		key, text, _ := strings.Cut(entry, "=")
		if key == "PATH" || runtime.GOOS == "windows" && strings.EqualFold(key, "PATH") {
			value = text
		}
	}
	return value
}
