package source

import (
	"bytes"
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
// The directory is opened for each secret. It has no service accounts.
func DirSecrets(dir string) Secrets { return dirSecrets(dir) }

type dirSecrets string

// Secret implements [Secrets].
func (d dirSecrets) Secret(_ context.Context, namespace, name string) (Secret, error) {
	none := missingSecret(namespace, name, fmt.Sprintf("no files %s", path.Join(string(d), name, "KEY")))
	if objectName(namespace) != nil || objectName(name) != nil {
		return Secret{}, none
	}
	root, err := os.OpenRoot(string(d))
	if err != nil {
		return Secret{}, fmt.Errorf("secret %s/%s: directory of secrets: %w", namespace, name, err)
	}
	defer root.Close()
	for _, dir := range []string{namespace + "/" + name, name} {
		data, err := readKeys(root, dir)
		if err != nil {
			return Secret{}, fmt.Errorf("secret %s/%s: %w", namespace, name, err)
		}
		if len(data) > 0 {
			return Secret{Type: typeOf(data), Data: data}, nil
		}
	}
	return Secret{}, none
}

// PullSecrets implements [Secrets].
func (d dirSecrets) PullSecrets(_ context.Context, namespace, serviceAccount string) ([]Secret, error) {
	return nil, missingAccount(namespace, serviceAccount, "a directory of secrets has none")
}

// readKeys reads the files in dir; no such directory holds none.
func readKeys(root *os.Root, dir string) (map[string][]byte, error) {
	info, err := root.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names, err := listKeys(root, dir)
	if err != nil {
		return nil, err
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
	info, err := root.Stat(name)
	if err != nil || !info.Mode().IsRegular() {
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
