package artifact

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// A StoreConfig says where a [Store] lives and how it behaves.
type StoreConfig struct {
	Dir       string        // root directory; created with mode 0700
	BaseURL   string        // prefix of artifact URLs; default the file URL of Dir
	Algorithm Algorithm     // digest of stored files; default SHA256
	KeepFor   time.Duration // retention by age; default 60s, negative keeps forever
	Keep      int           // retention by count: superseded artifacts kept an object beyond the current ones; default 2, negative keeps all
	Now       func() time.Time
}

// A Store holds published artifacts in a directory.
type Store struct{}

// OpenStore opens or creates a store.
func OpenStore(c StoreConfig) (*Store, error) { return nil, errors.ErrUnsupported }

// Put stores a new artifact of the object dir (KIND/NAMESPACE/NAME).
func (s *Store) Put(ctx context.Context, dir, file string, write func(io.Writer) error) (Artifact, error) {
	return Artifact{}, errors.ErrUnsupported
}

// Point makes the pointer name of dir lead to a and returns its URL.
func (s *Store) Point(dir, name string, a Artifact) (string, error) {
	return "", errors.ErrUnsupported
}

// Lock takes the object's lock, which orders writers of several processes.
func (s *Store) Lock(ctx context.Context, dir string) (unlock func(), err error) {
	return nil, errors.ErrUnsupported
}

// Check reports whether a is present and as recorded (size, mtime, inode).
func (s *Store) Check(a Artifact) error { return errors.ErrUnsupported }

// Verify re-hashes a.
func (s *Store) Verify(ctx context.Context, a Artifact) error { return errors.ErrUnsupported }

// Open opens a; reading it fails at the end when the digest is wrong.
func (s *Store) Open(a Artifact) (io.ReadCloser, error) { return nil, errors.ErrUnsupported }

// Prune removes what retention no longer keeps of dir; never what keep names.
func (s *Store) Prune(dir string, keep ...Artifact) error { return errors.ErrUnsupported }

// Remove removes everything of the object dir.
func (s *Store) Remove(dir string) error { return errors.ErrUnsupported }

// Swept says what [Store.Sweep] removed.
type Swept struct {
	Files int
	Bytes int64
}

// Sweep removes what a crash left behind.
func (s *Store) Sweep(ctx context.Context) (Swept, error) { return Swept{}, errors.ErrUnsupported }

// Temp opens an anonymous temporary file below the store's root.
func (s *Store) Temp() (*os.File, error) { return nil, errors.ErrUnsupported }

// Handler serves the artifacts, and nothing else, over HTTP.
func (s *Store) Handler() http.Handler { return http.NotFoundHandler() }
