package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/headgate-io/headgate/bench/contest"
)

// An incremental fetch finds what the last one left: a branch on which one
// commit changed one file. The change makes the file longer, so that all that
// follows it in the archive moves.
const (
	changedFile = "net/http/server.go"
	changedBy   = 20 // lines, in the middle
	moving      = "refs/heads/moving"

	fullFetch = "headgate branch, nothing cached"
	oneFile   = "headgate branch, one file changed"
)

// incremental returns the fetches of a branch without and with a cache that
// has the commit before it.
func (b *bench) incremental(ctx context.Context) ([]contest.Contestant, error) {
	path := filepath.Join(b.dir, b.repos["plain"].name)
	after, err := change(ctx, path)
	if err != nil {
		return nil, err
	}
	at := func(commit string) {
		if _, err := git(ctx, path, nil, "update-ref", moving, commit); err != nil {
			panic(err)
		}
	}
	fetch := b.headgate("", "plain", "name: "+moving).Args
	return []contest.Contestant{
		{Name: fullFetch, Args: func(dir string) []string {
			at(after)
			return fetch(dir)
		}},
		{Name: oneFile, Args: func(dir string) []string {
			at(after + "~")
			args := fetch(dir)
			if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
				panic(fmt.Errorf("%w\n%s", err, out))
			}
			at(after)
			b.server.reset()
			return args
		}},
	}, nil
}

// change returns the commit after main, which it makes unless it is there.
func change(ctx context.Context, path string) (string, error) {
	const name = "refs/heads/after"
	if id, err := git(ctx, path, nil, "for-each-ref", "--format=%(objectname)", name); id != "" || err != nil {
		return id, err
	}
	text, err := git(ctx, path, nil, "show", "main:"+changedFile)
	if err != nil {
		return "", err
	}
	lines := strings.SplitAfter(text, "\n")
	var out bytes.Buffer
	for i, line := range lines {
		for n := 0; i == len(lines)/2 && n < changedBy; n++ {
			fmt.Fprintf(&out, "// line %d of a change that makes the file longer\n", n)
		}
		out.WriteString(line)
	}
	in := fmt.Sprintf("commit %s\ncommitter bench <bench@example.com> 1800000000 +0000\ndata 6\nchange\nfrom refs/heads/main\nM 100644 inline %s\ndata %d\n%s\n", name, changedFile, out.Len(), out.Bytes())
	if _, err := git(ctx, path, strings.NewReader(in), "fast-import", "--quiet"); err != nil {
		return "", err
	}
	return git(ctx, path, nil, "rev-parse", name)
}

// incrementalGoals prints what was transferred and returns what it must show.
func (b *bench) incrementalGoals(out io.Writer) ([]contest.Goal, error) {
	full, part := b.Result[fullFetch], b.Result[oneFile]
	for _, name := range []string{fullFetch, oneFile} {
		r := b.Result[name]
		fmt.Fprintf(out, "%s: %d requests and %d bytes of answers\n", name, r.Asked, r.Sent)
	}
	name, err := archive(full.Output)
	if err != nil {
		return nil, err
	}
	if name, err = filepath.Rel(full.Output, name); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(part.Output, name)); err != nil { // the name holds the digest
		return nil, fmt.Errorf("%s made another artifact than %s: %w", oneFile, fullFetch, err)
	}
	return []contest.Goal{
		{What: "bytes for one changed file against the whole", Number: float64(part.Sent) / float64(full.Sent), Limit: 0.02},
		{What: "wall time for one changed file against the whole", Number: float64(part.Median()) / float64(full.Median()), Limit: 0.5},
	}, nil
}
