package document

import "strconv"

// A place is where a value is, as people read it and as rules spell it. Names
// that a document chose are shortened in the former: they are repeated in the
// places of all that is below them.
type place struct {
	at, row string
	line    int // 0 for that which [Node.LineOf] finds
}

// maxKey bounds the name of a field in a place, in bytes.
const maxKey = 80

// root returns the place of n, whose path is known to the caller only.
func root(n *Node, field string) place {
	if field != "" {
		return place{field, field, 0}
	}
	return place{line: n.Line}
}

func (p place) field(name string, line int) place {
	if p.at == "" {
		return place{shorten(name, maxKey), name, line}
	}
	return place{p.at + "." + shorten(name, maxKey), p.row + "." + name, line}
}

func (p place) key(f Field) place {
	return place{p.at + "[" + shorten(f.Name, maxKey) + "]", p.row + "[]", f.Line}
}

func (p place) item(i, line int) place {
	return place{p.at + "[" + strconv.Itoa(i) + "]", p.row + "[]", line}
}
