//go:build !linux

package listen

import "net"

// samePerson leaves it to the mode of the socket who may connect.
func samePerson(net.Conn) bool { return true }
