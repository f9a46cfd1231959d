package remote

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const maxKey = 16 << 10 // bytes of a file that holds a key

var (
	errNoKeys  = errors.New("there is no directory of keys: see --keys")
	errNoKey   = errors.New("it is neither the name of a file in the directory of keys nor a path to one")
	errKeyForm = errors.New("the file of the key must hold one line of at most 16 KiB, without control characters")
)

// key returns what a file of the directory of keys holds, without white space
// around it. The error is fs.ErrNotExist when there is none of that name or path,
// also when the path leads elsewhere; it never holds content.
func (s *Servers) key(name string) (string, error) {
	if s.Keys == "" {
		return "", errNoKeys
	}
	root, err := os.OpenRoot(s.Keys)
	if err != nil {
		return "", fmt.Errorf("the directory of keys cannot be opened")
	}
	defer root.Close()
	if !filepath.IsAbs(name) {
		if !filepath.IsLocal(name) || name == "." || strings.ContainsAny(name, `/\`) {
			return "", errNoKey
		}
		name = filepath.Join(s.Keys, name)
	}
	base, err := filepath.EvalSymlinks(s.Keys)
	if err == nil {
		base, err = filepath.Abs(base)
	}
	if err == nil {
		name, err = filepath.EvalSymlinks(name) // the files of a mounted Secret are links
	}
	if err == nil {
		name, err = filepath.Abs(name)
	}
	if err == nil {
		name, err = filepath.Rel(base, name)
	}
	if err != nil {
		return "", fs.ErrNotExist
	}
	if info, err := root.Stat(name); err != nil || !info.Mode().IsRegular() { // a pipe would not open
		return "", fs.ErrNotExist
	}
	f, err := root.Open(name)
	if err != nil {
		return "", fs.ErrNotExist
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKey+1))
	if err != nil {
		return "", fmt.Errorf("the file of the key cannot be read")
	}
	key := strings.TrimSpace(string(text))
	if len(text) > maxKey || key == "" || strings.ContainsFunc(key, isControl) {
		return "", errKeyForm
	}
	return key, nil
}

// isControl reports whether r would end or forge a line of a header.
func isControl(r rune) bool { return r < ' ' || r == 0x7f }
