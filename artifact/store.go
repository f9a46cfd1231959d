package artifact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate-io/headgate/internal/durable"
)

// A StoreConfig configures a [Store].
type StoreConfig struct {
	Dir string // root directory; created with mode 0700
	// BaseURL is the prefix of artifact URLs. Without a scheme it gets
	// http:// (reference A4). Default: the file URL of Dir.
	BaseURL   string
	Algorithm Algorithm // digest of stored files; default SHA256
	// KeepFor is how long a superseded artifact is kept, counted from the time its successor was
	// stored; default 60s, negative: forever.
	KeepFor time.Duration
	// Keep is the number of superseded artifacts that an object keeps beside the current ones;
	// default 2, negative: all.
	Keep int
	Now  func() time.Time // default time.Now
	// Cache is emptied to free space if the volume is full, its least recently used entries first;
	// default: none.
	Cache *Cache
}

// A Store stores published artifacts in a directory.
//
// # Layout
//
// An artifact is at KIND/NAMESPACE/NAME/HEX/FILE, where HEX is the hexadecimal part of its digest.
// A published path therefore always has the same content. Names that begin with a dot are private
// to the store and cannot be addressed:
//
//	KIND/NAMESPACE/NAME/HEX/.FILE              result of the last full hash of FILE, see [Store.Check]
//	.store/tmp/                                files being written
//	.store/object/KIND/NAMESPACE/NAME/.lock    see [Store.Lock]
//	.store/object/KIND/NAMESPACE/NAME/POINTER  see [Store.Point]
//
// All access uses [os.Root]: no name and no symbolic link leads out of the directory.
//
// # Guarantees
//
// [Store.Put] publishes all or nothing, and durably: when it returns, the file and its directories
// have reached the disk. Any number of processes may use one directory at a time; processes that
// write to the same object serialize their writes with [Store.Lock]. Files that a killed process
// leaves are invisible; [Store.Sweep] removes its temporary files, and [Store.GC] the rest.
//
// Errors about names wrap [fs.ErrInvalid], and errors about missing artifacts [fs.ErrNotExist].
// Content that does not match its digest is reported as a [DigestError].
type Store struct {
	root      *os.Root
	base      string
	algorithm Algorithm
	keepFor   time.Duration
	keep      int
	now       func() time.Time
	temp      tempDir
	locks     locks
	hashing   sync.Mutex // held while the handler hashes a file
	cache     *Cache
}

// Private names in the root of a store.
const (
	privateDir = ".store"
	tempPath   = privateDir + "/tmp"
	objectDir  = privateDir + "/object"
)

const defaultKeepFor = time.Minute

// OpenStore opens a store, and creates its directory if there is none.
func OpenStore(c StoreConfig) (_ *Store, err error) {
	defer wrap(&err, "open store")
	s := &Store{algorithm: cmp.Or(c.Algorithm, SHA256), keepFor: cmp.Or(c.KeepFor, defaultKeepFor), keep: cmp.Or(c.Keep, 2), now: c.Now, cache: c.Cache}
	if s.now == nil {
		s.now = time.Now
	}
	_, unknown := s.algorithm.New()
	dir, err := filepath.Abs(c.Dir)
	if err = cmp.Or(unknown, err); err != nil {
		return nil, err
	}
	if s.base, err = baseURL(c.BaseURL, dir); err != nil {
		return nil, err
	}
	s.root, err = openDir(c.Dir)
	s.temp = tempDir{s.root, tempPath}
	return s, err
}

// Close closes the directory. The store cannot be used afterwards; files that it returned can.
func (s *Store) Close() error { return s.root.Close() }

// Cache returns the cache that is emptied to free space for the store, nil if there is none.
func (s *Store) Cache() *Cache { return s.cache }

// Volume returns the size and the free space, in bytes, of the volume of the store.
func (s *Store) Volume() (size, free int64, err error) { return durable.Volume(s.root.Name()) }

// URL returns the URL of a path in the store. It uses the current configuration, while the URL of
// an old [Artifact] is from the time when it was stored.
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

