package main

import (
	"strings"

	"github.com/headgate-io/headgate/bench/chart/result"
	"github.com/headgate-io/headgate/bench/contest"
)

// medianTime returns the median time of a contestant in nanoseconds, without the start
// of its process. It is negative if the contestant did not run.
func (b *bench) medianTime(name string) float64 {
	return b.median(name, func(r result.Result) int64 { return r.Took.Nanoseconds() })
}

// medianPeak returns the median peak memory of a contestant in bytes. It is negative if
// the contestant did not run.
func (b *bench) medianPeak(name string) float64 {
	return b.median(name, func(r result.Result) int64 { return r.Peak })
}

// median returns the median of a number over all runs except the first, which is
// a warm-up. It is negative if the contestant did not run.
func (b *bench) median(name string, number func(result.Result) int64) float64 {
	said := b.results[b.Result[name]]
	if len(said) < 2 {
		return -1
	}
	var all []int64
	for _, r := range said[1:] {
		all = append(all, number(r))
	}
	return float64(contest.Median(all))
}

// ratio returns a/b. It is negative if one of the two was not measured.
func ratio(a, b float64) float64 {
	if a < 0 || b <= 0 {
		return -1
	}
	return a / b
}

// goals returns the goals for the measured numbers.
func (b *bench) goals() (all []contest.Goal) {
	for _, i := range b.indexes {
		limit, check := 1.0/30, 0.45           // helm takes 2.2 s for 50 MB of YAML, a check takes 1 s
		if strings.HasSuffix(i.name, "JSON") { // helm reads JSON several times faster than YAML
			limit, check = 1.0/10, 1.8
		}
		all = append(all,
			contest.Goal{What: "time, " + i.name, Number: ratio(b.medianTime(headgateIndex+i.name), b.medianTime(helmLoad+i.name)), Limit: limit},
			contest.Goal{What: "memory, " + i.name, Number: b.medianPeak(headgateIndex+i.name) / 1e6, Limit: 16, Unit: "MB"},
			contest.Goal{What: "time of a check, " + i.name, Number: ratio(b.medianTime(headgateCheck+i.name), b.medianTime(helmLoad+i.name)), Limit: check},
			contest.Goal{What: "memory of a check, " + i.name, Number: b.medianPeak(headgateCheck+i.name) / 1e6, Limit: 16, Unit: "MB"})
	}
	return all
}
