package artifact_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
)

// TestReadKeepsNamesOnly reads headers of 1 MiB with short names: only the names may stay in
// memory.
func TestReadKeepsNamesOnly(t *testing.T) {
	measure.WithoutRace(t)
	comment := strings.Repeat("c", 1<<20-100)
	var entries []tar.Header
	for i := range 40 {
		name := fmt.Sprintf("ü%d", i) // requires a PAX header
		entries = append(entries, tar.Header{Typeflag: tar.TypeReg, Name: name, PAXRecords: map[string]string{"comment": comment}})
	}
	archive := archived(t, entries...)
	before := measure.LiveBytes()
	tree := opened(t, archive)
	if grown := measure.LiveBytes() - before; grown > 8<<20 {
		t.Errorf("the tree holds %d bytes", grown)
	}
	runtime.KeepAlive(archive)
	testenv.Equal(t, tree.Report().Files, len(entries), "files")
}

func TestSpool(t *testing.T) {
	archive := tarOf(t, fstest.MapFS{"a": {Data: noise(1 << 20)}})
	t.Run("cannot be created", func(t *testing.T) {
		full := errors.New("disk full")
		_, err := artifact.Read(bytes.NewReader(archive), artifact.Limits{Temp: func() (*os.File, error) { return nil, full }})
		if !errors.Is(err, full) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("cannot be written", func(t *testing.T) {
		_, err := artifact.Read(bytes.NewReader(archive), artifact.Limits{Temp: func() (*os.File, error) {
			f, err := os.CreateTemp(t.TempDir(), "")
			if err != nil {
				return nil, err
			}
			defer f.Close()
			return os.Open(f.Name())
		}})
		if err == nil || errors.Is(err, artifact.ErrFormat) || !strings.Contains(err.Error(), "write spool") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("leaves no file", func(t *testing.T) {
		dir := t.TempDir()
		t.Setenv("TMPDIR", dir)
		t.Setenv("TMP", dir)
		tree := opened(t, archive)
		must(t, tree.Close())
		if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
			t.Errorf("left %v, %v", list, err)
		}
	})
	t.Run("no directory for it", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir()+"/nothing")
		t.Setenv("TMP", t.TempDir()+"/nothing")
		if _, err := artifact.Read(bytes.NewReader(archive), artifact.Limits{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("error %v", err)
		}
	})
}
