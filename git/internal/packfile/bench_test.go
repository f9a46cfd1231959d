package packfile_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/packfile"
)

// BenchmarkGoSource reads a pack of the Go source tree, about 120 MB in 12 000
// objects, and then its objects one by one, beside what git takes to index it.
func BenchmarkGoSource(b *testing.B) {
	dir := b.TempDir()
	git(b, dir, "", "init", "-q")
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		b.Fatal(err)
	}
	tree := "--work-tree=" + filepath.Join(strings.TrimSpace(string(root)), "src")
	git(b, dir, "", "--git-dir=.git", tree, "add", "-Af", ".")
	git(b, dir, "", "-c", "gc.auto=0", "commit", "-q", "-m", "go")
	git(b, dir, "", "repack", "-adq")
	data := git(b, dir, "HEAD\n", "pack-objects", "--revs", "--stdout", "-q", "--delta-base-offset")
	var ids []object.ID
	var raw int64
	for line := range strings.Lines(string(git(b, dir, "", "cat-file", "--batch-all-objects", "--unordered", "--batch-check"))) {
		fields := strings.Fields(line)
		id, err := object.ParseID(fields[0])
		if err != nil {
			b.Fatal(err)
		}
		size, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ids, raw = append(ids, id), raw+size
	}
	b.Run("read", func(b *testing.B) {
		b.SetBytes(raw)
		b.ReportAllocs()
		for b.Loop() {
			p, err := packfile.Read(b.Context(), bytes.NewReader(data), packfile.Options{})
			if err != nil {
				b.Fatal(err)
			}
			p.Close()
		}
	})
	b.Run("open", func(b *testing.B) { benchmarkOpen(b, data, ids, raw) })
	b.Run("git index-pack", func(b *testing.B) {
		file := filepath.Join(b.TempDir(), "x.pack")
		if err := os.WriteFile(file, data, 0o666); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(raw)
		for b.Loop() {
			git(b, dir, "", "index-pack", "--threads="+strconv.Itoa(runtime.GOMAXPROCS(0)), file)
		}
	})
}

func benchmarkOpen(b *testing.B, data []byte, ids []object.ID, raw int64) {
	p, err := packfile.Read(b.Context(), bytes.NewReader(data), packfile.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	b.SetBytes(raw)
	buf := make([]byte, 64<<10)
	for b.Loop() {
		for _, id := range ids {
			_, _, content, err := p.Open(id)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, content, buf); err != nil {
				b.Fatal(err)
			}
		}
	}
}
