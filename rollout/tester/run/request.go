package run

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"maps"
	"slices"
	"time"
)

// A Task is work that a run does. What it writes is kept within bounds, also
// when it writes without end. It returns soon after ctx has ended, with nothing
// left running. An error that has a method ExitCode() int says the exit code.
// A panic is an error, in the goroutine that called Run.
type Task interface {
	Run(ctx context.Context, out io.Writer) error
}

// A Request asks for a run. Its key is made of namespace, name, checksum, type and metadata.
type Request struct {
	Namespace, Name, Phase, Checksum string
	Type                             string            // the product's name
	Metadata                         map[string]string // without credentials of the caller
	Secrets                          []string          // values that are masked in output, reasons and metadata
	Waits                            bool              // the caller is to call Wait, not Start
	FailOnError                      bool              // a failure of a run nobody waited for is delivered to the next equal request
	Timeout                          time.Duration     // 0 for that of the desk, which is also the longest
	OutputLimit                      int               // bytes; 0 for that of the desk, which is also the largest
	Actor                            string
}

// A key says which requests are equal.
type key [sha256.Size]byte

// key returns the SHA-256 of everything that distinguishes requests, each text
// after its length, so that no two lists of texts look the same.
func (r *Request) key() key {
	h := sha256.New()
	var length [8]byte
	put := func(text string) {
		binary.BigEndian.PutUint64(length[:], uint64(len(text)))
		h.Write(length[:])
		io.WriteString(h, text)
	}
	for _, text := range []string{r.Namespace, r.Name, r.Checksum, r.Type} {
		put(text)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Metadata)) {
		put(name)
		put(r.Metadata[name])
	}
	return key(h.Sum(nil))
}