// A storePath is the location of an artifact in a store.
type storePath struct{ dir, hex, file string }

func (p storePath) path() string   { return p.dir + "/" + p.hex + "/" + p.file }
func (p storePath) folder() string { return p.dir + "/" + p.hex }
func (p storePath) record() string { return p.dir + "/" + p.hex + "/." + p.file }

// parsePath parses a path in a store; ok is false if it is not one.
func parsePath(name string) (storePath, bool) {
	parts := strings.Split(name, "/")
	if len(parts) != 5 {
		return storePath{}, false
	}
	p := storePath{strings.Join(parts[:3], "/"), parts[3], parts[4]}
	return p, isHex(p.hex) && checkDir(p.dir) == nil && checkName(p.file) == nil
}

// locate returns the location of a, and its digest with an explicit algorithm. The path must
// contain the digest of a.
func locate(a Artifact) (p storePath, digest string, err error) {
	p, ok := parsePath(a.Path)
	algorithm, sum, err := ParseDigest(a.Digest)
	if !ok || err != nil || sum != p.hex {
		return storePath{}, "", fmt.Errorf("digest %q at that path: %w in this store", a.Digest, fs.ErrNotExist)
	}
	return p, string(algorithm) + ":" + sum, nil
}

// isHex reports whether s is a digest in lower-case hexadecimal.
func isHex(s string) bool {
	return len(s) >= 32 && len(s) <= 128 && len(s)%2 == 0 && strings.Trim(s, "0123456789abcdef") == ""
}

// checkDir reports why dir is not an object's directory KIND/NAMESPACE/NAME.
func checkDir(dir string) error {
	parts := strings.Split(dir, "/")
	if len(parts) != 3 {
		return fmt.Errorf("%w directory %q: want KIND/NAMESPACE/NAME", fs.ErrInvalid, dir)
	}
	for _, part := range parts {
		if err := checkName(part); err != nil {
			return err
		}
	}
	return nil
}

// maxName is the maximum length of the name of a file, in bytes. The name of its record has a dot
// more, and is the longest that common file systems support.
const maxName = 254

// reservedNames are device names on Windows, whatever their extension.
var reservedNames = func() map[string]bool {
	m := map[string]bool{"con": true, "prn": true, "aux": true, "nul": true, "conin$": true, "conout$": true}
	for _, n := range "0123456789¹²³" {
		m["com"+string(n)], m["lpt"+string(n)] = true, true
	}
	return m
}()

// checkName returns an error if name cannot be a component of a path. It is the same on every
// operating system, so that a store can be moved between them.
func checkName(name string) error {
	reason := ""
	stem, _, _ := strings.Cut(strings.ToLower(name), ".")
	switch {
	case name == "":
		reason = "it is empty"
	case len(name) > maxName:
		reason = fmt.Sprintf("it is longer than %d bytes", maxName)
	case !utf8.ValidString(name):
		reason = "it is not UTF-8"
	case name[0] == '.':
		reason = "it begins with a dot"
	case strings.HasSuffix(name, ".") || strings.HasSuffix(name, " "):
		reason = "it ends with a dot or a space"
	case strings.ContainsAny(name, `/\:*?"<>|`):
		reason = `it contains one of / \ : * ? " < > |`
	case strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		reason = "it contains a character that cannot be printed"
	case reservedNames[strings.TrimRight(stem, " ")]:
		reason = "it is the name of a device on Windows"
	default:
		return nil
	}
	return fmt.Errorf("%w name %q: %s", fs.ErrInvalid, name, reason)
}

// Check returns nil if a is present and unchanged.
//
// It compares size, modification time and, if the system has it, inode with the values that the
// last full hash recorded, by [Store.Put] or [Store.Verify] of any process. It hashes the file
// again only if they differ. Otherwise it costs no more than opening two files, and misses damage
// that leaves all three values unchanged; [Store.Verify] finds it.
//
// The error wraps [fs.ErrNotExist] if a is not in the store, and is a [DigestError] if its content
// has changed.
func (s *Store) Check(a Artifact) (err error) {
	defer wrap(&err, "check artifact %q", a.Path)
	f, err := s.find(a)
	if err != nil {
		return err
	}
	return errors.Join(s.checkIntact(f), f.Close())
}

