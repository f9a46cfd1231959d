package run

// A history is the runs on disk. A nil one keeps nothing.
type history struct{}

func (h *history) put(e *entry)            {}
func (h *history) remove(id string)        {}
func (h *history) output(id string) string { return "" }
func (h *history) close()                  {}
