package yaml

// nameMax bounds names of anchors and tags, in bytes.
const nameMax = 1 << 10

// props are the properties of a node.
type props struct {
	line   int // where they begin, 0 for none
	tag    string
	anchor []byte // empty for none
}

func (p *props) reset() {
	p.line, p.tag, p.anchor = 0, "", p.anchor[:0]
}

// join moves the properties of q to p. It returns false when both have the same one.
func (p *props) join(q *props) bool {
	if q.line == 0 {
		return true
	}
	if p.line == 0 {
		*p, *q = *q, *p
		q.reset()
		return true
	}
	if p.tag != "" && q.tag != "" || len(p.anchor) > 0 && len(q.anchor) > 0 {
		return false
	}
	if q.tag != "" {
		p.tag = q.tag
	}
	p.anchor = append(p.anchor, q.anchor...)
	q.reset()
	return true
}

// property reads the anchor or the tag at pos.
func (r *Reader) property(c byte, p *props) bool {
	if p.line == 0 {
		p.line = r.line
	}
	if c == '!' {
		return r.tag(p)
	}
	name, ok := r.name()
	if !ok {
		return false
	}
	if len(p.anchor) > 0 {
		return r.fail("a node has two anchors or two tags")
	}
	p.anchor = append(p.anchor, name...)
	return true
}

// properties reads the properties at pos into inner and returns what follows them.
func (r *Reader) properties(c byte, flow bool) (byte, bool) {
	r.inner.reset()
	for c == '&' || c == '!' {
		if !r.property(c, &r.inner) {
			return c, false
		}
		var ok bool
		if c, ok = r.space(flow); !ok {
			return c, false
		}
	}
	return c, true
}

// joined makes the properties of the first key those of the node.
func (r *Reader) joined() bool {
	return r.outer.join(&r.inner) || r.fail("a node has two anchors or two tags")
}

// name reads the name of the anchor or alias at pos.
func (r *Reader) name() ([]byte, bool) {
	p := r.pos + 1
	for class[r.buf[p]]&inName != 0 {
		p++
	}
	name := r.buf[r.pos+1 : p]
	if len(name) > nameMax {
		return nil, r.fail("the name of an anchor is too long")
	}
	switch r.buf[p] {
	case '?', ':', ',', ']', '}', '%', '@', '`':
	default:
		if !blankAt(r.buf, p) {
			name = nil
		}
	}
	if len(name) == 0 {
		return nil, r.failHere("the name of an anchor expected")
	}
	r.pos = p
	return name, true
}

// alias reads the alias at pos and returns the index of its anchor.
func (r *Reader) alias() (int, bool) {
	name, ok := r.name()
	if !ok {
		return 0, false
	}
	id, ok := r.anchors.names[string(name)]
	if !ok {
		return 0, r.fail("unknown anchor " + quote(name))
	}
	if r.anchors.list[id].end < 0 {
		return 0, r.fail("alias " + quote(name) + " is within what it stands for")
	}
	r.ensure(window)
	return id, true
}

// tag reads the tag at pos.
func (r *Reader) tag(p *props) bool {
	q := r.pos + 1
	verbatim := r.buf[q] == '<'
	if verbatim {
		q++
	}
	for class[r.buf[q]]&inTag != 0 {
		q++
	}
	if verbatim {
		if r.buf[q] != '>' || q == r.pos+2 {
			return r.failHere("a tag expected")
		}
		q++
	}
	text := r.buf[r.pos:q]
	switch {
	case len(text) > nameMax:
		return r.fail("a tag is too long")
	case !blankAt(r.buf, q) || !verbatim && handleOnly(text):
		return r.failHere("a tag expected")
	case p.tag != "":
		return r.fail("a node has two anchors or two tags")
	}
	p.tag = r.intern(text)
	r.pos = q
	return true
}

// handleOnly reports whether a tag is a handle without a suffix: "!!" or "!word!".
func handleOnly(tag []byte) bool {
	n := 1
	for n < len(tag) && class[tag[n]]&inName != 0 {
		n++
	}
	return n == len(tag)-1 && tag[n] == '!'
}

// intern returns text as a string. It keeps the first 64.
func (r *Reader) intern(text []byte) string {
	if len(text) == 0 {
		return ""
	}
	if s, ok := r.tags[string(text)]; ok {
		return s
	}
	s := string(text)
	if r.tags == nil {
		r.tags = make(map[string]string)
	}
	if len(r.tags) < 64 {
		r.tags[s] = s
	}
	return s
}