// Verify hashes all of a and compares the digest. Its errors are those of [Store.Check].
func (s *Store) Verify(ctx context.Context, a Artifact) (err error) {
	defer wrap(&err, "verify artifact %q", a.Path)
	f, err := s.find(a)
	if err != nil {
		return err
	}
	return errors.Join(s.hash(ctx, f), f.Close())
}

// Open opens a. Reading fails at the end with a [DigestError] if the content has changed. The
// caller must close the reader.
func (s *Store) Open(a Artifact) (_ io.ReadCloser, err error) {
	defer wrap(&err, "open artifact %q", a.Path)
	f, err := s.find(a)
	if err != nil {
		return nil, err
	}
	r, err := VerifyReader(f, f.digest)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{r, f}, nil
}

// A storeFile is an open file of the store.
type storeFile struct {
	*os.File
	storePath
	info   fs.FileInfo
	digest string // expected digest of its content
}

// find opens the file of a.
func (s *Store) find(a Artifact) (*storeFile, error) {
	p, digest, err := locate(a)
	if err != nil {
		return nil, err
	}
	return s.open(p, digest)
}

func (s *Store) open(p storePath, digest string) (*storeFile, error) {
	f, info, err := s.openRegular(p.path())
	if err != nil {
		return nil, err
	}
	return &storeFile{f, p, info, digest}, nil
}

// checkIntact checks that f has its digest. It hashes f unless the record of f is up to date.
func (s *Store) checkIntact(f *storeFile) error {
	algorithm, _, _ := strings.Cut(f.digest, ":")
	switch found := s.recordedDigest(f); {
	case found == f.digest:
		return nil
	case strings.HasPrefix(found, algorithm+":"):
		return &DigestError{Want: f.digest, Got: found}
	}
	return s.hash(context.Background(), f)
}

// hash hashes all of f and records the result. The error is a [DigestError] if it is not the digest
// of f.
func (s *Store) hash(ctx context.Context, f *storeFile) error {
	r, err := VerifyReader(f, f.digest)
	if err == nil {
		_, err = io.Copy(io.Discard, &contextReader{ctx, r})
	}
	found := f.digest
	corrupt, damaged := errors.AsType[*DigestError](err)
	if damaged {
		found = corrupt.Got
	}
	if now, err1 := f.Stat(); err1 == nil && (err == nil || damaged) && now.Size() == f.info.Size() && now.ModTime().Equal(f.info.ModTime()) {
		s.writeRecord(f, found)
	}
	return err
}

// openRegular opens a regular file. Anything else, including a link, counts as missing.
func (s *Store) openRegular(name string) (*os.File, fs.FileInfo, error) {
	info, err := s.root.Lstat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := s.root.Open(name)
	if err != nil {
		return nil, nil, err
	}
	if info, err = f.Stat(); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// recordLine returns the record of f: the digest of its content, size, modification time and inode.
// A record is a cache: a torn or lost one costs one hash, so errors of writing it do not matter.
func recordLine(f *storeFile, digest string) string {
	return digest + " " + durable.StampOf(f.info).String() + "\n"
}

// writeRecord records that f has digest.
func (s *Store) writeRecord(f *storeFile, digest string) {
	s.root.WriteFile(f.record(), []byte(recordLine(f, digest)), 0o600)
}

// recordedDigest returns the digest that the last full hash of f found, "" if f has changed since.
func (s *Store) recordedDigest(f *storeFile) string {
	digest, line := s.readRecord(f.storePath)
	if line != recordLine(f, digest) {
		return ""
	}
	return digest
}

// readRecord returns the record of p and the digest in it.
func (s *Store) readRecord(p storePath) (digest, line string) {
	f, _, err := s.openRegular(p.record())
	if err != nil {
		return "", ""
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, 512))
	digest, _, _ = strings.Cut(string(text), " ")
	return digest, string(text)
}
