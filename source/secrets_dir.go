package source

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

const maxKeys = 1024 // of one secret in a directory

// DirSecrets returns the secrets in a directory of files: the value of a key is
// the content of NAMESPACE/NAME/KEY or else, whatever the namespace,
// NAME/KEY. It reads what Kubernetes mounts: links may lead anywhere within
// dir, and names that begin with ".." are passed over. One newline after a
// value of a single line is dropped. A value is limited to 1 MiB.
//
// What is there and cannot be read, such as a file NAME where a directory
// belongs, is an error that is no [fs.ErrNotExist]. The directory is opened for
// each secret. It has no service accounts.
func DirSecrets(dir string) Secrets { return dirSecrets(dir) }

type dirSecrets string

// Secret implements [Secrets].
func (d dirSecrets) Secret(_ context.Context, namespace, name string) (Secret, error) {
	none := missingSecret(namespace, name, fmt.Sprintf("no files %s", path.Join(string(d), name, "KEY")))
	if objectName(namespace) != nil || objectName(name) != nil {
		return Secret{}, none
	}
	what := "secret " + namespace + "/" + name
	root, err := os.OpenRoot(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return Secret{}, missingSecret(namespace, name, "no directory "+string(d))
	}
	if err != nil {
		return Secret{}, &defective{what, fmt.Errorf("directory of secrets: %w", err), false}
	}
	defer root.Close()
	var empty error
	for _, dir := range []string{namespace + "/" + name, name} {
		data, err := readKeys(root, dir)
		switch {
		case err == errNoKeys:
			empty = cmp.Or(empty, fmt.Errorf("directory %s %w", path.Join(string(d), dir), err))
		case err != nil:
			return Secret{}, &defective{what, fmt.Errorf("in directory %s: %w", string(d), err), false}
		case len(data) > 0:
			return Secret{Type: typeOf(data), Data: data}, nil
		}
	}
	if empty != nil {
		return Secret{}, &defective{what, empty, true}
	}
	return Secret{}, none
}

// PullSecrets implements [Secrets].
func (d dirSecrets) PullSecrets(_ context.Context, namespace, serviceAccount string) ([]Secret, error) {
	return nil, missingAccount(namespace, serviceAccount, "a directory of secrets has none")
}

var errNoKeys = errors.New("is empty: write a file for each key")

// readKeys reads the files in dir; no such directory holds none.
func readKeys(root *os.Root, dir string) (map[string][]byte, error) {
	info, err := lookAt(root, dir)
	if info == nil || err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is a file: make it a directory with a file for each key", dir)
	}
	names, err := listKeys(root, dir)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, errNoKeys
	}
	data := make(map[string][]byte)
	for _, name := range names {
		value, err := readKey(root, dir+"/"+name)
		if err != nil {
			return nil, err
		}
		if value != nil {
			data[name] = value
		}
	}
	return data, nil
}

// lookAt returns what is at name, nil when nothing is. A link to nothing is an error.
func lookAt(root *os.Root, name string) (fs.FileInfo, error) {
	info, err := root.Stat(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return info, err
	}
	if _, err := root.Lstat(name); err == nil {
		return nil, fmt.Errorf("%s is a link to what does not exist", name)
	}
	return nil, nil
}

func listKeys(root *os.Root, dir string) ([]string, error) {
	f, err := root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(maxKeys + 1)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if len(names) > maxKeys {
		return nil, fmt.Errorf("%s holds more than %d files", dir, maxKeys)
	}
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, "..") }), nil
}

// readKey reads one file; anything else than a file has no value.
func readKey(root *os.Root, name string) ([]byte, error) {
	info, err := lookAt(root, name)
	if info == nil || err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	value, err := read(root, name, maxSecret)
	if err != nil {
		return nil, err
	}
	return trimLine(value), nil
}

// trimLine drops the newline after a single line, which editors and echo add.
func trimLine(value []byte) []byte {
	if i := bytes.IndexByte(value, '\n'); i >= 0 && i == len(value)-1 {
		return bytes.TrimSuffix(value[:i], []byte("\r"))
	}
	return value
}
