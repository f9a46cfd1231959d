package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate-io/headgate/bench/contest"
)

// parts is how many submodules the Go tree is spread over.
const parts = 20

const (
	oneModule   = "headgate, the tree in one submodule"
	manyModules = "headgate, the tree in 20 submodules"
	onePart     = "headgate, a twentieth of it in one"
	oneSmall    = "headgate, one small submodule far away"
	manySmall   = "headgate, 20 small submodules far away"
)

// far is how long a request and its answer travel between continents.
const far = 100 * time.Millisecond

// submodules returns the fetches of a repository that holds submodules alone:
// the same files in one and in 20 of them, and what one of the 20 takes; and
// where waiting is what takes time, one and 20 of few files each.
func (b *bench) submodules() []contest.Contestant {
	const ref = "branch: main\n  recurseSubmodules: true"
	all := []contest.Contestant{
		b.headgate(oneModule, "module", ref),
		b.headgate(manyModules, "modules", ref),
		b.headgate(onePart, "part", ref),
		b.headgate(oneSmall, "small", ref),
		b.headgate(manySmall, "smalls", ref),
	}
	all[3].Lag, all[4].Lag = far, far
	return all
}

func (b *bench) submoduleGoals() []contest.Goal {
	ratio := func(many, one string) float64 {
		return float64(b.Result[many].Median()) / float64(b.Result[one].Median())
	}
	return []contest.Goal{
		{What: "wall time of 20 submodules against one with the same files", Number: ratio(manyModules, oneModule), Limit: 3},
		{What: "wall time of 20 small submodules against one such, 100 ms away", Number: ratio(manySmall, oneSmall), Limit: 3},
	}
}

// moduleRepositories makes, from plain.git and as far as they are missing,
// part-00.git to part-19.git with a twentieth of its files each, module.git
// with plain.git as its submodule, modules.git with all parts, and part.git
// with one of them; small.git and smalls.git likewise of repositories with few files.
func moduleRepositories(ctx context.Context, dir string, all map[string]repo) error {
	plain := filepath.Join(dir, "plain.git")
	listed, err := git(ctx, plain, nil, "ls-tree", "-r", "main")
	if err != nil {
		return err
	}
	lines := strings.SplitAfter(listed, "\n")
	var links, smalls []string
	for i := range parts {
		files := lines[len(lines)*i/parts : len(lines)*(i+1)/parts]
		link, err := partRepository(ctx, dir, fmt.Sprintf("part-%02d", i), files)
		if err != nil {
			return err
		}
		small, err := partRepository(ctx, dir, fmt.Sprintf("small-%02d", i), files[:few])
		if err != nil {
			return err
		}
		links, smalls = append(links, link), append(smalls, small)
	}
	for name, links := range map[string][]string{
		"module": {"plain " + all["plain"].commit}, "modules": links, "part": links[:1], "small": smalls[:1], "smalls": smalls,
	} {
		path := filepath.Join(dir, name+".git")
		if _, err := git(ctx, "", nil, "init", "-q", "--bare", "-b", "main", path); err != nil {
			return err
		}
		if _, err := git(ctx, path, strings.NewReader(parent(links)), "fast-import", "--quiet", "--force"); err != nil {
			return err
		}
		all[name] = repo{name: name + ".git"}
	}
	return nil
}

// few is how many files a small submodule has.
const few = 5

// partRepository makes name.git with some files of plain.git, if it is
// missing, and returns its name and commit.
func partRepository(ctx context.Context, dir, name string, files []string) (string, error) {
	path := filepath.Join(dir, name+".git")
	if _, err := os.Stat(path); err != nil {
		if err := makePart(ctx, filepath.Join(dir, "plain.git"), path, strings.Join(files, "")); err != nil {
			return "", fmt.Errorf("make %s: %w", path, err)
		}
	}
	id, err := git(ctx, path, nil, "rev-parse", "main")
	return name + " " + id, err
}

// makePart makes a repository of the files in a listing of plain.
func makePart(ctx context.Context, plain, path, listing string) error {
	unfinished := path + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if _, err := git(ctx, "", nil, "clone", "-q", "--bare", "--shared", plain, unfinished); err != nil {
		return err
	}
	if _, err := git(ctx, unfinished, strings.NewReader(listing), "update-index", "--index-info"); err != nil {
		return err
	}
	tree, err := git(ctx, unfinished, nil, "write-tree")
	if err != nil {
		return err
	}
	commit, err := git(ctx, unfinished, nil, "-c", "user.name=bench", "-c", "user.email=bench@example.com", "commit-tree", "-m", "part", tree)
	if err != nil {
		return err
	}
	for _, args := range [][]string{{"update-ref", "refs/heads/main", commit}, {"repack", "-adfq", "--window=10"}} {
		if _, err := git(ctx, unfinished, nil, args...); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(unfinished, "objects", "info", "alternates")); err != nil {
		return err
	}
	return os.Rename(unfinished, path)
}

// parent writes, for git fast-import, a commit whose submodules are links, each
// a name and a commit.
func parent(links []string) string {
	var modules, entries strings.Builder
	for _, l := range links {
		name, commit, _ := strings.Cut(l, " ")
		fmt.Fprintf(&modules, "[submodule %q]\n\tpath = %s\n\turl = ../%s.git\n", name, name, name)
		fmt.Fprintf(&entries, "M 160000 %s %s\n", commit, name)
	}
	return fmt.Sprintf("commit refs/heads/main\ncommitter bench <bench@example.com> 1700000000 +0000\ndata 7\nmodulesM 100644 inline .gitmodules\ndata %d\n%s\n%s",
		modules.Len(), modules.String(), entries.String())
}
