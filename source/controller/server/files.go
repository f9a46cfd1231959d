package server

import (
	"errors"
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

	fileBytes  = 128 // of a file in a list, without its name
	shelfBytes = 16 << 20
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
	all, err := c.files.list(c.Store, *a)
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
// a time.
type shelf struct {
	making sync.Mutex

	mu    sync.Mutex
	lists []fileList // the one that was used last at the end
	bytes int
}

// A fileList is the list of an artifact.
type fileList struct {
	digest string
	files  []api.File
	bytes  int
}

// list returns the files of an artifact, which nobody may change.
func (s *shelf) list(store *artifact.Store, a artifact.Artifact) ([]api.File, error) {
	if found, ok := s.find(a.Path); ok {
		return found, nil
	}
	s.making.Lock()
	defer s.making.Unlock()
	if found, ok := s.find(a.Path); ok {
		return found, nil
	}
	files, err := read(store, a)
	if err != nil {
		return nil, err
	}
	s.keep(a.Path, files)
	return files, nil
}

func (s *shelf) find(digest string) ([]api.File, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.lists, func(l fileList) bool { return l.digest == digest })
	if i < 0 {
		return nil, false
	}
	found := s.lists[i]
	s.lists = append(slices.Delete(s.lists, i, i+1), found)
	return found.files, true
}

func (s *shelf) keep(digest string, files []api.File) {
	l := fileList{digest: digest, files: files}
	for _, f := range files {
		l.bytes += fileBytes + len(f.Path)
	}
	if l.bytes > shelfBytes {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists = append(s.lists, l)
	for s.bytes += l.bytes; s.bytes > shelfBytes; s.lists = slices.Delete(s.lists, 0, 1) {
		s.bytes -= s.lists[0].bytes
	}
}

// read returns the files of an artifact; of one that is no archive the one file.
func read(store *artifact.Store, a artifact.Artifact) ([]api.File, error) {
	content, err := store.Open(a)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	if !archive(a.Path) {
		return []api.File{{Path: path.Base(a.Path), Size: a.Size}}, nil
	}
	tree, err := artifact.Read(content, artifact.Limits{Temp: store.Temp})
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
