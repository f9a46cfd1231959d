// Package local reads a Git repository on this machine: its refs, and its objects as
// an [object.Database].
//
// It supports ordinary and bare repositories, shallow and partial clones (without the
// objects that they lack), linked worktrees and alternates; loose objects and packs
// with index version 2. A repository that names its objects by SHA-256 is refused.
// The package runs no program and no hook and writes nothing. It reads no
// environment, and no configuration except that of the repository format.
//
// go-git reads the indexes of packs, the headers of objects and deltas. Its storage
// is not used: that is not safe for concurrent use, reads the indexes of alternates
// again for every object, follows cycles of deltas without end, and allocates memory
// before a limit can apply.
//
// The files of the repository are untrusted input: sizes are checked before memory is
// allocated, and every object is compared with its ID as it is read. An object that
// is stored whole is streamed; one that is stored as a delta is built in memory,
// within [MaxDelta].
package local

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/headgate-io/headgate/git/internal/object"
)

// ErrNotRepository is returned by [Open] for a path that holds no repository.
var ErrNotRepository = errors.New("not a git repository")

// MaxDelta bounds an object that is stored as a delta, and the base of one: Git
// makes no deltas of larger ones (core.bigFileThreshold).
const MaxDelta = 512 << 20

// A Repo is an open repository. It implements [object.Database] and is safe for
// concurrent use.
type Repo struct {
	dir         string   // of HEAD: differs from common in a linked worktree
	common      string   // of refs and objects
	max         int64    // bytes of an object
	objectDirs  []string // folders of objects: the own one, then the alternates
	missingHint string   // what kind of clone this is, which explains missing objects

	mu    sync.RWMutex
	packs map[string]*pack // by the path of the index

	cacheMu     sync.Mutex
	bases       map[packOffset]packedObject // cached bases of deltas
	cachedBytes int                         // bytes in bases
}

// Open opens the repository at path: a working tree or the folder of a bare
// repository. Objects of more than maxObject bytes will not be read; 0 means 1 GiB, a
// negative number no limit. If path holds no repository, the error wraps
// [ErrNotRepository]. The caller closes the Repo.
func Open(path string, maxObject int64) (*Repo, error) {
	switch {
	case maxObject == 0:
		maxObject = 1 << 30
	case maxObject < 0:
		maxObject = math.MaxInt64
	}
	r := &Repo{max: maxObject, packs: make(map[string]*pack), bases: make(map[packOffset]packedObject)}
	err := r.locate(path)
	if err == nil {
		err = r.readConfig()
	}
	if err == nil {
		err = r.findObjectDirs(filepath.Join(r.common, "objects"), 0)
	}
	if err == nil {
		_, err = r.openPacks()
	}
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("open repository %s: %w", path, err)
	}
	return r, nil
}

// Close closes the files of the repository. Reading open contents fails from then on.
func (r *Repo) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, p := range r.packs {
		errs = append(errs, p.Close())
	}
	clear(r.packs)
	return errors.Join(errs...)
}

// LFS returns the folder where git-lfs keeps the objects of the repository.
func (r *Repo) LFS() string { return filepath.Join(r.common, "lfs", "objects") }

// maxFile bounds the small files of a repository.
const maxFile = 1 << 20

// readFile returns the content of a small file.
func readFile(name string) (string, error) {
	f, err := openFile(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s: %w: more than %d bytes", name, object.ErrCorrupt, maxFile)
	}
	return string(b), err
}

// openFile opens a regular file. It refuses other kinds of files, because opening them
// may block forever.
func openFile(name string) (*os.File, error) {
	info, err := os.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w: it is no regular file", name, object.ErrCorrupt)
	}
	if err != nil {
		return nil, err
	}
	return os.Open(name)
}

// locate finds the folders of the repository at path.
func (r *Repo) locate(path string) error {
	r.dir = filepath.Join(path, ".git")
	info, err := os.Stat(r.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.dir = path
	case err != nil:
		return err
	case !info.IsDir():
		text, err := readFile(r.dir)
		if err != nil {
			return err
		}
		dir, ok := strings.CutPrefix(text, "gitdir: ")
		if !ok {
			return fmt.Errorf("%w: the file .git names no gitdir", ErrNotRepository)
		}
		r.dir = resolvePath(path, strings.TrimRight(dir, "\r\n"))
	}
	r.common = r.dir
	text, err := readFile(filepath.Join(r.dir, "commondir"))
	if err == nil {
		r.common = resolvePath(r.dir, strings.TrimRight(text, "\r\n"))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, part := range []string{filepath.Join(r.dir, "HEAD"), filepath.Join(r.common, "objects")} {
		if _, err := os.Lstat(part); err != nil {
			return fmt.Errorf("%w: %w", ErrNotRepository, err)
		}
	}
	return nil
}

// resolvePath returns path; a relative path is joined to dir.
func resolvePath(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// maxObjectDirs bounds the folders of objects: each alternate can name more of them.
const maxObjectDirs = 16

// findObjectDirs lists the folders that hold objects.
func (r *Repo) findObjectDirs(dir string, depth int) error {
	if len(r.objectDirs) == maxObjectDirs || depth > 5 {
		return fmt.Errorf("%s: more alternates than %d, or too deep", dir, maxObjectDirs)
	}
	r.objectDirs = append(r.objectDirs, dir)
	file := filepath.Join(dir, "info", "alternates")
	text, err := readFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" || line[0] == '#' {
			continue
		}
		if line[0] == '"' {
			return fmt.Errorf("%s: quoted paths are not supported", file)
		}
		if err := r.findObjectDirs(resolvePath(dir, line), depth+1); err != nil {
			return err
		}
	}
	return nil
}
