package httpserve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
)

const (
	maxSocket = 100 // bytes of a name that every system takes for a socket
)

// listenSocket begins to listen at a socket of the file system, whose callers may do
// everything. Its mode is 0600, from the moment on that it is there; on Linux
// callers of other users than that of the server and root are refused besides.
// Its directory has to be one that others may not write to.
//
// A socket that a killed server left is replaced, one of a running server is refused.
// Close removes the socket.
func listenSocket(path string) (_ net.Listener, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("listen at %s: %w", path, err)
		}
	}()
	if err := private(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&fs.ModeSocket == 0 {
			return nil, errors.New("there is a file that is no socket")
		}
		if c, err := DialSocket(context.Background(), path); err == nil {
			c.Close()
			return nil, errors.New("another server is running")
		}
	}
	l, err := bindPrivately(path)
	if err != nil {
		return nil, err
	}
	return &socket{Listener: l, end: sync.OnceValue(func() error {
		os.Remove(path) // one that is left is replaced
		return l.Close()
	})}, nil
}

// private reports why a directory is none for a socket.
func private(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
		err = errors.New("all users may write to its directory: make its mode 0700")
	}
	return err
}

// bindPrivately makes the socket in a directory that no other user can enter, and
// moves it to where it belongs when its mode is right.
func bindPrivately(path string) (net.Listener, error) {
	dir := path + ".new"
	if err := os.RemoveAll(dir); err != nil { // of a server that was killed
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "s")
	short, done, err := shortName(name)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(name, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if err := os.Rename(name, path); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// shortName returns another name of a path that is too long for a socket, which
// is valid until done is called.
func shortName(path string) (name string, done func() error, err error) {
	if len(path) <= maxSocket {
		return path, func() error { return nil }, nil
	}
	if runtime.GOOS != "linux" {
		return "", nil, fmt.Errorf("its name is longer than %d bytes", maxSocket)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + filepath.Base(path), dir.Close, nil
}

// DialSocket connects to the socket of a server, see [Endpoint]. The error wraps [fs.ErrNotExist] when
// there is none, and is a refused connection when its server was killed.
func DialSocket(ctx context.Context, path string) (net.Conn, error) {
	short, done, err := shortName(path)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", path, err)
	}
	defer done()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", short)
	if op, ok := errors.AsType[*net.OpError](err); ok && short != path {
		op.Addr = &net.UnixAddr{Name: path, Net: "unix"}
	}
	return c, err
}

// A socket is a listener that is removed with its end.
type socket struct {
	net.Listener
	end func() error
}

// Accept passes over callers of other users.
func (s *socket) Accept() (net.Conn, error) {
	for {
		c, err := s.Listener.Accept()
		if err != nil || sameUser(c) {
			return c, err
		}
		c.Close()
	}
}

func (s *socket) Close() error { return s.end() }

type trustedKey struct{}

// trusted reports whether a request came by the socket of the server.
func trusted(r *http.Request) bool {
	trusted, _ := r.Context().Value(trustedKey{}).(bool)
	return trusted
}
