package command

// A head keeps the beginning of what is written to it.
type head struct {
	kept      []byte
	limit     int
	truncated bool
}

func (h *head) Write(b []byte) (int, error) {
	n := min(len(b), h.limit-len(h.kept))
	h.kept = append(h.kept, b[:n]...)
	h.truncated = h.truncated || n < len(b)
	return len(b), nil
}

// A Tail keeps the end of what is written to it.
type Tail struct {
	Kept  []byte
	Limit int // bytes
}

func (t *Tail) Write(b []byte) (int, error) {
	n := len(b)
	b = b[max(0, len(b)-t.Limit):]
	t.Kept = append(t.Kept[max(0, len(t.Kept)+len(b)-t.Limit):], b...)
	return n, nil
}
