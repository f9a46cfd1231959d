package feed

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// objects writes n files of one object each.
func objects(tb testing.TB, n int) string {
	tb.Helper()
	dir := tb.TempDir()
	for i := range n {
		text := fmt.Sprintf(`apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata:
  name: app-%d
  namespace: team-%d
spec:
  interval: 1m
  url: https://host-%d.example.org/team/app-%d.git
  ref:
    branch: main
`, i, i%50, i%20, i)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("app-%05d.yaml", i)), []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return dir
}

// BenchmarkLook measures one look at 10,000 files that rest, and reading them.
func BenchmarkLook(b *testing.B) {
	f := &Files{Paths: []string{objects(b, 10_000)}}
	b.Run("First", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w, err := f.begin()
			if err != nil || !w.look(b.Context()) || len(w.merged().set.Objects) != 10_000 {
				b.Fatal("not read", err)
			}
		}
	})
	b.Run("Resting", func(b *testing.B) {
		w, err := f.begin()
		if err != nil || !w.look(b.Context()) {
			b.Fatal("not read", err)
		}
		time.Sleep(2100 * time.Millisecond) // until the stamps of the files tell
		w.look(b.Context())
		b.ReportAllocs()
		for b.Loop() {
			if w.look(b.Context()) {
				b.Fatal("changed")
			}
		}
	})
}
