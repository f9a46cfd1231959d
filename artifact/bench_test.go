package artifact_test

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
)

// goSources returns the Go tree's own sources, a realistic tree of 11,000
// files and 130 MB.
func goSources(b *testing.B) fs.FS {
	b.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	dir := filepath.Join(strings.TrimSpace(string(out)), "src")
	if err != nil {
		b.Skipf("no Go tree to pack: %v", err)
	}
	return os.DirFS(dir)
}

func packed(b *testing.B, tree fs.FS, pack func(context.Context, io.Writer, fs.FS) (artifact.Report, error)) []byte {
	b.Helper()
	var out bytes.Buffer
	if _, err := pack(b.Context(), &out, tree); err != nil {
		b.Fatal(err)
	}
	return out.Bytes()
}

func BenchmarkTar(b *testing.B)  { benchmarkWrite(b, artifact.Tar) }
func BenchmarkPack(b *testing.B) { benchmarkWrite(b, artifact.Pack) }

func benchmarkWrite(b *testing.B, write func(context.Context, io.Writer, fs.FS) (artifact.Report, error)) {
	tree := goSources(b)
	b.ReportAllocs()
	for b.Loop() {
		report, err := write(b.Context(), io.Discard, tree)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(report.Bytes)
	}
}

func BenchmarkRead(b *testing.B) {
	archive := packed(b, goSources(b), artifact.Pack)
	b.ReportAllocs()
	for b.Loop() {
		tree, err := artifact.Read(bytes.NewReader(archive), artifact.Limits{})
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(tree.Report().Bytes)
		tree.Close()
	}
}
