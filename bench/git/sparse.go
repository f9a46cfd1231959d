package main

import (
	"fmt"
	"io"

	"github.com/headgate-io/headgate/bench/contest"
)

// sparseDir is the directory of the Go tree that a sparse checkout asks for:
// one of the larger ones, 115 files of 11,478 in Go 1.26.
const sparseDir = "net/http"

const (
	wholeTree = "headgate branch, in turn with sparse"
	oneDir    = "headgate sparse, " + sparseDir
)

// sparse returns the fetches of a whole branch and of one directory of it.
func (b *bench) sparse() []contest.Contestant {
	return []contest.Contestant{
		b.headgate(wholeTree, "plain", "branch: main"),
		b.headgate(oneDir, "plain", "branch: main\n  sparseCheckout: ["+sparseDir+"]"),
	}
}

// sparseGoals prints what was transferred and returns what it must show.
func (b *bench) sparseGoals(out io.Writer) []contest.Goal {
	whole, part := b.Result[wholeTree], b.Result[oneDir]
	for _, name := range []string{wholeTree, oneDir} {
		r := b.Result[name]
		fmt.Fprintf(out, "%s: %d requests and %d bytes of answers\n", name, r.Asked, r.Sent)
	}
	return []contest.Goal{
		{What: "bytes of a sparse checkout against the whole", Number: float64(part.Sent) / float64(whole.Sent), Limit: 0.05},
		{What: "wall time of a sparse checkout against the whole", Number: float64(part.Median()) / float64(whole.Median()), Limit: 0.5},
	}
}
