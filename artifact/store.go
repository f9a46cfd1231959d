package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A StoreConfig says where a [Store] lives and how it behaves.
type StoreConfig struct {
	Dir string // root directory; created with mode 0700
	// BaseURL is the prefix of artifact URLs. Without a scheme it gets
	// http:// (reference A4). Default: the file URL of Dir.
	BaseURL   string
	Algorithm Algorithm // digest of stored files; default SHA256
	// KeepFor is how long a superseded artifact stays, counted from when its
	// successor was stored; default 60s, negative keeps forever.
	KeepFor time.Duration
	// Keep is how many superseded artifacts an object keeps beyond the
	// current ones; default 2, negative keeps all.
	Keep int
	Now  func() time.Time // default time.Now
	// Cache gives way when the volume is full, those of its entries first that
	// were used longest ago; default none.
	Cache *Cache
}

// A Store holds published artifacts in a directory.
//
// # Layout
//
// An artifact lies at KIND/NAMESPACE/NAME/HEX/FILE, HEX being the hexadecimal
// part of its digest: a path, once published, never changes meaning. Names
// that begin with a dot are private to the store; nothing can address them:
//
//	KIND/NAMESPACE/NAME/HEX/.FILE              what the last full hash of FILE found, see [Store.Check]
//	.store/tmp/                                files being written
//	.store/object/KIND/NAMESPACE/NAME/.lock    see [Store.Lock]
//	.store/object/KIND/NAMESPACE/NAME/POINTER  see [Store.Point]
//
// All access goes through [os.Root]: no name, and no link that somebody
// planted, leads out of the directory.
//
// # Promises
//
// [Store.Put] publishes all or nothing, and durably: when it returns, file and
// directories have reached the disk. Any number of processes may use one
// directory at a time; those that write to the same object order themselves
// with [Store.Lock]. What a killed process leaves is invisible, and
// [Store.Sweep] removes it.
//
// Errors about names wrap [fs.ErrInvalid], about absent artifacts
// [fs.ErrNotExist], and content that is not what its digest says is a
// [DigestError].
type Store struct {
	root      *os.Root
	base      string
	algorithm Algorithm
	keepFor   time.Duration
	keep      int
	now       func() time.Time
	temp      scratch
	locks     locks      // by directory of an object
	hashing   sync.Mutex // held while the handler hashes a file
	cache     *Cache
}

// Private names in the root of a store.
const (
	privateDir = ".store"
	tempDir    = privateDir + "/tmp"
	objectDir  = privateDir + "/object"
	lockName   = ".lock"
)

const defaultKeepFor = time.Minute

// OpenStore opens a store, and creates its directory when there is none.
func OpenStore(c StoreConfig) (*Store, error) {
	if c.Dir == "" {
		return nil, errors.New("open store: no directory given")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s := &Store{algorithm: c.Algorithm, keepFor: c.KeepFor, keep: c.Keep, now: c.Now, cache: c.Cache}
	s.defaults()
	if s.base, err = baseURL(c.BaseURL, dir); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if _, err := s.algorithm.New(); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if s.root, err = os.OpenRoot(dir); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s.temp = scratch{root: s.root, dir: tempDir}
	return s, nil
}

func (s *Store) defaults() {
	if s.algorithm == "" {
		s.algorithm = SHA256
	}
	if s.keepFor == 0 {
		s.keepFor = defaultKeepFor
	}
	if s.keep == 0 {
		s.keep = 2
	}
	if s.now == nil {
		s.now = time.Now
	}
}

// Close releases the directory. The store cannot be used afterwards; files
// that it handed out can.
func (s *Store) Close() error { return s.root.Close() }

// URL returns the URL of a path in the store. It follows the configuration of
// today, while an old [Artifact] has the one of the day it was stored.
func (s *Store) URL(path string) string {
	return s.base + "/" + (&url.URL{Path: path}).EscapedPath()
}

// baseURL completes the prefix of artifact URLs; dir is absolute.
func baseURL(base, dir string) (string, error) {
	if base == "" {
		return fileURL(dir), nil
	}
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: base URL is malformed", fs.ErrInvalid)
	case u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("%w: base URL has scheme %q; use http or https", fs.ErrInvalid, u.Scheme)
	case u.Host == "":
		return "", fmt.Errorf("%w: base URL names no host", fs.ErrInvalid)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("%w: base URL has credentials, a query or a fragment; give scheme, host and path only", fs.ErrInvalid)
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// fileURL returns the file URL of an absolute path: file:///srv/store,
// file:///C:/store, file://host/share/store.
func fileURL(path string) string {
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path)}
	if rest, ok := strings.CutPrefix(u.Path, "//"); ok {
		u.Host, u.Path, _ = strings.Cut(rest, "/")
	}
	if !strings.HasPrefix(u.Path, "/") {
		u.Path = "/" + u.Path
	}
	return u.String()
}
