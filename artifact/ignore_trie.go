package artifact

import "fmt"

// A trie holds all patterns, merged where they begin alike. It is the
// nondeterministic automaton that [machine] makes deterministic.
//
// Node 0 is the start of a path. A node is entered by the token that leads to
// it from its parent; star, deep and dirs tokens are entered together with their
// parent, for they match nothing too.
type trie struct {
	nodes []trieNode
	sets  []byteSet
}

// A trieNode is a position in all patterns that have the same tokens up to it.
type trieNode struct {
	kind      tokenKind
	arg       uint32 // literal: the byte; oneOf: the index of the set
	parent    int32
	kid, next int32 // first child, next child of the same parent; 0 is none
	file, dir int32 // last rule that ends here and matches a file, a directory; none if there is no such rule
	reinclude int32 // last negated rule that ends here or below, or none
}

// none stands for no rule. Every rule is later than none.
const none = -1

// newTrie builds the trie of patterns; the index of a pattern is its rule.
func newTrie(patterns []pattern) (*trie, error) {
	b := trieBuilder{
		trie:  trie{nodes: []trieNode{{file: none, dir: none, reinclude: none}}},
		edges: map[edge]int32{},
		sets:  map[byteSet]uint32{},
	}
	for i := range patterns {
		p := &patterns[i]
		if b.insert(p, int32(i)); len(b.nodes) > maxIgnoreNodes {
			return nil, fmt.Errorf("%s:%d: the patterns up to here are longer than %d bytes: use fewer", p.Source, p.Line, maxIgnoreNodes)
		}
	}
	for i := len(b.nodes) - 1; i > 0; i-- { // a child comes after its parent
		up := &b.nodes[b.nodes[i].parent]
		up.reinclude = max(up.reinclude, b.nodes[i].reinclude)
	}
	return &b.trie, nil
}

// A trieBuilder is a trie that grows.
type trieBuilder struct {
	trie
	edges map[edge]int32
	sets  map[byteSet]uint32
}

// An edge is a token below a node.
type edge struct {
	from int32
	kind tokenKind
	arg  uint32
}

// insert adds the pattern of a rule that is later than all before it.
func (b *trieBuilder) insert(p *pattern, rule int32) {
	tokens, ok := p.tokens()
	if !ok {
		return
	}
	at := int32(0)
	for i := range len(p.domain) {
		at = b.child(at, literal, uint32(p.domain[i]))
	}
	for _, t := range tokens {
		switch t.kind {
		case literal:
			at = b.child(at, literal, uint32(t.byte))
		case oneOf:
			at = b.child(at, oneOf, b.set(t.set))
		case dirs:
			at = b.child(b.child(at, dirs, 0), literal, '/')
		default:
			at = b.child(at, t.kind, 0)
		}
	}
	n := &b.nodes[at]
	n.dir = rule
	if !p.dirOnly {
		n.file = rule
	}
	if p.Negate {
		n.reinclude = rule
	}
}

// child returns the child of a node that a token leads to.
func (b *trieBuilder) child(from int32, k tokenKind, arg uint32) int32 {
	e := edge{from, k, arg}
	if n, ok := b.edges[e]; ok {
		return n
	}
	n := int32(len(b.nodes))
	up := &b.nodes[from]
	next := up.kid
	up.kid = n
	b.nodes = append(b.nodes, trieNode{kind: k, arg: arg, parent: from, next: next, file: none, dir: none, reinclude: none})
	b.edges[e] = n
	return n
}

// set returns the index of s among the sets of the trie.
func (b *trieBuilder) set(s byteSet) uint32 {
	n, ok := b.sets[s]
	if !ok {
		n = uint32(len(b.trie.sets))
		b.trie.sets = append(b.trie.sets, s)
		b.sets[s] = n
	}
	return n
}

// alphabet maps every byte to a class of bytes that no pattern tells apart and
// returns the number of classes.
func (t *trie) alphabet() (class [256]uint8, n int) {
	n = 1
	split := func(s *byteSet) {
		var ids [256][2]int // by old class: the new ones outside and inside of s, plus one
		n = 0
		for c := range class {
			id := &ids[class[c]][s.bit(byte(c))]
			if *id == 0 {
				n++
				*id = n
			}
			class[c] = uint8(*id - 1)
		}
	}
	single := byteSet{}
	single.add('/')
	for i := range t.nodes {
		if t.nodes[i].kind == literal && i > 0 {
			single.add(byte(t.nodes[i].arg))
		}
	}
	for c := range class {
		if single.has(byte(c)) {
			var one byteSet
			one.add(byte(c))
			split(&one)
		}
	}
	for i := range t.sets {
		split(&t.sets[i])
	}
	return class, n
}
