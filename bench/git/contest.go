package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/headgate-io/headgate/bench/contest"
)

type bench struct {
	contest.Contest
	bin     string
	url     string // base URL of the server
	repos   map[string]repo
	missing string // a contestant that cannot run on this machine, with the reason
}

// These are the names of the contestants in the goals.
const (
	branch       = "headgate branch"
	branchOfTags = "headgate branch, 500 tags"
	bare         = "(a) bare clone, archive, pigz"
	checkout     = "(b) clone, tar, gzip"
	reference    = "(c) reference"
)

// refs are the other ways to name the tip of the branch.
var refs = []string{"tag", "semver", "pull request", "commit"}

// contestants returns the contestants in the order of their turns.
func (b *bench) contestants(only bool) []contest.Contestant {
	all := []contest.Contestant{b.headgate(branch, "plain", "branch: main"), b.headgate(branchOfTags, "tags", "branch: main")}
	for i, ref := range []string{"tag: v2.0.0", `semver: ">=1.0.0"`, "name: refs/pull/1/head", "commit: " + b.repos["tags"].commit} {
		all = append(all, b.headgate("headgate "+refs[i], "tags", ref))
	}
	if only {
		return all
	}
	from := "git clone -q --depth 1 --branch main "
	all = append(all, contest.Shell(checkout, from+b.urlOf("plain")+" clone && tar -C clone --exclude=.git -cf - . | gzip >out.tar.gz"),
		contest.Contestant{Name: reference, Args: func(dir string) []string {
			return []string{filepath.Join(b.bin, "flux"), b.urlOf("plain"), "branch", "main", dir}
		}})
	if _, err := exec.LookPath("pigz"); err != nil {
		b.missing = bare + ": pigz is not installed"
		return all
	}
	return append(all, contest.Shell(bare, from+"--bare "+b.urlOf("plain")+" clone && git -C clone archive HEAD | pigz >out.tar.gz"))
}

func (b *bench) urlOf(repo string) string { return b.url + "/" + b.repos[repo].name }

// headgate returns a contestant that fetches a ref with headgate into an empty
// store.
func (b *bench) headgate(name, repo, ref string) contest.Contestant {
	return contest.Contestant{Name: name, Args: func(dir string) []string {
		manifest := filepath.Join(dir, "manifest.yaml")
		text := fmt.Sprintf("apiVersion: source.headgate.dev/v1\nkind: GitRepository\nmetadata:\n  name: bench\nspec:\n  interval: 1m\n  timeout: 5m\n  url: %s\n  ref:\n    %s\n", b.urlOf(repo), ref)
		if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
			panic(err)
		}
		return []string{filepath.Join(b.bin, "headgate"), "fetch", "-f", manifest, "--store", filepath.Join(dir, "store"), "-q"}
	}}
}

// report prints the results and returns how many goals were missed.
func (b *bench) report(out io.Writer) (missed int) {
	b.Print(out)
	if b.missing != "" {
		fmt.Fprintln(out, "not here:", b.missing)
	}
	goals := []contest.Goal{
		{What: "wall time against (a)", Number: b.Wall(branch, bare), Limit: 0.5},
		{What: "wall time against (b)", Number: b.Wall(branch, checkout), Limit: 0.25},
		{What: "wall time against (c)", Number: b.Wall(branch, reference), Limit: 0.16},
		b.Peak(branch, 90),
	}
	for _, ref := range refs {
		goals = append(goals, contest.Goal{What: ref + " against branch", Number: b.Wall("headgate "+ref, branchOfTags), Limit: 1.15})
	}
	return contest.Judge(out, goals)
}
