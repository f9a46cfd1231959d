package main

import (
	"fmt"
	"io"
)

// sparseDir is the directory of the Go tree that a sparse checkout asks for:
// one of the larger ones, 115 files of 11,478 in Go 1.26.
const sparseDir = "net/http"

const (
	wholeTree = "headgate branch, in turn with sparse"
	oneDir    = "headgate sparse, " + sparseDir
)

// sparse returns the fetches of a whole branch and of one directory of it.
func (b *bench) sparse() []contestant {
	return []contestant{
		b.headgate(wholeTree, "plain", "branch: main"),
		b.headgate(oneDir, "plain", "branch: main\n  sparseCheckout: ["+sparseDir+"]"),
	}
}

// sparseGoals prints what was transferred and returns what it must show.
func (b *bench) sparseGoals(out io.Writer) []goal {
	whole, part := b.results[wholeTree], b.results[oneDir]
	for _, name := range []string{wholeTree, oneDir} {
		r := b.results[name]
		fmt.Fprintf(out, "%s: %d requests and %d bytes of answers\n", name, r.asked, r.sent)
	}
	return []goal{
		{"bytes of a sparse checkout against the whole", float64(part.sent) / float64(whole.sent), 0.05, nil},
		{"wall time of a sparse checkout against the whole", float64(part.median()) / float64(whole.median()), 0.5, nil},
	}
}
