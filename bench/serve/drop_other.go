//go:build !linux

package main

import (
	"io"
	"net"
)

// drop discards up to n bytes from a connection and returns their number.
func drop(c *net.TCPConn, n int64) (dropped int64, err error) {
	buf := make([]byte, min(n, 256<<10))
	read, err := io.ReadAtLeast(c, buf, 1)
	return int64(read), err
}
