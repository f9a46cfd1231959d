package artifact_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
)

func TestPutPublishes(t *testing.T) {
	c := newClock()
	s, dir := openStore(t, artifact.StoreConfig{BaseURL: "artifacts.example.org:9090/", Now: c.Now})
	a := put(t, s, object, "app-1.0.0+3.tgz", "content")
	sum := sha256.Sum256([]byte("content"))
	digest := hex.EncodeToString(sum[:])
	want := artifact.Artifact{
		Path:           object + "/" + digest + "/app-1.0.0+3.tgz",
		URL:            "http://artifacts.example.org:9090/" + object + "/" + digest + "/app-1.0.0+3.tgz",
		Digest:         "sha256:" + digest,
		LastUpdateTime: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		Size:           7,
	}
	if a.Path != want.Path || a.URL != want.URL || a.Digest != want.Digest || a.LastUpdateTime != want.LastUpdateTime || a.Size != want.Size {
		t.Errorf("Put returned %+v, want %+v", a, want)
	}
	if err := s.Check(a); err != nil {
		t.Error(err)
	}
	if err := s.Verify(t.Context(), a); err != nil {
		t.Error(err)
	}
	testenv.Equal(t, files(t, dir), []string{a.Path}, "the store holds")
	r, err := s.Open(a)
	must(t, err)
	defer r.Close()
	if b, err := io.ReadAll(r); err != nil || string(b) != "content" {
		t.Errorf("read %q, %v", b, err)
	}
	if runtime.GOOS == "windows" {
		return
	}
	if info, err := os.Stat(filepath.Join(dir, a.Path)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
}

func TestPutKeepsExisting(t *testing.T) {
	c := newClock()
	s, _ := openStore(t, artifact.StoreConfig{Now: c.Now})
	first := put(t, s, object, "a.tar.gz", "one")
	c.advance(time.Hour)
	if again := put(t, s, object, "a.tar.gz", "one"); again.LastUpdateTime != first.LastUpdateTime {
		t.Errorf("time of update moved from %v to %v although nothing was written", first.LastUpdateTime, again.LastUpdateTime)
	}
	put(t, s, object, "b.tar.gz", "two")
	c.advance(time.Hour)
	if again := put(t, s, object, "a.tar.gz", "one"); again.LastUpdateTime != c.Now().Truncate(time.Second) {
		t.Errorf("time of update is %v after the artifact came back, want now", again.LastUpdateTime)
	} else if err := s.Check(again); err != nil {
		t.Error(err)
	}
}

func TestPutAllOrNothing(t *testing.T) {
	full := &fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	tests := map[string]struct {
		write func(w io.Writer, cancel func()) error
		want  error
	}{
		"disk full":            {func(w io.Writer, _ func()) error { io.WriteString(w, "half"); return full }, syscall.ENOSPC},
		"error":                {func(io.Writer, func()) error { return io.ErrUnexpectedEOF }, io.ErrUnexpectedEOF},
		"cancelled":            {func(_ io.Writer, cancel func()) error { cancel(); return nil }, context.Canceled},
		"failed write ignored": {func(w io.Writer, cancel func()) error { cancel(); io.WriteString(w, "x"); return nil }, context.Canceled},
	}
	s, dir := openStore(t, artifact.StoreConfig{})
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			write := func(w io.Writer) error { return test.write(w, cancel) }
			if _, err := s.Put(ctx, object, "a.tar.gz", write); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of write was swallowed")
			}
		}()
		s.Put(t.Context(), object, "a.tar.gz", func(w io.Writer) error { io.WriteString(w, "half"); panic("write") })
	}()
	testenv.Equal(t, files(t, dir), nil, "the store holds")
}

func TestTempHasNoName(t *testing.T) {
	s, dir := openStore(t, artifact.StoreConfig{})
	f, err := s.Temp()
	must(t, err)
	defer f.Close()
	testenv.Equal(t, files(t, dir), nil, "the store holds")
	if _, err := f.WriteString("spool"); err != nil {
		t.Error(err)
	}
	b := make([]byte, 5)
	if _, err := f.ReadAt(b, 0); err != nil || string(b) != "spool" {
		t.Errorf("read %q, %v", b, err)
	}
}
