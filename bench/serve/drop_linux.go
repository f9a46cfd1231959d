package main

import (
	"io"
	"net"
	"syscall"
)

// discardBuffer is a buffer that is never written to.
var discardBuffer = make([]byte, 4<<20)

// drop discards up to n bytes from a connection and returns their number. With
// MSG_TRUNC the kernel does not copy the data.
func drop(c *net.TCPConn, n int64) (dropped int64, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var got int
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		for failed = syscall.EINTR; failed == syscall.EINTR; {
			got, _, failed = syscall.Recvfrom(int(fd), discardBuffer[:min(n, int64(len(discardBuffer)))], syscall.MSG_TRUNC)
		}
		return failed != syscall.EAGAIN
	})
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, failed
	case got == 0:
		return 0, io.ErrUnexpectedEOF
	}
	return int64(got), nil
}
