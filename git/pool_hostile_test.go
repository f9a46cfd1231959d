package git_test

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// packed returns a pack of entries, each made by packEntry.
func packed(entries ...[]byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), uint32(len(entries)))
	b = append(b, bytes.Join(entries, nil)...)
	sum := sha1.Sum(b)
	return append(b, sum[:]...)
}

// packEntry returns an object of a pack; what precedes its content is the base of a delta.
func packEntry(kind byte, base string, content []byte) []byte {
	n := len(content)
	b := []byte{kind<<4 | byte(n&15)}
	for n >>= 4; n > 0; n >>= 7 {
		b[len(b)-1] |= 0x80
		b = append(b, byte(n&0x7f))
	}
	id, _ := hex.DecodeString(base)
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	w.Write(content)
	w.Close()
	return append(append(b, id...), z.Bytes()...)
}

// answer is the answer to a fetch in version 2 with a pack.
func answer(pack []byte) *testenv.Defect {
	line := func(s string) string { return fmt.Sprintf("%04x%s", 4+len(s), s) }
	return &testenv.Defect{Phase: testenv.Pack, Status: http.StatusOK,
		Header: http.Header{"Content-Type": {"application/x-git-upload-pack-result"}},
		Body:   line("packfile\n") + line("\x01"+string(pack)) + "0000"}
}

// A server that abuses what it was told is held: the answer is not believed, a
// fetch of everything is tried, and nothing is recorded but what is whole.
func TestHostileDifference(t *testing.T) {
	repo := testenv.NewRepo(t)
	tree := twentyFiles()
	old := repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	server := testenv.ServeHTTP(t, testenv.HTTP{}, repo)
	g := object(server.Repo(), source.GitRepositoryRef{Branch: "main"})
	dir := t.TempDir()
	env := source.Env{Cache: newCache(t, dir)}
	fetch(t, g, env)

	tree["dir1/file5"].Data = []byte("changed")
	id := repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	raw := func(kind, id string) []byte { return []byte(repo.Git("cat-file", kind, id) + "\n") }
	absent := "1111111111111111111111111111111111111111"
	blob := repo.ID(old + ":dir0/file0")
	for defect, pack := range map[string][]byte{
		"base that is nowhere":          packed(packEntry(7, absent, []byte{5, 5, 0x90, 5})),
		"delta on itself":               packed(packEntry(7, id, []byte{5, 5, 0x90, 5})),
		"delta that does not fit":       packed(packEntry(7, blob, []byte{5, 5, 0x90, 5})),
		"copy beyond the base":          packed(packEntry(7, blob, []byte{0x80, 0xa0, 1, 5, 0xb3, 0xff, 0xff, 5, 0})),
		"nothing":                       packed(),
		"another object":                packed(packEntry(3, "", []byte("not asked for"))),
		"the commit alone":              packed(packEntry(1, "", raw("commit", id))),
		"the old commit":                packed(packEntry(1, "", raw("commit", old))),
		"a commit of other content":     packed(packEntry(1, "", append(raw("commit", id), "more\n"...))),
		"a pack that is damaged":        append(packed(), 1),
		"a pack of another hash length": packed()[:14],
	} {
		t.Run(defect, func(t *testing.T) {
			mine := t.TempDir()
			if err := os.CopyFS(mine, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			env := source.Env{Cache: newCache(t, mine)}
			server.Break(answer(pack))
			if _, _, _, err := try(t.Context(), g, env); err == nil {
				t.Fatal("no error")
			}
			server.Break(nil)
			server.Reset()
			_, data, _ := fetch(t, g, env)
			if _, sent := server.Bytes(); sent > 8<<10 {
				t.Errorf("what was held is forgotten: %d bytes", sent)
			}
			if contents(t, data)["dir1/file5"] != "changed" {
				t.Error("other content")
			}

			if err := os.RemoveAll(mine); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(mine, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			once := answer(pack)
			once.Times = 1
			server.Break(once)
			server.Reset()
			if _, again, _ := fetch(t, g, source.Env{Cache: newCache(t, mine)}); !bytes.Equal(again, data) {
				t.Error("other bytes after a fall-back")
			}
			if list := packRequests(server); len(list) != 2 || bytes.Contains([]byte(list[1]), []byte("have ")) {
				t.Errorf("requests %q", list)
			}
			server.Break(nil)
		})
	}
}

// A server that is busy is not asked for more.
func TestBusyServer(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: twentyFiles()})
	server := testenv.ServeHTTP(t, testenv.HTTP{}, repo)
	g := object(server.Repo(), source.GitRepositoryRef{Branch: "main"})
	env := source.Env{Cache: newCache(t, t.TempDir())}
	fetch(t, g, env)
	repo.Commit(testenv.Commit{Branch: "main", Files: files("a", "1")})
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusUnauthorized, http.StatusNotFound} {
		server.Break(&testenv.Defect{Phase: testenv.Pack, Status: status})
		server.Reset()
		if _, _, _, err := try(t.Context(), g, env); err == nil || len(packRequests(server)) != 1 {
			t.Errorf("status %d: %v after requests %q", status, err, packRequests(server))
		}
	}
}

// Without a place to write to, everything works as if there were no cache.
func TestCacheThatCannotBeWritten(t *testing.T) {
	repo := testenv.NewRepo(t)
	tree := twentyFiles()
	repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	server := testenv.ServeHTTP(t, testenv.HTTP{}, repo)
	g := object(server.Repo(), source.GitRepositoryRef{Branch: "main"})
	_, want, _ := fetch(t, g, source.Env{})
	for _, blocked := range []string{"tmp", "lock", "entry"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, blocked), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, data, _ := fetch(t, g, source.Env{Cache: newCache(t, dir)}); !bytes.Equal(data, want) {
				t.Errorf("%s: other bytes", blocked)
			}
		}
	}
	small, err := artifact.OpenCache(artifact.CacheConfig{Dir: t.TempDir(), MaxBytes: 100 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	for range 2 {
		if _, data, _ := fetch(t, g, source.Env{Cache: small}); !bytes.Equal(data, want) {
			t.Error("small: other bytes")
		}
	}
}

// Another repository, even in another object format, takes the place of the old one.
func TestRepositoryIsReplaced(t *testing.T) {
	repos := map[string]*testenv.Repo{}
	server := testenv.ServeAll(t, testenv.HTTP{}, repos)
	g := object(server.URL+"/repo.git", source.GitRepositoryRef{Branch: "main"})
	env := source.Env{Cache: newCache(t, t.TempDir())}
	for i, format := range []string{"sha1", "sha1", "sha256", "sha256", "sha1"} {
		repos["repo.git"] = testenv.NewRepoIn(t, format)
		repos["repo.git"].Commit(testenv.Commit{Branch: "main", Files: files("at", fmt.Sprint(i))})
		if _, data, _ := fetch(t, g, env); contents(t, data)["at"] != fmt.Sprint(i) {
			t.Errorf("%d: other content", i)
		}
	}
}
