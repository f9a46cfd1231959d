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
	reading int // reads under way
	read    deadline
	writing int // writes under way
	write   deadline
	hurry   time.Duration // less than patience, as a deadline has it; 0 for none
}

// A deadline is that of reads or of writes; the zero time stands for none. What
// the runtime has is never later, but while none is under way.
type deadline struct {
	until  time.Time
	set    time.Time // that the runtime has
	failed bool      // what ended last, since it was set
}

// due reports whether the runtime has to be told: of a nearer one, and after a
// failure, for it goes on failing when the deadline that it has is over.
func (d *deadline) due() bool { return d.failed || d.nearer() }

// nearer reports whether the runtime has none, or a later one.
func (d *deadline) nearer() bool {
	return !d.until.IsZero() && (d.set.IsZero() || d.until.Before(d.set))
}

// over reports whether its time is.
func (d *deadline) over() bool { return !d.until.IsZero() && !time.Now().Before(d.until) }

// early reports whether an error is that of a deadline that came before its time.
func (d *deadline) early(err error) bool {
	return err != nil && d.set != d.until && errors.Is(err, os.ErrDeadlineExceeded) && !d.over()
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

func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read.until = t
	if c.reading == 0 || !c.read.nearer() {
		return nil // the next read has it set, or that under way when the one before has come
	}
	return c.setRead()
}

// setRead tells the runtime of the deadline of reads. It is called with the lock held.
func (c *conn) setRead() error {
	c.read.set, c.read.failed = c.read.until, false
	return c.Conn.SetReadDeadline(c.read.until)
}

// Read takes what comes before the deadline.
func (c *conn) Read(p []byte) (int, error) {
	if err := c.beginRead(); err != nil {
		return 0, err
	}
	for {
		if n, err := c.Conn.Read(p); !c.readAgain(n, err) {
			return n, err
		}
	}
}

// beginRead prepares a read, unless its time is over: so net/http ends one that
// has not begun.
func (c *conn) beginRead() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.read.due() {
		if c.read.over() {
			return os.ErrDeadlineExceeded
		}
		c.setRead() // what is wrong with it the read tells
	}
	c.reading++
	return nil
}

// readAgain ends a read of n bytes, unless it goes on.
func (c *conn) readAgain(n int, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n == 0 && c.read.early(err) {
		return c.setRead() == nil
	}
	c.reading--
	c.read.failed = err != nil
	return false
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
	c.extend()
	return c.setWrite()
}

// extend gives the other side time to take something. It is called with the lock held.
func (c *conn) extend() { c.write.until = time.Now().Add(cmp.Or(c.hurry, c.patience)) }

// setWrite tells the runtime of the deadline of writes. It is called with the lock held.
func (c *conn) setWrite() error {
	c.write.set = c.write.until
	return c.Conn.SetWriteDeadline(c.write.until)
}

// begin prepares a write. What is wrong with it the write tells.
func (c *conn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing++
	if c.extend(); c.write.nearer() {
		c.setWrite()
	}
}

// again ends a write that moved n bytes, unless it goes on: it failed for want of
// time, and something was taken, or there is time left.
func (c *conn) again(n int64, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 && c.hurry >= 0 && err != nil {
		c.extend()
	}
	if c.write.early(err) {
		return c.setWrite() == nil
	}
	c.writing--
	return false
}

// end ends a write that was to go on.
func (c *conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing--
}

func (c *conn) Write(p []byte) (int, error) {
	c.begin()
	total := 0
	for {
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
	c.begin()
	for {
		n, err := to.ReadFrom(r)
		total += n
		if !c.again(n, err) {
			return total, err
		}
		if err := f.rewind(total); err != nil {
			c.end()
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
