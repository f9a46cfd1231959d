// Rollout compares webhook calls through one rollout.Caller with one client of
// net/http, and with a new client for each call, as in the reference, on one machine
// in one run: over HTTP, and over TLS without verification of certificates.
//
// Each contestant is a process that makes 10,000 sequential calls to a server on
// loopback in another process, which does little and counts connections. The
// clients of the reference are never closed, and make 1,000 calls. Contestants
// take turns, so that other load on the machine affects all of them alike; the
// numbers are medians. See docs/benchmarks.md for how to read them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/headgate-io/headgate/bench/contest"
)

const (
	calls       = 10_000
	leakedCalls = 1000 // calls with clients that are never closed: each leaves an open connection
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "call" {
		if err := call(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "call:", err)
			os.Exit(1)
		}
		return
	}
	contest.Main("nothing", run)
}

type bench struct {
	contest.Contest
	reports map[*contest.Result][]contestantReport
	err     error
}

// plainLimit is the maximum ratio of the time of a Caller to that of one client of net/http.
const plainLimit = 1.25

// limits are the maximum ratios of the time of a Caller to that of a new client for each call. Over
// HTTP that depends on the machine: the exchange takes a fifth to two fifths of the time of a new
// client.
var limits = map[string]float64{"HTTP": 1.0 / 2, "TLS": 1.0 / 5}

// protocols are the protocols to reach the server.
var protocols = []string{"HTTP", "TLS"}

const (
	sharedLabel = "one Caller, "
	client      = "one client of net/http, "
	closedLabel = "a client for each call, closed, "
	leakedLabel = "the same, never closed (reference), 1,000 calls, "
)

func run(ctx context.Context, o contest.Options) (missed int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	temp, err := os.MkdirTemp("", "headgate-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(temp)
	b := &bench{reports: map[*contest.Result][]contestantReport{}}
	var all []contest.Contestant
	for _, way := range protocols {
		s, err := serve(way == "TLS")
		if err != nil {
			return 0, err
		}
		defer s.close()
		for _, who := range []struct {
			name, way string
			calls     int
		}{{sharedLabel, sharedClient, calls}, {client, plain, calls}, {closedLabel, closedClient, calls}, {leakedLabel, leakedClient, leakedCalls}} {
			if o.OnlyHeadgate && who.way != sharedClient {
				continue
			}
			args := []string{self, "call", who.way, s.url, strconv.Itoa(who.calls), s.countsURL}
			all = append(all, contest.Contestant{Name: who.name + way, Args: func(string) []string {
				s.reset()
				return args
			}})
		}
	}
	b.Contest = contest.Contest{Temp: temp, Env: os.Environ(), After: b.addReport}
	if err := b.Compete(ctx, o.Runs, all); err != nil {
		return 0, err
	}
	return b.report(os.Stdout), b.err
}

// addReport reads the report of a contestant.
func (b *bench) addReport(r *contest.Result) {
	s, err := readReport(r.Output)
	b.err = errors.Join(b.err, err)
	b.reports[r] = append(b.reports[r], s)
}

// median returns the median of a number in the reports after the first, which is a warm-up. It is
// negative if the contestant did not run.
func (b *bench) median(name string, number func(contestantReport) float64) float64 {
	all := b.reports[b.Result[name]]
	if len(all) < 2 {
		return -1
	}
	var numbers []float64
	for _, s := range all[1:] {
		numbers = append(numbers, number(s))
	}
	slices.Sort(numbers)
	return numbers[len(numbers)/2]
}

// most returns the maximum of a number in all reports. It is negative if the contestant did not
// run.
func (b *bench) most(name string, number func(contestantReport) float64) float64 {
	most := -1.0
	for _, s := range b.reports[b.Result[name]] {
		most = max(most, number(s))
	}
	return most
}

func took(s contestantReport) float64       { return s.Took.Seconds() / float64(s.Calls) }
func opened(s contestantReport) float64     { return float64(s.Opened) }
func left(s contestantReport) float64       { return float64(s.Left) }
func goroutines(s contestantReport) float64 { return float64(s.Goroutines) }

// report prints the results and returns how many goals were missed.
func (b *bench) report(out io.Writer) (missed int) {
	b.Print(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tcalls/s\tconnections\tleft\tgoroutines left\t")
	var goals []contest.Goal
	for _, way := range protocols {
		for _, name := range []string{sharedLabel, client, closedLabel, leakedLabel} {
			if name += way; b.median(name, took) >= 0 {
				fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%.0f\t\n", name, 1/b.median(name, took), b.median(name, opened), b.median(name, left), b.median(name, goroutines))
			}
		}
		goals = append(goals,
			contest.Goal{What: way + ", time of a call against a client of net/http", Number: ratio(b.median(sharedLabel+way, took), b.median(client+way, took)), Limit: plainLimit},
			contest.Goal{What: way + ", time of a call against a client that is closed", Number: ratio(b.median(sharedLabel+way, took), b.median(closedLabel+way, took)), Limit: limits[way]},
			contest.Goal{What: way + ", time of a call against one never closed", Number: ratio(b.median(sharedLabel+way, took), b.median(leakedLabel+way, took)), Limit: limits[way]},
			contest.Goal{What: way + ", connections", Number: b.most(sharedLabel+way, opened), Limit: 2, Unit: "in all"},
			contest.Goal{What: way + ", connections left", Number: b.most(sharedLabel+way, left), Limit: 0, Unit: "in all"},
			contest.Goal{What: way + ", goroutines left", Number: b.most(sharedLabel+way, goroutines), Limit: 0, Unit: "in all"})
	}
	w.Flush()
	fmt.Fprintln(out)
	return contest.Judge(out, goals)
}

// ratio returns a/b. It is negative if one of the two was not measured.
func ratio(a, b float64) float64 {
	if a < 0 || b <= 0 {
		return -1
	}
	return a / b
}
