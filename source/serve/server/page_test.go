package server

import (
	"os"
	"testing"

	"github.com/headgate-io/headgate/internal/httpserve/pagetest"
)

// The page keeps to what all pages do, and is small: what is its own, beyond
// what it shares, has at most 80 KiB.
func TestPage(t *testing.T) {
	files := pagetest.Run(t, Page())
	own, err := os.ReadDir("page")
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, entry := range own {
		name := entry.Name()
		if name == "index.html" {
			name = ""
		}
		text, used := files[name]
		if !used {
			t.Errorf("nothing needs %s", entry.Name())
		}
		size += len(text)
	}
	if size == 0 || size > 80<<10 {
		t.Errorf("%d files of %d bytes, want at most %d", len(own), size, 80<<10)
	}
}
