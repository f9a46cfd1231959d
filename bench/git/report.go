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

	"github.com/headgate-io/headgate/bench/contest"
)

// report prints the results and returns how many goals were missed.
func (b *bench) report(ctx context.Context, out io.Writer) (missed int, err error) {
	fmt.Fprintf(out, "%s/%s, %d CPUs, %s; medians of %d runs\n\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), len(b.Result["headgate branch"].Wall))
	b.Table(out)
	for _, m := range b.missing {
		fmt.Fprintf(out, "not here: %s\n", m)
	}
	fmt.Fprintln(out)
	if r := b.Result["headgate unchanged, 500 tags"]; len(r.Wall) > 0 {
		fmt.Fprintf(out, "unchanged: %d requests and %d bytes of answers a run\n", r.Asked, r.Sent)
	}
	ours, err := archive(b.Result["headgate branch"].Output)
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
	return contest.Judge(out, slices.Concat(b.goals(), []contest.Goal{size}, b.sparseGoals(out), b.submoduleGoals(), changes)), nil
}

// goals returns what the numbers must show.
func (b *bench) goals() []contest.Goal {
	const us, many = "headgate branch", "headgate branch, 500 tags"
	return []contest.Goal{
		{What: "wall time against (a)", Number: b.Wall(us, "(a) bare clone, archive, pigz"), Limit: 0.5,
			Or: &contest.Goal{What: "against the floor", Number: b.Wall(us, "floor: bare clone"), Limit: 1.3}},
		{What: "wall time against (b)", Number: b.Wall(us, "(b) clone, tar, gzip"), Limit: 0.25},
		{What: "wall time against (c)", Number: b.Wall(us, "(c) reference"), Limit: 0.16},
		{What: "peak memory against (c)", Number: b.Memory(us, "(c) reference"), Limit: 0.5},
		{What: "peak memory with twice the files", Number: b.Memory("headgate branch, twice the files", us), Limit: 1.2},
		{What: "tag against branch", Number: b.Wall("headgate tag, 500 tags", many), Limit: 1.15},
		{What: "semver against branch", Number: b.Wall("headgate semver, 500 tags", many), Limit: 1.15},
		{What: "pull request against branch", Number: b.Wall("headgate pull request, 500 tags", many), Limit: 1.15},
		{What: "commit against branch", Number: b.Wall("headgate commit, 500 tags", many), Limit: 1.15},
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
	if b.Result["(c) reference"] == nil {
		return nil
	}
	theirs, err := archive(b.Result["(c) reference"].Output)
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
func (b *bench) sizes(ctx context.Context, out io.Writer, ours string) (contest.Goal, error) {
	info, err := os.Stat(ours)
	if err != nil {
		return contest.Goal{}, err
	}
	cmd := exec.CommandContext(ctx, "gzip", "-6", "-c")
	in, err := cmd.StdinPipe()
	if err != nil {
		return contest.Goal{}, err
	}
	var theirs length
	cmd.Stdout = &theirs
	if err := cmd.Start(); err != nil {
		return contest.Goal{}, err
	}
	raw, err := stream(in, ours)
	in.Close()
	if werr := cmd.Wait(); err == nil {
		err = werr
	}
	if err != nil {
		return contest.Goal{}, fmt.Errorf("gzip -6: %w", err)
	}
	fmt.Fprintf(out, "sizes: tar %s MB, artifact %s MB, gzip -6 %s MB\n", contest.MB(raw), contest.MB(info.Size()), contest.MB(int64(theirs)))
	return contest.Goal{What: "artifact against gzip -6", Number: float64(info.Size()) / float64(theirs), Limit: 1.03}, nil
}

// A length counts what is written to it.
type length int64

func (l *length) Write(b []byte) (int, error) { *l += length(len(b)); return len(b), nil }
