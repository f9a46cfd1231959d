package git_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// entry is one entry of a raw tree object.
func entry(t *testing.T, mode, name, id string) []byte {
	raw := make([]byte, 0, 64)
	raw = append(raw, mode+" "+name+"\x00"...)
	for i := 0; i < len(id); i += 2 {
		raw = append(raw, hexDigit(t, id[i])<<4|hexDigit(t, id[i+1]))
	}
	return raw
}

func hexDigit(t *testing.T, c byte) byte {
	i := strings.IndexByte("0123456789abcdef", c)
	if i < 0 {
		t.Fatalf("%q is no hexadecimal digit", c)
	}
	return byte(i)
}

// A ref may lead to anything; only a commit can be fetched.
func TestRefsThatLeadToNoCommit(t *testing.T) {
	repo := one(t)
	tree := repo.ID("main^{tree}")
	repo.Tag("tree", tree)
	repo.AnnotatedTag("annotated", tree, "a tag of a tree")
	repo.AnnotatedTag("nested", repo.ID("refs/tags/annotated"), "a tag of a tag of a tree")
	url := testenv.ServeHTTP(t, testenv.HTTP{}, repo).Repo()
	for _, tag := range []string{"tree", "annotated", "nested"} {
		_, _, _, err := try(t.Context(), object(url, source.GitRepositoryRef{Tag: tag}), source.Env{})
		if err == nil || !strings.Contains(err.Error(), "tree") {
			t.Errorf("%s: %v: want an error that says that it is a tree", tag, err)
		}
	}
}

// A blob of zeros is a small pack: what counts is what it inflates to.
func TestLimits(t *testing.T) {
	repo := testenv.NewRepo(t)
	tree := files("small", "1")
	tree["zeros"] = files("", "")[""]
	tree["zeros"].Data = make([]byte, 24<<20)
	repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	url := testenv.ServeHTTP(t, testenv.HTTP{}, repo).Repo()
	for name, limits := range map[string]artifact.Limits{
		"bytes":      {Bytes: 16 << 20},
		"file bytes": {FileBytes: 16 << 20},
		"entries":    {Entries: 1},
	} {
		_, _, _, err := try(t.Context(), object(url, source.GitRepositoryRef{Branch: "main"}), source.Env{Limits: limits})
		if err == nil || !strings.Contains(err.Error(), "limit") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, limits := range []artifact.Limits{{Bytes: 25 << 20, Entries: 2}, {Bytes: -1, FileBytes: -1, Entries: -1}} {
		_, data, _ := fetch(t, object(url, source.GitRepositoryRef{Branch: "main"}), source.Env{Limits: limits})
		if len(data) > 1<<20 {
			t.Errorf("%d bytes for zeros", len(data))
		}
	}
}

// A pack that ends early, is cut or has a wrong byte anywhere is refused.
func TestDamagedPacks(t *testing.T) {
	repo := one(t)
	server := testenv.ServeHTTP(t, testenv.HTTP{}, repo)
	for _, do := range []testenv.Misdeed{testenv.End, testenv.Cut, testenv.Flip} {
		for after := int64(0); after < 400; after += 13 {
			server.Break(&testenv.Defect{Phase: testenv.Pack, Do: do, After: after})
			_, data, _, err := try(t.Context(), object(server.Repo(), source.GitRepositoryRef{Branch: "main"}), source.Env{})
			if err == nil && !bytes.Equal(data, reference(t, repo)) {
				t.Errorf("%v after %d: another archive came out", do, after)
			}
			if err == nil && do != testenv.Flip && after < 280 {
				t.Errorf("%v after %d: no error", do, after)
			}
		}
	}
}

// reference is the archive of main.
func reference(t *testing.T, repo *testenv.Repo) []byte {
	_, data, _ := fetch(t, object(testenv.ServeHTTP(t, testenv.HTTP{}, repo).Repo(), source.GitRepositoryRef{Branch: "main"}), source.Env{})
	return data
}

// A hundred trees that hold each other twice describe 2¹⁰⁰ files.
func TestTreeBomb(t *testing.T) {
	repo := testenv.NewRepo(t)
	blob := repo.Object("blob", []byte("x"))
	tree := repo.Object("tree", entry(t, "100644", "x", blob))
	for range 100 {
		tree = repo.Object("tree", append(entry(t, "40000", "a", tree), entry(t, "40000", "b", tree)...))
	}
	commit := "tree " + tree + "\nauthor t <t@example.com> 1700000000 +0000\ncommitter t <t@example.com> 1700000000 +0000\n\nbomb\n"
	repo.Ref("refs/heads/main", repo.Object("commit", []byte(commit)))
	_, _, _, err := try(t.Context(), object(testenv.ServeHTTP(t, testenv.HTTP{}, repo).Repo(), source.GitRepositoryRef{Branch: "main"}), source.Env{})
	if err == nil || !strings.Contains(err.Error(), "more than the limit") {
		t.Errorf("%v", err)
	}
}

// The time zone of the machine and of the committer leave no trace.
func TestArchiveHoldsNoTime(t *testing.T) {
	a, b := testenv.NewRepo(t), testenv.NewRepo(t)
	a.Commit(testenv.Commit{Branch: "main", Files: files("a", "1")})
	b.Commit(testenv.Commit{Branch: "main", Files: files("a", "1"), Time: time.Date(2001, 2, 3, 4, 5, 6, 0, time.FixedZone("", 3600))})
	if !bytes.Equal(reference(t, a), reference(t, b)) {
		t.Error("the archives differ")
	}
}

func TestStateOfAnotherKindIsIgnored(t *testing.T) {
	url := testenv.ServeHTTP(t, testenv.HTTP{}, one(t)).Repo()
	for _, state := range []string{"", "null", "[]", "{}", "\x00\xff", strings.Repeat("[", 1<<16)} {
		if _, _, err := git.New(object(url, source.GitRepositoryRef{Branch: "main"}), source.Env{}).Resolve(t.Context(), source.State(state)); err != nil {
			t.Errorf("state %.20q: %v", state, err)
		}
	}
}
