package oci

import "io"

// What is received ahead of its use: 1 MiB.
const (
	pieceSize = 256 << 10
	pieces    = 4
)

// An ahead hands out what another reader gives. A goroutine reads that, so that
// receiving and hashing what comes next does not wait for what the user does
// with the last piece, nor the other way round.
type ahead struct {
	full chan piece  // in order; closed behind the last
	free chan []byte // buffers
	quit chan struct{}
	last []byte // buffer of now
	now  piece
}

// A piece is some bytes and the error that follows them.
type piece struct {
	data []byte
	err  error
}

func readAhead(r io.Reader) *ahead {
	a := &ahead{full: make(chan piece, pieces), free: make(chan []byte, pieces), quit: make(chan struct{})}
	for range pieces {
		a.free <- make([]byte, pieceSize)
	}
	go a.receive(r)
	return a
}

// receive fills buffers until r ends or nobody wants more.
func (a *ahead) receive(r io.Reader) {
	defer close(a.full)
	for {
		select {
		case <-a.quit:
			return
		case buf := <-a.free:
			n, err := fill(r, buf)
			a.full <- piece{buf[:n], err} // never blocks: there is room for all buffers
			if err != nil {
				return
			}
		}
	}
}

// fill reads until buf is full. Unlike [io.ReadFull] it leaves errors as they are.
func fill(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var more int
		more, err = r.Read(buf[n:])
		n += more
	}
	return n, err
}

// next takes the next piece, once the last is used up.
func (a *ahead) next() {
	if a.last != nil {
		a.free <- a.last[:pieceSize]
	}
	a.now = <-a.full
	a.last = a.now.data
}

// Read implements [io.Reader].
func (a *ahead) Read(p []byte) (int, error) {
	for len(a.now.data) == 0 {
		if a.now.err != nil {
			return 0, a.now.err
		}
		a.next()
	}
	n := copy(p, a.now.data)
	a.now.data = a.now.data[n:]
	return n, nil
}

// WriteTo implements [io.WriterTo].
func (a *ahead) WriteTo(w io.Writer) (written int64, err error) {
	for {
		n, err := w.Write(a.now.data)
		written += int64(n)
		a.now.data = a.now.data[n:]
		switch {
		case err != nil:
			return written, err
		case a.now.err == io.EOF:
			return written, nil
		case a.now.err != nil:
			return written, a.now.err
		}
		a.next()
	}
}

// close waits until nobody reads the other reader any more.
func (a *ahead) close() {
	close(a.quit)
	for range a.full {
	}
}
