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

// A tail keeps the end of what is written to it.
type tail struct {
	kept  []byte
	limit int
}

func (t *tail) Write(b []byte) (int, error) {
	n := len(b)
	b = b[max(0, len(b)-t.limit):]
	t.kept = append(t.kept[max(0, len(t.kept)+len(b)-t.limit):], b...)
	return n, nil
}
