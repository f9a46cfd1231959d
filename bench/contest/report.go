package contest

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"text/tabwriter"
)

// A Goal is an upper limit for a number.
type Goal struct {
	What   string
	Number float64 // negative if it was not measured
	Limit  float64
	Unit   string // "" for a ratio
}

// Judge prints whether the goals were reached and returns how many were missed.
func Judge(out io.Writer, goals []Goal) (missed int) {
	for _, g := range goals {
		verdict, number, unit := "reached", fmt.Sprintf("%.3f", g.Number), g.Unit
		if unit == "" {
			unit = "×"
		}
		if g.Number < 0 {
			number = "not measured,"
		}
		if g.Number < 0 || g.Number > g.Limit {
			verdict = "MISSED "
			missed++
		}
		fmt.Fprintf(out, "%s  %s: %s %s, at most %.2f\n", verdict, g.What, number, unit, g.Limit)
	}
	return missed
}

// Wall returns the wall time of contestant a divided by that of b. It is negative if one of the two
// was not measured.
func (c *Contest) Wall(a, b string) float64 {
	if c.Result[a] == nil || c.Result[b] == nil {
		return -1
	}
	return float64(Median(c.Result[a].Wall)) / float64(Median(c.Result[b].Wall))
}

// Peak returns the goal that the peak memory of a contestant is at most limit MB.
func (c *Contest) Peak(name string, limit float64) Goal {
	g := Goal{"peak memory, " + name, -1, limit, "MB"}
	if peak := Median(c.Result[name].Peak); peak > 0 {
		g.Number = float64(peak) / (1 << 20)
	}
	return g
}

// Print prints a description of the machine and all results.
func (c *Contest) Print(out io.Writer) {
	fmt.Fprintf(out, "%s/%s, %d CPUs, %s; medians of %d runs\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), len(c.Result[c.Order[0]].Wall))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\twall s\tleast\tmost\tCPU s\tpeak MB\t")
	for _, name := range c.Order {
		r := c.Result[name]
		fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%.3f\t%.2f\t%.1f\t\n", name, Median(r.Wall).Seconds(), slices.Min(r.Wall).Seconds(), slices.Max(r.Wall).Seconds(),
			Median(r.CPU).Seconds(), float64(Median(r.Peak))/(1<<20))
	}
	w.Flush()
	fmt.Fprintln(out)
}
