package testenv

import (
	"bytes"
	"io"
	"sync"

	"golang.org/x/crypto/ssh"
)

// A spoiler passes the answers of git upload-pack on over ssh, where one
// stream holds all phases, and applies a defect to one of them.
type spoiler struct {
	ch     ssh.Channel
	defect *Defect
	mu     sync.Mutex
	phase  Phase
	faulty *faultyWriter // of the phase with the defect, nil in others
	server *SSHServer
}

func (s *SSHServer) spoiler(ch ssh.Channel) *spoiler {
	p := &spoiler{ch: ch, defect: s.config.Defect, server: s}
	p.enter(Advertisement)
	return p
}

// enter begins a phase.
func (p *spoiler) enter(phase Phase) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase == phase {
		return
	}
	p.phase, p.faulty = phase, nil
	if p.defect == nil || p.defect.Phase != "" && p.defect.Phase != phase {
		return
	}
	p.faulty = &faultyWriter{
		write:  p.ch.Write,
		flush:  func() {},
		abort:  func() { p.ch.Close() },
		done:   p.server.done,
		stall:  p.server.stall,
		defect: *p.defect,
	}
}

// Write implements [io.Writer] for what upload-pack says.
func (p *spoiler) Write(b []byte) (int, error) {
	p.mu.Lock()
	faulty := p.faulty
	p.mu.Unlock()
	if faulty == nil {
		return p.ch.Write(b)
	}
	n, err := faulty.Write(b)
	if err == nil && faulty.over {
		return n, io.ErrClosedPipe // nothing more can be said
	}
	return n, err
}

// ended reports whether the conversation was ended as if it were complete.
func (p *spoiler) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faulty != nil && p.faulty.over && p.defect.Do == End
}

// commands passes on what the client says, and notes the phase it begins.
func (p *spoiler) commands(w io.Writer, r io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		switch b := buf[:n]; {
		case bytes.Contains(b, []byte("command=ls-refs")):
			p.enter(LsRefs)
		case bytes.Contains(b, []byte("command=fetch")), bytes.Contains(b, []byte("want ")):
			p.enter(Pack)
		}
		if _, werr := w.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}
