package bucket

import "sync"

// A pool is memory in pieces, made as they are needed and used again, the last first.
type pool struct {
	tokens chan struct{} // one for each piece that may be taken
	mu     sync.Mutex
	free   [][]byte
	made   int
}

func (p *pool) init(pieces int) {
	p.tokens = make(chan struct{}, pieces)
	for range pieces {
		p.tokens <- struct{}{}
	}
}

// take returns a piece, for whoever has a token.
func (p *pool) take() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.free) - 1; last >= 0 {
		piece := p.free[last]
		p.free = p.free[:last]
		return piece
	}
	p.made++
	return make([]byte, pieceSize)
}

// put gives back a piece and its token.
func (p *pool) put(piece []byte) {
	p.mu.Lock()
	p.free = append(p.free, piece)
	p.mu.Unlock()
	p.tokens <- struct{}{}
}
