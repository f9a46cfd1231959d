package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A pkt-line is four hexadecimal digits, its length with them, and a payload
// (gitprotocol-common). Three lengths below four are marks without payload.
const (
	pktHeader  = 4
	pktMax     = 65520                // longest pkt-line
	pktPayload = pktMax - pktHeader   // longest payload
	pktBuffer  = 2 * (pktPayload + 4) // room to read on while a payload is still in use
)

type pktKind uint8

const (
	pktFlush pktKind = iota // 0000: end of a message
	pktDelim                // 0001: end of a section
	pktEnd                  // 0002: end of an answer over a stateless channel
	pktData
)

// A pktReader reads pkt-lines within a budget of bytes.
type pktReader struct {
	br    *bufio.Reader
	left  int64 // bytes of the budget that are left
	limit int64
}

// setLimit sets a new budget.
func (p *pktReader) setLimit(limit int64) { p.left, p.limit = limit, limit }

func (p *pktReader) spend(n int) error {
	if p.left -= int64(n); p.left < 0 {
		return fmt.Errorf("%w: the answer is longer than %d bytes", ErrLimit, p.limit)
	}
	return nil
}

// header reads the length of the next pkt-line, and returns that of its payload.
func (p *pktReader) header() (pktKind, int, error) {
	b, err := p.br.Peek(pktHeader)
	if err != nil {
		if len(b) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, 0, err
	}
	length, err := strconv.ParseUint(string(b), 16, 16)
	if err != nil {
		return 0, 0, protocolf("%.16q is not the length of a pkt-line", b)
	}
	n := int(length)
	p.br.Discard(pktHeader)
	if err := p.spend(max(n, pktHeader)); err != nil {
		return 0, 0, err
	}
	switch {
	case n < int(pktData):
		return pktKind(n), 0, nil
	case n < pktHeader || n > pktMax:
		return 0, 0, protocolf("pkt-line of length %d", n)
	}
	return pktData, n - pktHeader, nil
}

// line reads a pkt-line of text, without the newline at its end. At the end of
// the input, between two lines, the error is io.EOF. An error line of the server
// becomes an error.
func (p *pktReader) line() (pktKind, string, error) {
	k, n, err := p.header()
	if err != nil || k != pktData {
		return k, "", err
	}
	b, err := p.br.Peek(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return 0, "", err
	}
	s := strings.TrimSuffix(string(b), "\n")
	p.br.Discard(n)
	if msg, ok := strings.CutPrefix(s, "ERR "); ok {
		return 0, "", remoteError(msg)
	}
	return pktData, s, nil
}

// A request collects the pkt-lines of a message.
type request struct{ b []byte }

// line adds a line of text.
func (r *request) line(format string, args ...any) {
	start := len(r.b)
	r.b = append(r.b, "0000"...)
	r.b = fmt.Appendf(r.b, format, args...)
	r.b = append(r.b, '\n')
	copy(r.b[start:], fmt.Sprintf("%04x", len(r.b)-start))
}

func (r *request) flush() { r.b = append(r.b, "0000"...) }
func (r *request) delim() { r.b = append(r.b, "0001"...) }
