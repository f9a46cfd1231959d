package artifact

import (
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
)

// maxMachine bounds the memory of a machine's states, in bytes. When they
// grow beyond it they are forgotten and found again as they are needed.
const maxMachine = 16 << 20

// A machine reads paths byte by byte. Its states are sets of trie nodes, found
// when a path first leads to them, so that a byte costs one table look-up however
// many patterns there are. It is safe for concurrent use.
type machine struct {
	*trie
	class   [256]uint8 // see alphabet
	classes int
	start   *state // before the first byte of a path

	mu     sync.Mutex // guards all below
	states map[string]*state
	size   int      // bytes that states take, about
	seen   []uint32 // by node: the last round that found it
	round  uint32
	found  []int32 // nodes of this round
}

// A state is a set of nodes: the positions in all patterns that a text leads to.
type state struct {
	nodes     string // 4 bytes a node, ascending
	file, dir int32  // last rule that matches the text as a file, as a directory
	reinclude int32  // last negated rule that may match a longer text
	next      []atomic.Pointer[state]
}

func newMachine(t *trie) *machine {
	m := &machine{trie: t, states: map[string]*state{}, seen: make([]uint32, len(t.nodes))}
	m.class, m.classes = t.alphabet()
	m.begin()
	m.enter(0)
	m.start = m.state()
	return m
}

// run returns the state that text leads to from s.
func (m *machine) run(s *state, text string) *state {
	for i := range len(text) {
		next := s.next[m.class[text[i]]].Load()
		if next == nil {
			next = m.find(s, text[i])
		}
		s = next
	}
	return s
}

// step returns the state that one byte leads to from s.
func (m *machine) step(s *state, c byte) *state {
	if next := s.next[m.class[c]].Load(); next != nil {
		return next
	}
	return m.find(s, c)
}

// find is step for a byte that has not been seen in s.
func (m *machine) find(s *state, c byte) *state {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begin()
	for list := s.nodes; list != ""; list = list[4:] {
		n := int32(binary.BigEndian.Uint32([]byte(list[:4])))
		switch k := m.nodes[n].kind; {
		case k == deep, k == dirs, k == star && c != '/':
			m.mark(n)
		}
		for kid := m.nodes[n].kid; kid != 0; kid = m.nodes[kid].next {
			if m.accepts(kid, c) {
				m.enter(kid)
			}
		}
	}
	next := m.state()
	s.next[m.class[c]].Store(next)
	return next
}

// accepts reports whether the byte c leads from the parent of n to n.
func (m *machine) accepts(n int32, c byte) bool {
	switch n := &m.nodes[n]; n.kind {
	case literal:
		return byte(n.arg) == c
	case oneOf:
		return m.sets[n.arg].has(c)
	}
	return false
}

// begin starts a new set of nodes.
func (m *machine) begin() {
	m.found = m.found[:0]
	if m.round++; m.round == 0 {
		clear(m.seen)
		m.round = 1
	}
}

// mark adds n to the set and reports whether it is new there.
func (m *machine) mark(n int32) bool {
	if m.seen[n] == m.round {
		return false
	}
	m.seen[n] = m.round
	m.found = append(m.found, n)
	return true
}

// enter adds n and what is entered with it.
func (m *machine) enter(n int32) {
	if !m.mark(n) {
		return
	}
	for kid := m.nodes[n].kid; kid != 0; kid = m.nodes[kid].next {
		switch m.nodes[kid].kind {
		case star, deep: // only byte tokens follow these
			m.mark(kid)
		case dirs:
			m.mark(kid)
			m.enter(m.nodes[kid].kid) // its one child, after the slash
		}
	}
}

// state returns the state of the set found in this round.
func (m *machine) state() *state {
	slices.Sort(m.found)
	key := make([]byte, 0, 4*len(m.found))
	for _, n := range m.found {
		key = binary.BigEndian.AppendUint32(key, uint32(n))
	}
	if s, ok := m.states[string(key)]; ok {
		return s
	}
	s := &state{nodes: string(key), file: none, dir: none, reinclude: none, next: make([]atomic.Pointer[state], m.classes)}
	for _, n := range m.found {
		n := &m.nodes[n]
		s.file = max(s.file, n.file)
		s.dir = max(s.dir, n.dir)
		s.reinclude = max(s.reinclude, n.reinclude)
	}
	const fixed = 160 // a state and its place in the map
	cost := fixed + len(key) + 8*len(s.next)
	if m.size += cost; m.size > maxMachine {
		m.forget()
		m.size = cost
	}
	m.states[s.nodes] = s
	return s
}

// forget drops every state but the start. It also cuts the states apart, so
// that one which a reader still holds keeps no other alive.
func (m *machine) forget() {
	for _, s := range m.states {
		for i := range s.next {
			s.next[i].Store(nil)
		}
	}
	clear(m.states)
	m.states[m.start.nodes] = m.start
}
