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
	maxSocket = 100 // bytes of a socket path that every system accepts
)

// listenSocket listens on a Unix socket, whose callers may do everything. The socket has mode 0600
// from the moment it exists. On Linux, processes of users other than that of the server and root are
// refused as well. The directory must not be writable for all users, unless it is sticky.
//
// listenSocket replaces a socket that a killed server left, and fails if a running server uses it. Close
// deletes the socket.
func listenSocket(path string) (_ net.Listener, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("listen at %s: %w", path, err)
		}
	}()
	if err := checkPrivate(filepath.Dir(path)); err != nil {
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
	return &socket{Listener: l, closeOnce: sync.OnceValue(func() error {
		os.Remove(path) // if this fails, the next server replaces the socket
		return l.Close()
	})}, nil
}

// checkPrivate returns an error if all users may replace files in a directory.
func checkPrivate(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
		err = errors.New("all users may write to its directory: make its mode 0700")
	}
	return err
}

// bindPrivately creates the socket in a directory that no other user can enter, sets its mode, and renames it to path.
func bindPrivately(path string) (net.Listener, error) {
	dir := path + ".new"
	if err := os.RemoveAll(dir); err != nil { // left by a killed server
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

// shortName returns path, or another name of it if it is too long for a socket. The caller calls done when it no longer
// needs the name.
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

// DialSocket connects to the socket of a server, see [Endpoint]. The error wraps [fs.ErrNotExist] if there is no socket,
// and is a refused connection if the server was killed.
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

// A socket is a listener whose file is deleted when it is closed.
type socket struct {
	net.Listener
	closeOnce func() error
}

// Accept closes connections of other users, and returns the next of the same user.
func (s *socket) Accept() (net.Conn, error) {
	for {
		c, err := s.Listener.Accept()
		if err != nil || sameUser(c) {
			return c, err
		}
		c.Close()
	}
}

func (s *socket) Close() error { return s.closeOnce() }

type viaSocketKey struct{}

// viaSocket reports whether a request came through the socket of the server.
func viaSocket(r *http.Request) bool {
	trusted, _ := r.Context().Value(viaSocketKey{}).(bool)
	return trusted
}
