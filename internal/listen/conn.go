package listen

import (
	"cmp"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// A conn is a connection whose writes fail when the other side takes nothing for
// as long as patience, or for the time of a deadline that is nearer when it is
// set: deadlines of writing count from the last byte that was taken, so that what
// is slow and lives goes on.
type conn struct {
	net.Conn
	patience time.Duration
	trusted  bool   // of a socket
	release  func() // its place among the connections, once

	mu      sync.Mutex
	writing int           // writes under way
	hurry   time.Duration // less than patience, as a deadline has it; 0 for none
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.release()
	return err
}

// CloseWrite lets net/http end a connection in order.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hurry = 0
	if !t.IsZero() {
		c.hurry = min(c.patience, cmp.Or(time.Until(t), -1))
	}
	if c.writing == 0 {
		return nil // the next write has it set
	}
	return c.extend()
}

// extend gives the other side time to take something. It is called with the lock held.
func (c *conn) extend() error {
	return c.Conn.SetWriteDeadline(time.Now().Add(cmp.Or(c.hurry, c.patience)))
}

// begin prepares a write. What is wrong with it the write tells.
func (c *conn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing++
	c.extend()
}

// again ends a write that moved n bytes, and reports whether it goes on: it failed
// for want of time.
func (c *conn) again(n int64, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing--
	return err != nil && n > 0 && c.hurry >= 0 && errors.Is(err, os.ErrDeadlineExceeded)
}

func (c *conn) Write(p []byte) (int, error) {
	total := 0
	for {
		c.begin()
		n, err := c.Conn.Write(p[total:])
		total += n
		if !c.again(int64(n), err) {
			return total, err
		}
	}
}

// ReadFrom sends a file, or a part of one, by sendfile where the system has it.
func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	to, direct := c.Conn.(io.ReaderFrom)
	f, ok := fileOf(r)
	if !direct || !ok {
		return io.Copy(struct{ io.Writer }{c}, r)
	}
	var total int64
	for {
		c.begin()
		n, err := to.ReadFrom(r)
		total += n
		if !c.again(n, err) {
			return total, err
		}
		if err := f.rewind(total); err != nil {
			return total, err
		}
	}
}

// A part is what is sent of a file.
type part struct {
	file  io.Seeker
	start int64
	limit *io.LimitedReader // nil for the rest
	whole int64             // of limit
}

// fileOf returns the file that is read by r, if that is one.
func fileOf(r io.Reader) (part, bool) {
	var p part
	if l, ok := r.(*io.LimitedReader); ok {
		p.limit, p.whole, r = l, l.N, l.R
	}
	f, ok := r.(interface {
		io.Seeker
		syscall.Conn
	})
	if !ok {
		return part{}, false
	}
	start, err := f.Seek(0, io.SeekCurrent)
	p.file, p.start = f, start
	return p, err == nil
}

// rewind goes to where n bytes were sent: what was read and not sent counts as not read.
func (p part) rewind(n int64) error {
	if p.limit != nil {
		p.limit.N = p.whole - n
	}
	_, err := p.file.Seek(p.start+n, io.SeekStart)
	return err
}
