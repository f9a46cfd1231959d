package artifact_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv/measure"
)

// wrongSizeFS is a tree with one file whose size differs from its announced size.
type wrongSizeFS struct {
	fstest.MapFS
	name    string
	content io.Reader // content when read
}

func (l wrongSizeFS) Open(name string) (fs.File, error) {
	f, err := l.MapFS.Open(name)
	if name == l.name && err == nil {
		return wrongSizeFile{f, l.content}, nil
	}
	return f, err
}

type wrongSizeFile struct {
	fs.File
	content io.Reader
}

func (l wrongSizeFile) Read(p []byte) (int, error) { return l.content.Read(p) }

// failingReader fails.
type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

func TestFileThatChanges(t *testing.T) {
	const large = 3 << 20
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		size    int
		content io.Reader
		want    error
	}{
		"shrunk":             {100, strings.NewReader("short"), artifact.ErrChanged},
		"emptied":            {100, strings.NewReader(""), artifact.ErrChanged},
		"grown":              {4, strings.NewReader("grown"), artifact.ErrChanged},
		"no longer empty":    {0, strings.NewReader("x"), artifact.ErrChanged},
		"large shrunk":       {large, strings.NewReader("short"), artifact.ErrChanged},
		"large grown":        {large, strings.NewReader(strings.Repeat("x", large+1)), artifact.ErrChanged},
		"fails":              {100, failingReader{broken}, broken},
		"fails at end":       {3, io.MultiReader(strings.NewReader("abc"), failingReader{broken}), broken},
		"large fails":        {large, failingReader{broken}, broken},
		"large fails at end": {large, io.MultiReader(strings.NewReader(strings.Repeat("x", large)), failingReader{broken}), broken},
		"source truncated":   {100, failingReader{io.ErrUnexpectedEOF}, io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			tree := fstest.MapFS{"a": {Data: []byte("fine")}, "b": {Data: make([]byte, test.size)}, "c": {}}
			_, err := artifact.Tar(t.Context(), io.Discard, wrongSizeFS{tree, "b", test.content})
			if !errors.Is(err, test.want) || !strings.Contains(fmt.Sprint(err), `"b"`) {
				t.Errorf("error %v, want %v naming b", err, test.want)
			}
		})
	}
}

func TestTreeErrors(t *testing.T) {
	t.Run("open fails", func(t *testing.T) {
		for _, size := range []int{1, 2 << 20} {
			tree := unopenableFS{fstest.MapFS{"secret": {Data: make([]byte, size)}}}
			if _, err := artifact.Tar(t.Context(), io.Discard, tree); !errors.Is(err, fs.ErrPermission) {
				t.Errorf("error %v, want fs.ErrPermission", err)
			}
		}
	})
	t.Run("no root", func(t *testing.T) {
		sub, err := fs.Sub(golden(), "nothing")
		must(t, err)
		if _, err := artifact.Tar(t.Context(), io.Discard, sub); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error %v, want fs.ErrNotExist", err)
		}
	})
	t.Run("root is a file", func(t *testing.T) {
		sub, err := fs.Sub(golden(), "a.txt")
		must(t, err)
		if _, err := artifact.Tar(t.Context(), io.Discard, sub); err == nil {
			t.Error("packed")
		}
	})
	t.Run("entry changes", func(t *testing.T) {
		infoErr := errors.New("gone")
		for _, test := range []struct{ info, want error }{{infoErr, infoErr}, {nil, artifact.ErrChanged}} {
			_, err := artifact.Tar(t.Context(), io.Discard, vanishingFS{golden(), test.info})
			if !errors.Is(err, test.want) || !strings.Contains(fmt.Sprint(err), `"a.txt"`) {
				t.Errorf("error %v, want %v naming a.txt", err, test.want)
			}
		}
	})
	t.Run("first in order", func(t *testing.T) {
		_, err := artifact.Tar(t.Context(), io.Discard, unopenableFS{many(300)})
		if !strings.Contains(fmt.Sprint(err), `"d000/f00"`) {
			t.Errorf("error %v does not name the first file", err)
		}
	})
}

// vanishingFS is a tree whose entries are listed as regular files but turn out to be missing, or
// pipes.
type vanishingFS struct {
	fstest.MapFS
	err error
}

func (f vanishingFS) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(f.MapFS, name)
	for i, entry := range list {
		list[i] = vanishingEntry{entry, f.err}
	}
	return list, err
}

type vanishingEntry struct {
	fs.DirEntry
	err error
}

func (f vanishingEntry) Info() (fs.FileInfo, error) {
	pipe, err := fs.Stat(fstest.MapFS{"p": {Mode: fs.ModeNamedPipe}}, "p")
	return pipe, errors.Join(f.err, err)
}

// unopenableFS is a tree whose files cannot be opened.
type unopenableFS struct{ fstest.MapFS }

func (u unopenableFS) Open(name string) (fs.File, error) {
	f, err := u.MapFS.Open(name)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return f, nil
}

// failingWriter fails after n bytes.
type failingWriter struct {
	n   int
	err error
}

func (f *failingWriter) Write(p []byte) (int, error) {
	if f.n -= len(p); f.n < 0 {
		return 0, f.err
	}
	return len(p), nil
}

func TestWriterThatFails(t *testing.T) {
	full := errors.New("disk full")
	tree := fstest.MapFS{"large": {Data: noise(8 << 20)}, "small": {Data: noise(100)}}
	for _, after := range []int{0, 5, 300, 1 << 20, 5 << 20, 8<<20 + 10} {
		if _, err := artifact.Pack(t.Context(), &failingWriter{after, full}, tree); !errors.Is(err, full) {
			t.Errorf("Pack, failing after %d bytes: %v", after, err)
		}
		if _, err := artifact.Tar(t.Context(), &failingWriter{after, full}, tree); !errors.Is(err, full) {
			t.Errorf("Tar, failing after %d bytes: %v", after, err)
		}
	}
}

// stallingFS is a tree whose files block until a context ends, like files of a tree on a network.
type stallingFS struct {
	fs.FS
	ctx    context.Context
	opened chan<- struct{}
}

func (s stallingFS) Open(name string) (fs.File, error) {
	f, err := s.FS.Open(name)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return f, err
	}
	select {
	case s.opened <- struct{}{}:
	default:
	}
	return wrongSizeFile{f, readerFunc(func([]byte) (int, error) {
		<-s.ctx.Done()
		return 0, s.ctx.Err()
	})}, nil
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestCancel(t *testing.T) {
	stop := errors.New("stop")
	large := fstest.MapFS{"large": {Data: make([]byte, 2<<20)}}
	for name, tree := range map[string]fs.FS{"small files": many(3000), "large file": large} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			opened := make(chan struct{}, 1)
			go func() {
				<-opened
				cancel(stop)
			}()
			_, err := artifact.Pack(ctx, io.Discard, stallingFS{tree, ctx, opened})
			if !errors.Is(err, stop) && !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
		})
	}
	t.Run("before", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(stop)
		for range 50 {
			if _, err := artifact.Tar(ctx, io.Discard, many(10)); !errors.Is(err, stop) {
				t.Fatalf("error %v, want the cause", err)
			}
		}
	})
	t.Run("while writing", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		w := writerFunc(func(p []byte) (int, error) {
			cancel(stop)
			return len(p), nil
		})
		if _, err := artifact.Tar(ctx, w, many(5000)); !errors.Is(err, stop) {
			t.Errorf("error %v, want the cause", err)
		}
	})
	measure.WaitGone(t, "headgate/artifact.")
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
