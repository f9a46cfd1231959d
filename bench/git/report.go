package main

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// A goal is a number that must not be exceeded.
type goal struct {
	what   string
	number float64 // negative when it was not measured
	limit  float64
	or     *goal // reaching this one instead is as good
}

func (g goal) reached() bool {
	return g.number >= 0 && g.number <= g.limit || g.or != nil && g.or.reached()
}

func (g goal) String() string {
	if g.number < 0 {
		return fmt.Sprintf("%s: not measured, at most %.2f×", g.what, g.limit)
	}
	s := fmt.Sprintf("%s: %.3f×, at most %.2f×", g.what, g.number, g.limit)
	if g.or != nil {
		s += "; or " + g.or.String()
	}
	return s
}

// report prints the results and returns how many goals were missed.
func (b *bench) report(ctx context.Context, out io.Writer) (missed int, err error) {
	fmt.Fprintf(out, "%s/%s, %d CPUs, %s; medians of %d runs\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), len(b.results["headgate branch"].wall))
	b.table(out)
	for _, m := range b.missing {
		fmt.Fprintf(out, "not here: %s\n", m)
	}
	fmt.Fprintln(out)
	if r := b.results["headgate unchanged, 500 tags"]; len(r.wall) > 0 {
		n := int64(len(r.wall))
		fmt.Fprintf(out, "unchanged: %d requests and %d bytes of answers a run\n", b.server.requests.Load()/n, b.server.sent.Load()/n)
	}
	ours, err := archive(b.results["headgate branch"].output)
	if err != nil {
		return 0, err
	}
	if err := b.sameContent(out, ours); err != nil {
		return 0, err
	}
	size, err := b.sizes(ctx, out, ours)
	if err != nil {
		return 0, err
	}
	fmt.Fprintln(out)
	changes, err := b.incrementalGoals(out)
	if err != nil {
		return 0, err
	}
	for _, g := range slices.Concat(b.goals(), []goal{size}, b.sparseGoals(out), b.submoduleGoals(), changes) {
		verdict := "reached"
		if !g.reached() {
			verdict = "MISSED "
			missed++
		}
		fmt.Fprintf(out, "%s  %s\n", verdict, g)
	}
	return missed, nil
}

func (b *bench) table(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\twall s\tleast\tmost\tCPU s\tpeak MB\tall processes MB\t")
	for _, name := range b.order {
		r := b.results[name]
		fmt.Fprintf(w, "%s\t%.3f\t%.3f\t%.3f\t%.2f\t%s\t%s\t\n", name, r.median().Seconds(), lowest(r.wall).Seconds(), highest(r.wall).Seconds(), middle(r.cpu).Seconds(), mb(r.memory()), mb(r.tree))
	}
	w.Flush()
}

func lowest(d []time.Duration) time.Duration {
	out := d[0]
	for _, v := range d {
		out = min(out, v)
	}
	return out
}

func highest(d []time.Duration) (out time.Duration) {
	for _, v := range d {
		out = max(out, v)
	}
	return out
}

func mb(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(n)/(1<<20))
}

// goals returns what the numbers must show.
func (b *bench) goals() []goal {
	wall := func(a, c string) float64 {
		if b.results[a] == nil || b.results[c] == nil {
			return -1
		}
		return float64(b.results[a].median()) / float64(b.results[c].median())
	}
	memory := func(a, c string) float64 {
		if b.results[a] == nil || b.results[c] == nil || b.results[c].memory() == 0 {
			return -1
		}
		return float64(b.results[a].memory()) / float64(b.results[c].memory())
	}
	const us, many = "headgate branch", "headgate branch, 500 tags"
	return []goal{
		{"wall time against (a)", wall(us, "(a) bare clone, archive, pigz"), 0.5, &goal{"against the floor", wall(us, "floor: bare clone"), 1.3, nil}},
		{"wall time against (b)", wall(us, "(b) clone, tar, gzip"), 0.25, nil},
		{"wall time against (c)", wall(us, "(c) reference"), 0.15, nil},
		{"peak memory against (c)", memory(us, "(c) reference"), 0.5, nil},
		{"peak memory with twice the files", memory("headgate branch, twice the files", us), 1.2, nil},
		{"tag against branch", wall("headgate tag, 500 tags", many), 1.15, nil},
		{"semver against branch", wall("headgate semver, 500 tags", many), 1.15, nil},
		{"pull request against branch", wall("headgate pull request, 500 tags", many), 1.15, nil},
		{"commit against branch", wall("headgate commit, 500 tags", many), 1.15, nil},
	}
}

// archive returns the one archive below dir.
func archive(dir string) (string, error) {
	var found string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.HasSuffix(path, ".tar.gz") && !strings.HasPrefix(d.Name(), ".") {
			found = path
		}
		return err
	})
	if err == nil && found == "" {
		err = fmt.Errorf("%s holds no archive", dir)
	}
	return found, err
}

// stream copies the tar stream of an archive to w.
func stream(w io.Writer, path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return 0, err
	}
	return io.Copy(w, z)
}

// sameContent says whether our tar stream and the reference's are the same bytes.
func (b *bench) sameContent(out io.Writer, ours string) error {
	if b.results["(c) reference"] == nil {
		return nil
	}
	theirs, err := archive(b.results["(c) reference"].output)
	if err != nil {
		return err
	}
	digest := func(path string) (string, error) {
		h := sha256.New()
		_, err := stream(h, path)
		return fmt.Sprintf("%x", h.Sum(nil)), err
	}
	a, err := digest(ours)
	if err != nil {
		return err
	}
	c, err := digest(theirs)
	if err != nil {
		return err
	}
	if a == c {
		fmt.Fprintf(out, "tar stream: sha256:%s, the same as that of (c)\n", a)
	} else {
		fmt.Fprintf(out, "tar stream: sha256:%s, but that of (c) is sha256:%s\n", a, c)
	}
	return nil
}

// sizes compares our compression with gzip -6 of the same tar stream.
func (b *bench) sizes(ctx context.Context, out io.Writer, ours string) (goal, error) {
	info, err := os.Stat(ours)
	if err != nil {
		return goal{}, err
	}
	cmd := exec.CommandContext(ctx, "gzip", "-6", "-c")
	in, err := cmd.StdinPipe()
	if err != nil {
		return goal{}, err
	}
	var theirs length
	cmd.Stdout = &theirs
	if err := cmd.Start(); err != nil {
		return goal{}, err
	}
	raw, err := stream(in, ours)
	in.Close()
	if werr := cmd.Wait(); err == nil {
		err = werr
	}
	if err != nil {
		return goal{}, fmt.Errorf("gzip -6: %w", err)
	}
	fmt.Fprintf(out, "sizes: tar %s MB, artifact %s MB, gzip -6 %s MB\n", mb(raw), mb(info.Size()), mb(int64(theirs)))
	return goal{"artifact against gzip -6", float64(info.Size()) / float64(theirs), 1.03, nil}, nil
}

// A length counts what is written to it.
type length int64

func (l *length) Write(b []byte) (int, error) { *l += length(len(b)); return len(b), nil }
