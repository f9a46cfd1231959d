package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/headgate-io/headgate/bench/contest"
)

type bench struct {
	contest.Contest
	bin     string
	dir     string // of the repositories
	server  *server
	repos   map[string]repo
	missing []string // contestants that cannot run here, and why
}

func (b *bench) url(repo string) string { return b.server.url + "/" + b.repos[repo].name }

// contestants returns who takes part, in the order in which they take turns.
func (b *bench) contestants(only bool) []contest.Contestant {
	all := []contest.Contestant{
		b.headgate("headgate branch", "plain", "branch: main"),
		b.headgate("headgate branch, 500 tags", "tags", "branch: main"),
		b.headgate("headgate tag, 500 tags", "tags", "tag: v2.0.0"),
		b.headgate("headgate semver, 500 tags", "tags", `semver: ">=1.0.0"`),
		b.headgate("headgate pull request, 500 tags", "tags", "name: refs/pull/1/head"),
		b.headgate("headgate commit, 500 tags", "tags", "commit: "+b.repos["tags"].commit),
		b.headgate("headgate branch, twice the files", "double", "branch: main"),
	}
	if only {
		return all
	}
	clone := "git clone -q --bare --depth 1 --branch main " + b.url("plain") + " clone"
	all = append(all,
		contest.Shell("floor: bare clone", clone),
		contest.Shell("(b) clone, tar, gzip", "git clone -q --depth 1 --branch main "+b.url("plain")+" clone && tar -C clone --exclude=.git -cf - . | gzip >out.tar.gz"),
		contest.Contestant{Name: "(c) reference", Args: func(dir string) []string {
			return []string{filepath.Join(b.bin, "flux"), b.url("plain"), "branch", "main", dir}
		}})
	if _, err := exec.LookPath("pigz"); err != nil {
		b.missing = append(b.missing, "(a) bare clone, archive, pigz: pigz is not installed")
		return all
	}
	return append(all, contest.Shell("(a) bare clone, archive, pigz", clone+" && git -C clone archive HEAD | pigz >out.tar.gz"))
}

// headgate is the command, given a manifest with a ref and an empty store.
func (b *bench) headgate(name, repo, ref string) contest.Contestant {
	return contest.Contestant{Name: name, Args: func(dir string) []string {
		manifest := filepath.Join(dir, "manifest.yaml")
		text := fmt.Sprintf("apiVersion: source.headgate.dev/v1\nkind: GitRepository\nmetadata:\n  name: bench\nspec:\n  interval: 1m\n  timeout: 5m\n  url: %s\n  ref:\n    %s\n", b.url(repo), ref)
		if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
			panic(err)
		}
		return []string{filepath.Join(b.bin, "headgate"), "fetch", "-f", manifest, "--store", filepath.Join(dir, "store"), "-q"}
	}}
}

// unchanged measures a fetch that finds nothing new.
func (b *bench) unchanged(ctx context.Context) error {
	first := b.Result["headgate branch, 500 tags"]
	c := contest.Contestant{Name: "headgate unchanged, 500 tags", Args: func(dir string) []string {
		return []string{filepath.Join(b.bin, "headgate"), "fetch", "-f", filepath.Join(dir, "manifest.yaml"), "--store", filepath.Join(dir, "store"), "-q"}
	}}
	r := b.Enter(c.Name, first.Output)
	for range first.Wall {
		if err := b.Run(ctx, c, r, false); err != nil {
			return err
		}
	}
	return nil
}
