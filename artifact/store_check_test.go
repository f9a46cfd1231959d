package artifact_test

import (
	"context"
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

func TestCheckNotices(t *testing.T) {
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
		"a lost record": {func(name string) error { return os.Remove(record(name)) }, fine},
		"a torn record": {func(name string) error { return os.Truncate(record(name), 20) }, fine},
		"an empty record": {func(name string) error {
			return os.Truncate(record(name), 0)
		}, fine},
	}
	for name, test := range tests {
		for _, reopen := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/reopen=%v", name, reopen), func(t *testing.T) {
				s, dir := openStore(t, artifact.StoreConfig{})
				a := put(t, s, object, "a.tar.gz", "content")
				if reopen {
					s, _ = openStore(t, artifact.StoreConfig{Dir: dir})
				}
				if err := s.Check(a); err != nil {
					t.Fatal(err)
				}
				if err := test.damage(filepath.Join(dir, a.Path)); err != nil {
					t.Fatal(err)
				}
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

// Damage that leaves size, time and inode as they were is found by Verify,
// and from then on by Check.
func TestVerifyFindsSilentDamage(t *testing.T) {
	s, dir := openStore(t, artifact.StoreConfig{})
	a := put(t, s, object, "a.tar.gz", "content")
	name := filepath.Join(dir, a.Path)
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(name, []byte("c0ntent"), 0o600), os.Chtimes(name, info.ModTime(), info.ModTime())); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.ReadAll(r); !errors.As(err, &corrupt) {
		t.Errorf("reading a corrupt artifact: %v", err)
	}
}

func TestVerifyObeysContext(t *testing.T) {
	s, _ := openStore(t, artifact.StoreConfig{})
	a := put(t, s, object, "a.tar.gz", "content")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Verify(ctx, a); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Whatever the record says, content that is not the artifact's is not taken
// for it.
func FuzzRecord(f *testing.F) {
	dir := f.TempDir()
	s, err := artifact.OpenStore(artifact.StoreConfig{Dir: dir})
	if err != nil {
		f.Fatal(err)
	}
	a, err := s.Put(f.Context(), object, "a.tar.gz", text("content"))
	if err != nil {
		f.Fatal(err)
	}
	name := filepath.Join(dir, a.Path)
	good, err := os.ReadFile(record(name))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(a.Digest + " 7 0 0\n"))
	f.Add([]byte(a.Digest + " 99999999999999999999 -1 x"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if err := errors.Join(os.WriteFile(name, []byte("c0ntent"), 0o600), os.WriteFile(record(name), line, 0o600)); err != nil {
			t.Fatal(err)
		}
		var corrupt *artifact.DigestError
		if err := s.Check(a); !errors.As(err, &corrupt) {
			t.Errorf("with record %q: %v", line, err)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	s, err := artifact.OpenStore(artifact.StoreConfig{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	a, err := s.Put(b.Context(), object, "a.tar.gz", func(w io.Writer) error {
		_, err := w.Write(make([]byte, 32<<20))
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("recorded", func(b *testing.B) {
		for b.Loop() {
			if err := s.Check(a); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("hashed", func(b *testing.B) {
		b.SetBytes(a.Size)
		for b.Loop() {
			if err := s.Verify(b.Context(), a); err != nil {
				b.Fatal(err)
			}
		}
	})
}
