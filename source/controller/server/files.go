package server

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/source/controller/api"
)

const (
	defaultFiles = 1000
	maxFiles     = 10000

	maxListed  = 200_000  // files of an artifact: their list fits on a shelf
	fileBytes  = 40       // of a file in a list, without its name
	shelfBytes = 32 << 20 // of lists, names included
)

// listFiles answers with the files of an artifact in the order of their paths.
func (c *apiCall) listFiles() error {
	values, err := c.query("after", "limit")
	if err != nil {
		return err
	}
	limit, err := number(values, "limit", 1, maxFiles, defaultFiles)
	if err != nil {
		return err
	}
	ref, v, err := c.object()
	if err == nil {
		err = c.grant.Fetch(ref)
	}
	if err != nil {
		return err
	}
	a := v.Object.Artifact()
	if a == nil {
		return answer.Refuse(http.StatusNotFound, "%s has no artifact", ref)
	}
	all, err := c.files.list(c.r.Context(), c.Store, *a)
	if errors.Is(err, fs.ErrNotExist) {
		return answer.Refuse(http.StatusNotFound, "the artifact of %s is not in the store of this server", ref)
	}
	if tooMuch, is := errors.AsType[*artifact.LimitError](err); is {
		return answer.Refuse(http.StatusUnprocessableEntity, "the artifact of %s is too large for a list of its files: more than %d %s", ref, tooMuch.Limit, tooMuch.What)
	}
	if err != nil {
		return err
	}
	from := 0
	if after := values["after"]; after != "" {
		var found bool
		if from, found = slices.BinarySearchFunc(all, after, func(f api.File, name string) int { return strings.Compare(f.Path, name) }); found {
			from++
		}
	}
	page := all[from:min(len(all), from+limit)]
	next := ""
	if from+limit < len(all) {
		next = page[len(page)-1].Path
	}
	return c.reply(http.StatusOK, struct {
		Files []api.File `json:"files"`
		Next  string     `json:"next,omitempty"` // for after
	}{append([]api.File{}, page...), next})
}

// A shelf keeps the lists of the artifacts that were looked at last: those of
// one are asked for page by page. Its zero value is ready. One list is made at
// a time; who waits for its turn waits no longer than its request.
type shelf struct {
	mu    sync.Mutex
	turn  chan struct{} // has an element while a list is made; nil before the first
	lists []fileList    // the one that was used last at the end
	bytes int
}

// A fileList is the list of an artifact, or that it is too large for one.
type fileList struct {
	path  string
	files []api.File
	err   error // a *artifact.LimitError
	bytes int
}

// list returns the files of an artifact, which nobody may change.
func (s *shelf) list(ctx context.Context, store *artifact.Store, a artifact.Artifact) ([]api.File, error) {
	if found, ok := s.find(a.Path); ok {
		return found.files, found.err
	}
	end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if found, ok := s.find(a.Path); ok {
		return found.files, found.err
	}
	files, err := read(ctx, store, a)
	if ctx.Err() != nil {
		return nil, errLeft
	}
	if _, tooMuch := errors.AsType[*artifact.LimitError](err); err != nil && !tooMuch {
		return nil, err
	}
	s.keep(fileList{path: a.Path, files: slices.Clip(files), err: err})
	return files, err
}

// errLeft is answered to one who does not wait for the answer.
var errLeft = answer.Refuse(http.StatusServiceUnavailable, "the request ended before the list was made")

// begin waits for the turn to make a list.
func (s *shelf) begin(ctx context.Context) (end func(), err error) {
	s.mu.Lock()
	if s.turn == nil {
		s.turn = make(chan struct{}, 1)
	}
	turn := s.turn
	s.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, errLeft
	}
}

func (s *shelf) find(path string) (fileList, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.lists, func(l fileList) bool { return l.path == path })
	if i < 0 {
		return fileList{}, false
	}
	found := s.lists[i]
	s.lists = append(slices.Delete(s.lists, i, i+1), found)
	return found, true
}

func (s *shelf) keep(l fileList) {
	l.bytes = fileBytes + len(l.path)
	for _, f := range l.files {
		l.bytes += fileBytes + len(f.Path)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists = append(s.lists, l)
	for s.bytes += l.bytes; s.bytes > shelfBytes; s.lists = slices.Delete(s.lists, 0, 1) {
		s.bytes -= s.lists[0].bytes
	}
}

// A reading ends with its context.
type reading struct {
	io.Reader
	ctx context.Context
}

func (r reading) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// read returns the files of an artifact; of one that is no archive the one file.
func read(ctx context.Context, store *artifact.Store, a artifact.Artifact) ([]api.File, error) {
	content, err := store.Open(a)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	if !archive(a.Path) {
		return []api.File{{Path: path.Base(a.Path), Size: a.Size}}, nil
	}
	tree, err := artifact.Read(reading{content, ctx}, artifact.Limits{Entries: maxListed, Temp: store.Temp})
	if errors.Is(err, artifact.ErrFormat) {
		return []api.File{{Path: path.Base(a.Path), Size: a.Size}}, nil
	}
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	var files []api.File
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		f := api.File{Path: name, Dir: entry.IsDir()}
		if !f.Dir {
			f.Size, f.Executable = info.Size(), info.Mode()&0o111 != 0
		}
		files = append(files, f)
		return nil
	})
	slices.SortFunc(files, func(a, b api.File) int { return strings.Compare(a.Path, b.Path) })
	return files, err
}

// archive reports whether an artifact is an archive, by its name.
func archive(name string) bool {
	for _, ext := range []string{".tar.gz", ".tgz", ".tar"} {
		if strings.HasSuffix(strings.ToLower(name), ext) {
			return true
		}
	}
	return false
}
