package artifact_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
)

// What was checked before is checked again when anything about it changed.
func TestCheckAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(file, record string) error
		is     func(error) bool
	}{
		"nothing":            {func(string, string) error { return nil }, func(err error) bool { return err == nil }},
		"file removed":       {func(file, _ string) error { return os.Remove(file) }, func(err error) bool { return errors.Is(err, fs.ErrNotExist) }},
		"content":            {func(file, _ string) error { return os.WriteFile(file, []byte("other"), 0o600) }, damagedArtifact},
		"file and its times": {replaceAlike, damagedArtifact},
		"damage that another process found": {func(file, record string) error {
			return errors.Join(overwriteAlike(file), os.Remove(record))
		}, damagedArtifact},
		"record of another digest": {func(_, record string) error {
			return os.WriteFile(record, []byte("sha256:00 5 0 1\n"), 0o600)
		}, func(err error) bool { return err == nil }}, // it is hashed
		"a directory in its place": {func(file, _ string) error {
			return errors.Join(os.Remove(file), os.Mkdir(file, 0o700))
		}, func(err error) bool { return errors.Is(err, fs.ErrNotExist) }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := artifact.OpenStore(artifact.StoreConfig{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			a := putText(t, s, "a.txt", "right")
			for range 3 {
				if err := s.Check(a); err != nil {
					t.Fatal(err)
				}
			}
			file := filepath.Join(dir, filepath.FromSlash(a.Path))
			record := filepath.Join(filepath.Dir(file), "."+filepath.Base(file))
			if err := c.change(file, record); err != nil {
				t.Fatal(err)
			}
			if err := s.Check(a); !c.is(err) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func damagedArtifact(err error) bool {
	var corrupt *artifact.DigestError
	return errors.As(err, &corrupt)
}

// overwriteAlike changes the content of a file, and neither its size nor its time.
func overwriteAlike(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(file, []byte("wrong"), 0o600), os.Chtimes(file, info.ModTime(), info.ModTime()))
}

// replaceAlike puts another file of the same size and time in the place of file.
func replaceAlike(file, _ string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	other := file + ".new"
	return errors.Join(os.WriteFile(other, []byte("wrong"), 0o600), os.Chtimes(other, info.ModTime(), info.ModTime()), os.Rename(other, file))
}

func putText(t *testing.T, s *artifact.Store, file, text string) artifact.Artifact {
	t.Helper()
	a, err := s.Put(t.Context(), "kind/space/name", file, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// An object that had one artifact alone is pruned again when there may be more.
func TestPruneAgain(t *testing.T) {
	now := time.Now()
	dir := t.TempDir()
	open := func() *artifact.Store {
		s, err := artifact.OpenStore(artifact.StoreConfig{Dir: dir, Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	s := open()
	there := func(a artifact.Artifact) bool { return s.Verify(t.Context(), a) == nil }
	prune := func(s *artifact.Store, keep artifact.Artifact) {
		t.Helper()
		if err := s.Prune("kind/space/name", keep); err != nil {
			t.Fatal(err)
		}
	}
	a := putText(t, s, "a.txt", "one")
	prune(s, a)
	now = now.Add(time.Second)
	b := putText(t, s, "b.txt", "one") // the same digest
	prune(s, b)
	if !there(a) {
		t.Error("a superseded artifact went at once")
	}
	now = now.Add(2 * time.Minute)
	prune(s, b)
	if there(a) || !there(b) {
		t.Error("a superseded artifact stays")
	}
	prune(s, b)
	c := putText(t, s, "b.txt", "two")
	now = now.Add(2 * time.Minute)
	prune(s, c)
	if there(b) || !there(c) {
		t.Error("a superseded artifact stays")
	}
	// Another process stores something, and goes back.
	other := open()
	now = now.Add(time.Second)
	d := putText(t, other, "b.txt", "three")
	now = now.Add(time.Second)
	putText(t, other, "b.txt", "two")
	now = now.Add(2 * time.Hour)
	prune(s, c)
	if there(d) || !there(c) {
		t.Error("what another process superseded stays")
	}
}
