package testenv

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strconv"
)

// acceptSOCKS serves SOCKS version 5 (RFC 1928) with user name and password (RFC 1929).
func (p *ProxyServer) acceptSOCKS(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		if !p.track(conn) {
			conn.Close()
			return
		}
		p.wg.Go(func() {
			defer conn.Close()
			addr, err := p.greetSOCKS(conn)
			if err != nil {
				return
			}
			p.note("SOCKS " + addr)
			far, err := p.dial(addr)
			if err != nil {
				conn.Write([]byte{5, 4, 0, 1, 0, 0, 0, 0, 0, 0}) // host unreachable
				return
			}
			conn.Write([]byte{5, 0, 0, 1, 127, 0, 0, 1, 0, 0})
			p.join(conn, far)
		})
	}
}

// greetSOCKS does the handshake and returns the address that the client asks for.
func (p *ProxyServer) greetSOCKS(conn net.Conn) (addr string, err error) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(conn, head); err != nil {
		return "", err
	}
	if _, err := io.ReadFull(conn, make([]byte, head[1])); err != nil { // methods
		return "", err
	}
	method := byte(0)
	if p.config.Username != "" || p.config.Password != "" {
		method = 2
	}
	conn.Write([]byte{5, method})
	if method == 2 {
		if err := p.loginSOCKS(conn); err != nil {
			return "", err
		}
	}
	head = make([]byte, 4) // version, command, reserved, type of address
	if _, err := io.ReadFull(conn, head); err != nil {
		return "", err
	}
	var host string
	switch head[3] {
	case 1:
		ip := make(net.IP, 4)
		_, err = io.ReadFull(conn, ip)
		host = ip.String()
	case 3:
		host, err = shortString(conn)
	default:
		err = errors.New("unknown type of address")
	}
	port := make([]byte, 2)
	if _, perr := io.ReadFull(conn, port); err != nil || perr != nil {
		return "", errors.Join(err, perr)
	}
	return net.JoinHostPort(host, strconv.Itoa(int(binary.BigEndian.Uint16(port)))), nil
}

func (p *ProxyServer) loginSOCKS(conn net.Conn) error {
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil { // version
		return err
	}
	user, err := shortString(conn)
	if err != nil {
		return err
	}
	password, err := shortString(conn)
	if err != nil {
		return err
	}
	if !p.allowed(user, password) {
		p.note("refused")
		conn.Write([]byte{1, 1})
		return errors.New("refused")
	}
	conn.Write([]byte{1, 0})
	return nil
}

// shortString reads a string after one byte that holds its length.
func shortString(r io.Reader) (string, error) {
	n := make([]byte, 1)
	if _, err := io.ReadFull(r, n); err != nil {
		return "", err
	}
	b := make([]byte, n[0])
	_, err := io.ReadFull(r, b)
	return string(b), err
}
