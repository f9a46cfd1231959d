package artifact

import (
	"context"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/durable"
)

// maxDoubts are the files about which is remembered what was found.
const maxDoubts = 1000

// doubts are the files that are not as recorded, and what hashing them found.
// Each is hashed once, however many ask for it: until it changes. The zero value
// is ready to use.
type doubts struct {
	mu    sync.Mutex
	files map[place]*doubt
}

// A doubt is one of them.
type doubt struct {
	stamp
	done   chan struct{} // closed when it is settled
	digest string
	err    error
}

// A stamp is what changes with a file.
type stamp struct {
	size     int64
	modified time.Time
	id       uint64
}

// settle returns the digest of f, which lies at p, by hash or as it was found
// before. The error is a [DigestError] when it is damaged.
func (d *doubts) settle(p place, f *os.File, info fs.FileInfo, hash func() (string, error)) (string, error) {
	id, err := durable.FileID(f)
	if err != nil {
		return "", err
	}
	now := stamp{info.Size(), info.ModTime(), id}
	d.mu.Lock()
	found := d.files[p]
	mine := found == nil || found.stamp != now
	if mine {
		if d.files == nil || len(d.files) >= maxDoubts {
			d.files = make(map[place]*doubt)
		}
		found = &doubt{stamp: now, done: make(chan struct{})}
		d.files[p] = found
	}
	d.mu.Unlock()
	if mine {
		found.digest, found.err = hash()
		close(found.done)
	}
	<-found.done
	return found.digest, found.err
}

// rehash returns the digest of f, which lies at p, and records it when it is the
// one that its path has. It goes back to the beginning of f.
func (s *Store) rehash(p place, f *os.File, info fs.FileInfo) (string, error) {
	digest := s.digest(p)
	if err := s.hash(context.Background(), p, digest, f, info); err != nil {
		return "", err
	}
	_, err := f.Seek(0, io.SeekStart)
	return digest, err
}
