package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// frontFlags describe the reverse proxy of a run.
type frontFlags struct {
	listen  string
	primary string
	canary  string
	keep    bool
	swap    bool
	drain   time.Duration
	none    bool
}

func (f *frontFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.listen, "proxy", "", "`HOST:PORT` of a reverse proxy that divides the traffic while this runs; port 0 takes a free one")
	fl.StringVar(&f.primary, "primary", "", "`URL` of the primary, for --proxy")
	fl.StringVar(&f.canary, "canary", "", "`URL` of the canary, for --proxy")
	fl.BoolVar(&f.keep, "proxy-keep", false, "when the rollout is over let the proxy serve on, until it is interrupted; otherwise it ends with the run")
	fl.BoolVar(&f.swap, "swap", false, "when the URL of --canary was promoted last, let --primary and --canary change roles; both have to answer")
	spanVar(c, &f.drain, "proxy-drain", 30*time.Second, "how long the proxy may take to answer the requests that it has when it ends")
	fl.BoolVar(&f.none, "no-traffic", false, "divide no traffic: somebody else does, or there is none")
}

// check refuses what does not go together.
func (f *frontFlags) check(a *adapterFlags) error {
	ways := 0
	for _, given := range []bool{f.listen != "", a.has(traffic.SetRoutes), f.none} {
		if given {
			ways++
		}
	}
	switch {
	case ways == 0:
		return usage("say how traffic is divided: with --proxy, with an operation set-routes of --exec or --request, or with --no-traffic")
	case ways > 1:
		return usage("--proxy, an operation set-routes and --no-traffic exclude each other")
	case a.has(traffic.ReadRoutes) && !a.has(traffic.SetRoutes):
		return usage("an operation routes goes with an operation set-routes")
	case f.listen == "" && (f.primary != "" || f.canary != "" || f.keep || f.swap):
		return usage("--primary, --canary, --swap and --proxy-keep go with --proxy")
	case f.listen != "" && (f.primary == "" || f.canary == ""):
		return usage("--proxy needs the URLs of both sides: --primary and --canary")
	case f.drain < 0:
		return usage("--proxy-drain %s: want a positive time", f.drain)
	}
	return nil
}

// newProxy returns the proxy of a rollout that begins with the routes start.
func (f *frontFlags) newProxy(ctx context.Context, c *rollout.Canary, start rollout.Routes, interval time.Duration) (*traffic.Proxy, error) {
	proxy := &traffic.Proxy{
		Primary: f.primary, Canary: f.canary, Match: c.Spec.Analysis.Match, MirrorWeight: c.Spec.Analysis.MirrorWeight,
		Start: start, Interval: interval,
	}
	if _, err := proxy.Routes(ctx); err != nil {
		return nil, usage("--proxy: %w", err)
	}
	return proxy, nil
}
