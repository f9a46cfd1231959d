package contest

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// A Goal is a number that must not be exceeded.
type Goal struct {
	What   string
	Number float64 // negative when it was not measured
	Limit  float64
	Unit   string // "" for a ratio
	Or     *Goal  // reaching this one instead is as good
}

func (g Goal) reached() bool {
	return g.Number >= 0 && g.Number <= g.Limit || g.Or != nil && g.Or.reached()
}

func (g Goal) String() string {
	unit := "×"
	if g.Unit != "" {
		unit = " " + g.Unit
	}
	if g.Number < 0 {
		return fmt.Sprintf("%s: not measured, at most %.2f%s", g.What, g.Limit, unit)
	}
	s := fmt.Sprintf("%s: %.3f%s, at most %.2f%s", g.What, g.Number, unit, g.Limit, unit)
	if g.Or != nil {
		s += "; or " + g.Or.String()
	}
	return s
}

// Judge prints what became of goals and returns how many were missed.
func Judge(out io.Writer, goals []Goal) (missed int) {
	for _, g := range goals {
		verdict := "reached"
		if !g.reached() {
			verdict = "MISSED "
			missed++
		}
		fmt.Fprintf(out, "%s  %s\n", verdict, g)
	}
	return missed
}

// Wall returns the wall time of one contestant against another's, negative when it was not measured.
func (c *Contest) Wall(a, b string) float64 {
	if c.Result[a] == nil || c.Result[b] == nil {
		return -1
	}
	return float64(c.Result[a].Median()) / float64(c.Result[b].Median())
}

// Memory returns the peak memory of one contestant against another's, negative when it was not measured.
func (c *Contest) Memory(a, b string) float64 {
	if c.Result[a] == nil || c.Result[b] == nil || c.Result[b].Memory() == 0 {
		return -1
	}
	return float64(c.Result[a].Memory()) / float64(c.Result[b].Memory())
}

// Table prints all results.
func (c *Contest) Table(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\twall s\tleast\tmost\tCPU s\tpeak MB\tall processes MB\t")
	for _, name := range c.Order {
		r := c.Result[name]
		fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%.3f\t%.2f\t%s\t%s\t\n", name, r.Median().Seconds(), slices.Min(r.Wall).Seconds(), slices.Max(r.Wall).Seconds(), middle(r.CPU).Seconds(), MB(r.Memory()), MB(r.Tree))
	}
	w.Flush()
}

// MB writes a number of bytes in units of 2^20, "-" for 0.
func MB(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(n)/(1<<20))
}
