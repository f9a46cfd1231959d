package main

import (
	"fmt"
	"io"
	"runtime"

	"github.com/headgate-io/headgate/bench/contest"
)

// objectsInAll is how many objects the bucket holds, pagesInAll the pages of their listing.
const (
	objectsInAll = services * (smallEach + largeEach)
	pagesInAll   = (objectsInAll + pageKeys - 1) / pageKeys
)

// report prints the results and returns how many goals were missed.
func (b *bench) report(out io.Writer) (missed int) {
	fmt.Fprintf(out, "%s/%s, %d CPUs, %s; medians of %d runs, %d of those that are 20 ms away\n\n",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), len(b.Result[whole].Wall), len(b.Result[wholeAway].Wall))
	b.Table(out)
	fmt.Fprintln(out)
	for _, name := range []string{whole, unchanged, changed} {
		a := b.asked[name]
		fmt.Fprintf(out, "%s: %d listings of %d pages in all, %d objects read, %d other requests\n", name, a.listings, a.pages, a.reads, a.others)
	}
	fmt.Fprintln(out)
	return contest.Judge(out, b.goals())
}

// goals returns what the numbers must show.
func (b *bench) goals() []contest.Goal {
	all := []contest.Goal{
		{What: "all objects against the faster of mc and s5cmd, with tar cz", Number: max(b.Wall(whole, mirror), b.Wall(whole, copying)), Limit: 0.7},
		{What: "one changed object against all objects", Number: b.Wall(changed, whole), Limit: 0.8},
		{What: "resolving 1,000,000 keys against listing them by minio-go", Number: b.Wall(resolveMany, listMany), Limit: 1.2},
		{What: "memory of a key", Number: float64(b.Result[resolveMany].Memory()-b.Result[resolveEmpty].Memory()) / manyKeys, Limit: 200, Unit: "bytes"},
	}
	for _, name := range []string{whole, changed, unchanged} {
		g := contest.Goal{What: "peak memory, " + name, Number: -1, Limit: 100, Unit: "MB"}
		if peak := b.Result[name].Memory(); peak > 0 {
			g.Number = float64(peak) / (1 << 20)
		}
		all = append(all, g)
	}
	for _, c := range []struct {
		name string
		want asked
	}{
		{whole, asked{1, pagesInAll, objectsInAll, 0}},
		{unchanged, asked{1, pagesInAll, 0, 0}},
		{changed, asked{1, pagesInAll, 1, 0}},
	} {
		all = append(all, contest.Goal{What: "requests beyond those needed, " + c.name, Number: b.asked[c.name].beyond(c.want), Unit: "requests"})
	}
	return all
}
