package main

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source/serve"
)

// TestGetReadOnly reads a read-only store in which the last server left its lock
// file. If the test runs as root, the reading thread has the rights of another
// user.
func TestGetReadOnly(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: tree("one")})
	top := t.TempDir()
	store := filepath.Join(top, "store")
	runCommand(t, exitReady, "fetch", testenv.ServeGit(t, testenv.GitConfig{}, repo).Repo(), "--name", "app", "--store", store, "-q")
	lock, err := serve.LockStore(store)
	must(t, err)
	must(t, lock.Release())
	var dirs []string
	err = filepath.WalkDir(store, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, name)
			return os.Chmod(name, 0o555)
		}
		if err == nil {
			return os.Chmod(name, 0o444)
		}
		return err
	})
	t.Cleanup(func() {
		for _, dir := range dirs {
			os.Chmod(dir, 0o755)
		}
	})
	for _, dir := range []string{top, filepath.Dir(top)} {
		if err == nil {
			err = os.Chmod(dir, 0o755)
		}
	}
	must(t, err)
	var stdout, stderr bytes.Buffer
	code := make(chan int)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread with the other user ends with the goroutine
		if os.Geteuid() == 0 {
			testenv.Equal(t, syscall.Setfsuid(65534), nil)
		}
		code <- run(t.Context(), []string{"get", "--store", store}, io.LimitReader(nil, 0), &stdout, &stderr, os.LookupEnv)
	}()
	if got := <-code; got != exitReady || !strings.Contains(stdout.String(), "GitRepository/default/app  True ") {
		t.Errorf("exit code %d\n%s%s", got, &stdout, &stderr)
	}
}
