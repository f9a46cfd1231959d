package source

import (
	"errors"
	"fmt"
	"io/fs"
)

// memoFile is the memo of a ledger. No kind has this name.
const memoFile = ".memo"

// maxMemo bounds the size of the memo that is read, in bytes.
const maxMemo = 64 << 20

// Memo returns what [Ledger.SetMemo] saved last, nil when there is none.
func (l *Ledger) Memo() ([]byte, error) {
	root, err := l.open()
	if root == nil {
		return nil, err
	}
	defer root.Close()
	text, err := read(root, memoFile, maxMemo)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return text, nil
}

// SetMemo makes durable what a server remembers of all objects together. One
// must not be saved twice at once.
func (l *Ledger) SetMemo(text []byte) error {
	root, err := l.create()
	if err == nil {
		defer root.Close()
		err = new(record).write(root, memoFile, text)
	}
	if err != nil {
		return fmt.Errorf("ledger: memo: %w", err)
	}
	return nil
}
