// Flux makes an artifact like the reference implementation: with its client, a shallow clone to
// disk, and its archiver. It is a separate program, so that its memory can be measured alone.
//
//	flux URL KIND REF DIR
//
// KIND is branch, tag, semver, name or commit. Flux prints the path of the artifact below DIR.
package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/artifact/storage"
	"github.com/fluxcd/pkg/git"
	"github.com/fluxcd/pkg/git/gogit"
	"github.com/fluxcd/pkg/git/repository"
	"github.com/fluxcd/pkg/sourceignore"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: flux URL KIND REF DIR")
		os.Exit(2)
	}
	path, err := fetch(context.Background(), os.Args[1], strategy(os.Args[2], os.Args[3]), os.Args[4])
	if err != nil {
		fmt.Fprintln(os.Stderr, "flux:", err)
		os.Exit(1)
	}
	fmt.Println(path)
}

func strategy(kind, ref string) repository.CheckoutStrategy {
	var s repository.CheckoutStrategy
	*map[string]*string{
		"branch": &s.Branch, "tag": &s.Tag, "semver": &s.SemVer, "name": &s.RefName, "commit": &s.Commit,
	}[kind] = ref
	return s
}

// fetch performs the steps of the GitRepository reconciler from a changed revision to a stored
// artifact, and returns the path of the artifact.
func fetch(ctx context.Context, from string, at repository.CheckoutStrategy, dir string) (string, error) {
	u, err := url.Parse(from)
	if err != nil {
		return "", err
	}
	auth, err := git.NewAuthOptions(*u, nil)
	if err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(dir, "work-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	client, err := gogit.NewClient(work, auth, gogit.WithDiskStorage())
	if err != nil {
		return "", err
	}
	defer client.Close()
	commit, err := client.Clone(ctx, from, repository.CloneConfig{CheckoutStrategy: at, ShallowClone: true})
	if err != nil {
		return "", err
	}
	domain := strings.Split(work, string(filepath.Separator))
	ignore, err := sourceignore.LoadIgnorePatterns(work, domain)
	if err != nil {
		return "", err
	}
	store := storage.Storage{BasePath: dir, Hostname: "localhost"}
	a := meta.Artifact{Path: storage.ArtifactPath("GitRepository", "default", "bench", commit.Hash.String()+".tar.gz")}
	if err := store.MkdirAll(a); err != nil {
		return "", err
	}
	return a.Path, store.Archive(&a, work, storage.SourceIgnoreFilter(ignore, domain))
}
