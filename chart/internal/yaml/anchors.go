package yaml

import "encoding/binary"

// anchors hold the nodes that have anchors, as a log of events. Nodes within
// each other share a part of it.
type anchors struct {
	log   []byte
	list  []anchor
	names map[string]int // of the last anchor with a name, its index in list
	open  int            // how many anchored nodes are not complete
	held  int            // bytes of names

	at, stop int // what is being replayed of the log
	depth    int // of the collections that are open in it
	line     int // of the alias
	total    int // bytes replayed so far
}

type anchor struct{ start, end int } // in the log; end is -1 until the node is complete

// anchorCost is what an anchor counts besides its name and its node, in bytes.
const anchorCost = 64

const plainFlag = 0x80

func (a *anchors) replaying() bool { return a.at < a.stop }

// record notes the event of a node that has properties p, when it is needed.
func (r *Reader) record(p *props) bool {
	if r.anchors.open == 0 && len(p.anchor) == 0 {
		return true
	}
	return r.recordNode(p)
}

func (r *Reader) recordNode(p *props) bool {
	a := &r.anchors
	begins := r.ev.Kind == MapStart || r.ev.Kind == SeqStart
	if len(p.anchor) == 0 {
		return r.log()
	}
	id := len(a.list)
	a.list = append(a.list, anchor{len(a.log), -1})
	if a.names == nil {
		a.names = make(map[string]int)
	}
	a.names[string(p.anchor)] = id
	a.held += len(p.anchor) + anchorCost
	if !r.log() {
		return false
	}
	if begins {
		a.open++
		r.stack[len(r.stack)-1].anchor = id + 1
	} else {
		a.list[id].end = len(a.log)
	}
	return true
}

// recordEnd notes the end of a collection with that anchor.
func (r *Reader) recordEnd(anchor int) bool {
	if !r.log() {
		return false
	}
	if anchor > 0 {
		r.anchors.open--
		r.anchors.list[anchor-1].end = len(r.anchors.log)
	}
	return true
}

// log appends the event to the log.
func (r *Reader) log() bool {
	a := &r.anchors
	if len(a.log)+len(r.ev.Value)+len(r.ev.Tag)+3+a.held > r.lim.Anchors {
		return r.failAt(r.ev.Line, "too much text has anchors")
	}
	k := byte(r.ev.Kind)
	if r.ev.Plain {
		k |= plainFlag
	}
	a.log = append(a.log, k)
	if k := r.ev.Kind; k == MapEnd || k == SeqEnd {
		return true
	}
	a.log = binary.AppendUvarint(a.log, uint64(len(r.ev.Tag)))
	a.log = append(a.log, r.ev.Tag...)
	a.log = binary.AppendUvarint(a.log, uint64(len(r.ev.Value)))
	a.log = append(a.log, r.ev.Value...)
	return true
}

// startReplay gives the first event of an anchored node; key tells that it is a key.
func (r *Reader) startReplay(id int, key bool) bool {
	a := &r.anchors
	n := a.list[id]
	if k := Kind(a.log[n.start] &^ plainFlag); key && (k == MapStart || k == SeqStart) {
		return r.fail(collectionKey)
	}
	if a.total += n.end - n.start; a.total > aliasFactor*r.lim.Anchors {
		return r.fail("aliases stand for too much text")
	}
	a.at, a.stop, a.depth, a.line = n.start, n.end, 0, r.line
	return r.replay()
}

// replay gives the next event of an anchored node.
func (r *Reader) replay() bool {
	a := &r.anchors
	k := a.log[a.at]
	a.at++
	r.ev = Event{Kind: Kind(k &^ plainFlag), Plain: k&plainFlag != 0, Line: a.line}
	switch r.ev.Kind {
	case MapEnd, SeqEnd:
		a.depth--
	case MapStart, SeqStart:
		if a.depth++; len(r.stack)-1+a.depth > r.lim.Depth {
			return r.fail("too many collections within each other")
		}
		fallthrough
	default:
		r.ev.Tag = r.intern(a.text())
		if v := a.text(); r.ev.Kind == Scalar {
			r.ev.Value = v
		}
	}
	return a.open == 0 || r.log()
}

// text returns the next text of the log.
func (a *anchors) text() []byte {
	n, w := binary.Uvarint(a.log[a.at:])
	from := a.at + w
	a.at = from + int(n)
	return a.log[from:a.at:a.at]
}
