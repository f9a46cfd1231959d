package wire

import (
	"context"
	"io"
	"strings"
)

// The bands of a side-band (gitprotocol-common).
const (
	bandPack     = 1
	bandProgress = 2
	bandError    = 3
)

const maxProgress = 1 << 20 // bytes of progress that are passed on

// A packReader reads a pack out of the band that carries it.
type packReader struct {
	ctx      context.Context
	url      string
	pkt      *pktReader
	rest     int  // bytes of the pack that are left in the current pkt-line
	raw      bool // there are no bands: the rest of the stream is the pack
	again    bool // after the pack, the connection can be used again
	begun    bool
	err      error // sticky
	progress progressLines
}

func (p *packReader) Read(b []byte) (int, error) {
	if len(b) == 0 || !p.fill() {
		return 0, p.err
	}
	if !p.raw {
		b = b[:min(len(b), p.rest)]
	}
	n, err := p.pkt.br.Read(b)
	return n, p.took(n, err)
}

// WriteTo implements io.WriterTo without copying the pack on the way.
func (p *packReader) WriteTo(w io.Writer) (total int64, err error) {
	for p.fill() {
		if _, err := p.pkt.br.Peek(1); err != nil {
			p.took(0, err)
			break
		}
		n := p.pkt.br.Buffered()
		if !p.raw {
			n = min(n, p.rest)
		}
		b, _ := p.pkt.br.Peek(n)
		wrote, err := w.Write(b)
		total += int64(wrote)
		p.pkt.br.Discard(wrote)
		if p.took(wrote, nil); err != nil {
			return total, err
		}
	}
	if p.err == io.EOF {
		return total, nil
	}
	return total, p.err
}

// took accounts for n bytes of the pack, after which the stream failed with err.
func (p *packReader) took(n int, err error) error {
	if p.raw {
		if over := p.pkt.spend(n); over != nil {
			err = over
		}
	} else {
		p.rest -= n
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
	}
	return p.fail(err)
}

// fail keeps the error that ends the pack.
func (p *packReader) fail(err error) error {
	if err != nil && err != io.EOF {
		err = wrap(p.ctx, Pack, p.url, err)
	}
	p.err = err
	return err
}

// fill goes on to the next bytes of the pack. False means that there are none,
// and that err tells why.
func (p *packReader) fill() bool {
	for p.err == nil && p.rest == 0 && !p.raw {
		end, err := p.nextBand()
		switch {
		case err == io.EOF: // anywhere but after the flush that ends the bands
			p.fail(io.ErrUnexpectedEOF)
		case end && err == nil:
			p.fail(io.EOF)
		default:
			p.fail(err)
		}
	}
	return p.err == nil
}

// nextBand reads the next pkt-line, of a pack only up to the bytes of it.
func (p *packReader) nextBand() (end bool, err error) {
	k, n, err := p.pkt.header()
	switch {
	case err != nil:
		return false, err
	case k == pktFlush && p.begun:
		return true, nil
	case k != pktData:
		return false, protocolf("the answer holds no pack")
	case n == 0:
		return false, nil
	}
	band, err := p.pkt.br.ReadByte()
	if err != nil {
		return false, err
	}
	if n--; band == bandPack {
		p.rest = n
		p.begun = p.begun || n > 0
		return false, nil
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(p.pkt.br, text); err != nil {
		return false, err
	}
	return false, p.message(band, text)
}

// message handles what is no piece of the pack.
func (p *packReader) message(band byte, text []byte) error {
	msg, isErr := strings.CutPrefix(string(text), "RR ")
	switch {
	case band == bandProgress:
		p.progress.write(text)
		return nil
	case band == bandError:
		return remoteError(string(text))
	case band == 'E' && isErr: // an error line, out of any band
		return remoteError(msg)
	}
	return protocolf("band %d", band)
}

// progressLines splits progress into lines; git ends those that it overwrites
// with a carriage return.
type progressLines struct {
	to    func(string)
	line  []byte
	spent int
}

func (l *progressLines) write(b []byte) {
	if l.to == nil {
		return
	}
	for _, c := range b {
		if l.spent++; l.spent > maxProgress {
			return
		}
		if c != '\r' && c != '\n' {
			if len(l.line) < maxMessage {
				l.line = append(l.line, c)
			}
			continue
		}
		if text := clean(string(l.line)); text != "" {
			l.to(text)
		}
		l.line = l.line[:0]
	}
}

var _ interface {
	io.Reader
	io.WriterTo
} = (*packReader)(nil)
