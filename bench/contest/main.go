package contest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

// Options are the common flags of the benchmarks.
type Options struct {
	Runs         int    // of each contestant
	Keep         string // directory for generated files to reuse, or ""
	OnlyHeadgate bool   // measure only headgate
}

// Main parses the flags and calls run, which returns the number of missed goals.
// The text what names the files that -dir keeps.
func Main(what string, run func(context.Context, Options) (missed int, err error)) {
	var o Options
	flag.IntVar(&o.Runs, "n", 5, "`runs` of each contestant")
	flag.StringVar(&o.Keep, "dir", "", "keep "+what+" in this `directory` and use those that are there")
	flag.BoolVar(&o.OnlyHeadgate, "headgate", false, "measure headgate alone")
	strict := flag.Bool("check", false, "fail when a number is not what it must be")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	missed, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if *strict && missed > 0 {
		os.Exit(1)
	}
}
