package artifact_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
)

func TestCheckDetectsChanges(t *testing.T) {
	corrupt := func(err error) bool { var d *artifact.DigestError; return errors.As(err, &d) }
	missing := func(err error) bool { return errors.Is(err, fs.ErrNotExist) }
	fine := func(err error) bool { return err == nil }
	tests := map[string]struct {
		damage func(name string) error
		want   func(error) bool
	}{
		"truncation":   {func(name string) error { return os.Truncate(name, 3) }, corrupt},
		"emptied":      {func(name string) error { return os.Truncate(name, 0) }, corrupt},
		"growth":       {func(name string) error { return os.WriteFile(name, []byte("content+"), 0o600) }, corrupt},
		"modification": {func(name string) error { return os.WriteFile(name, []byte("c0ntent"), 0o600) }, corrupt},
		"removal":      {os.Remove, missing},
		"replacement with the old time": {func(name string) error {
			info, err := os.Stat(name)
			if err != nil {
				return err
			}
			other := name + "2"
			return errors.Join(os.WriteFile(other, []byte("c0ntent"), 0o600), os.Rename(other, name), os.Chtimes(name, info.ModTime(), info.ModTime()))
		}, corrupt},
		"replacement by a directory": {func(name string) error { return errors.Join(os.Remove(name), os.Mkdir(name, 0o700)) }, missing},
		"a touch":                    {func(name string) error { return os.Chtimes(name, time.Time{}, time.Unix(1, 0)) }, fine},
		"a copy": {func(name string) error {
			return errors.Join(os.WriteFile(name+"2", []byte("content"), 0o600), os.Rename(name+"2", name))
		}, fine},
		"a lost record":              {func(name string) error { return os.Remove(record(name)) }, fine},
		"a torn record":              {func(name string) error { return os.Truncate(record(name), 20) }, fine},
		"an empty record":            {func(name string) error { return os.Truncate(record(name), 0) }, fine},
		"a record of another digest": {func(name string) error { return os.WriteFile(record(name), []byte("sha256:00 5 0 1\n"), 0o600) }, fine},
	}
	for name, test := range tests {
		for _, reopen := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/reopen=%v", name, reopen), func(t *testing.T) {
				s, dir := openStore(t, artifact.StoreConfig{})
				a := put(t, s, object, "a.tar.gz", "content")
				if reopen {
					s, _ = openStore(t, artifact.StoreConfig{Dir: dir})
				}
				must(t, s.Check(a))
				must(t, test.damage(filepath.Join(dir, a.Path)))
				for range 2 {
					if err := s.Check(a); !test.want(err) {
						t.Errorf("Check: %v", err)
					}
					if err := s.Verify(t.Context(), a); !test.want(err) {
						t.Errorf("Verify: %v", err)
					}
				}
			})
		}
	}
}

func record(name string) string { return filepath.Join(filepath.Dir(name), "."+filepath.Base(name)) }

// Verify finds damage that leaves size, time and inode unchanged, and afterwards Check finds it
// too.
func TestVerifyFindsSilentDamage(t *testing.T) {
	s, dir := openStore(t, artifact.StoreConfig{})
	a := put(t, s, object, "a.tar.gz", "content")
	name := filepath.Join(dir, a.Path)
	info, err := os.Stat(name)
	must(t, err)
	must(t, errors.Join(os.WriteFile(name, []byte("c0ntent"), 0o600), os.Chtimes(name, info.ModTime(), info.ModTime())))
	if err := s.Check(a); err != nil {
		t.Errorf("Check hashed a file that looks as recorded: %v", err)
	}
	var corrupt *artifact.DigestError
	if err := s.Verify(t.Context(), a); !errors.As(err, &corrupt) || corrupt.Want != a.Digest {
		t.Errorf("Verify: %v", err)
	}
	if err := s.Check(a); !errors.As(err, &corrupt) {
		t.Errorf("Check after Verify: %v", err)
	}
	r, err := s.Open(a)
	must(t, err)
	defer r.Close()
	if _, err := io.ReadAll(r); !errors.As(err, &corrupt) {
		t.Errorf("reading a corrupt artifact: %v", err)
	}
}
