package contest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

// Options are the flags that all benchmarks have.
type Options struct {
	Runs int    // of each contestant
	Keep string // a directory for what is made once, "" for none
	Only bool   // measure headgate alone
}

// Main parses the flags and does a benchmark, which says how many goals it
// missed. what is what it keeps.
func Main(what string, run func(context.Context, Options) (missed int, err error)) {
	var o Options
	flag.IntVar(&o.Runs, "n", 5, "`runs` of each contestant")
	flag.StringVar(&o.Keep, "dir", "", "keep "+what+" in this `directory` and use those that are there")
	flag.BoolVar(&o.Only, "headgate", false, "measure headgate alone")
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
