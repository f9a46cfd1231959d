package git_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// TestHostileTags has a repository that lies about its tags.
func TestHostileTags(t *testing.T) {
	t.Parallel()
	repo, signer := testenv.NewRepo(t), newSSHSigner(t)
	commit := repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "1")})
	sign := func(payload string) string { return repo.Object("tag", []byte(payload+signer.sign(payload))) }
	tag := func(name, kind, id string) string {
		return strings.Replace(annotated(name, id), "type commit", "type "+kind, 1)
	}
	inner := sign(tag("inner", "commit", commit))
	long := inner
	for range 20 {
		long = sign(tag("long", "tag", long))
	}
	tree := repo.ID(commit + "^{tree}")
	other := repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "2")})
	lie := sign(tag("lie", "commit", commit))
	repo.Git("pack-refs", "--all")
	packed, err := os.OpenFile(filepath.Join(repo.Dir, "packed-refs"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = packed.WriteString(lie + " refs/tags/lie\n^" + other + "\n")
		err = errors.Join(err, packed.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	server := testenv.ServeHTTP(t, testenv.HTTP{}, repo)
	for name, c := range map[string]struct{ id, want string }{
		"tree":         {sign(tag("tree", "tree", tree)), "commit|tree"},
		"wrong-type":   {sign(tag("wrong-type", "tag", commit)), "commit|corrupt"},
		"long":         {long, "more than (10|16) tags"},
		"two-headers":  {repo.Object("tag", []byte("object "+commit+"\ntype commit\ntag two-headers\ntag two\n\nm\n")), "two-headers|carries no signature"},
		"long-name":    {sign(tag(strings.Repeat("n", 100_000), "commit", commit)), `made under the name "n{80}"$`},
		"signed-twice": {repo.Object("tag", []byte(tag("signed-twice", "commit", commit)+signer.sign("a")+signer.sign(tag("signed-twice", "commit", commit)))), "does not belong to this content"},
		"lie":          {"", "whatever the repository says of it|does not hold|not found|absent|not in"},
	} {
		if c.id != "" {
			repo.Ref("refs/tags/"+name, c.id)
		}
		g := signedObject("https://example.com/x", name, "Tag")
		for _, url := range []string{"https://example.com/x", server.Repo()} {
			g.Spec.URL = url
			env := source.Env{
				Local:   map[string]string{"https://example.com/x": repo.Dir},
				Secrets: sourcetest.Secrets{"default/keys": {Data: map[string][]byte{"a.sshpub": signer.public()}}},
			}
			result, err := (&source.Reconciler{Store: openStore(t)}).Reconcile(t.Context(), g, git.New(g, env))
			if result.Outcome != source.Failed || err == nil || !regexp.MustCompile(c.want).MatchString(err.Error()) || g.Artifact() != nil {
				t.Errorf("%s at %s: outcome %q, error %v, want %q", name, url, result.Outcome, err, c.want)
			}
		}
	}
}
