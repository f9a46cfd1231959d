package wire_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/wire"
)

// speaking makes a server speak the version of the protocol given.
func speaking(version string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Git-Protocol", "version="+version)
		h.ServeHTTP(w, r)
	})
}

func TestVersions(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		repo := newRepo(t, format)
		for version, want := range map[string]int{"0": 0, "1": 1, "2": 2} {
			t.Run(format+" version "+version, func(t *testing.T) {
				client, u := serve(t, speaking(version, backend(t, repo.dir)))
				r := open(t, wire.HTTP(client, u))
				if r.Version() != want || r.ObjectFormat() != format || !r.Supports("filter") || !r.Supports("shallow") || r.WantsAny() != (want == 2) {
					t.Fatalf("version %d, format %s", r.Version(), r.ObjectFormat())
				}
				testRemote(t, repo, r)
				testFetch(t, repo, r)
			})
		}
	}
}

func testFetch(t *testing.T, repo repo, r *wire.Remote) {
	c := repo.commits
	for _, tt := range []struct {
		name                       string
		q                          wire.FetchRequest
		types                      string // of the objects in the pack
		shallow, unshallow, common []object.ID
	}{
		{"one commit", wire.FetchRequest{Depth: 1}, "blob commit tree", c[2:], nil, nil},
		{"no blobs", wire.FetchRequest{Depth: 1, Filter: "blob:none"}, "commit tree", c[2:], nil, nil},
		{"commits", wire.FetchRequest{Filter: "tree:0"}, "commit commit commit", nil, nil, nil},
		{"what is new", wire.FetchRequest{Haves: c[1:2], Filter: "tree:0", ThinPack: true}, "commit", nil, nil, c[1:2]},
		{"nothing new", wire.FetchRequest{Haves: c[2:]}, "", nil, nil, c[2:]},
		{"deeper", wire.FetchRequest{Haves: c[2:], Shallow: c[2:], Depth: 1, Deepen: true, Filter: "tree:0"}, "commit", c[1:2], c[2:], c[2:]},
		{"unknown haves", wire.FetchRequest{Haves: []object.ID{id(t, strings.Repeat("1", len(c[0].String())))}, Depth: 1}, "blob commit tree", c[2:], nil, nil},
	} {
		tt.q.Wants = c[2:]
		f := fetch(t, r, tt.q)
		var types []string
		for _, typ := range objects(t, repo, f.pack) {
			types = append(types, typ)
		}
		slices.Sort(types)
		if got := strings.Join(types, " "); got != tt.types || !slices.Equal(f.Shallow, tt.shallow) || !slices.Equal(f.Unshallow, tt.unshallow) {
			t.Errorf("%s: objects %q, shallow %v, unshallow %v", tt.name, got, f.Shallow, f.Unshallow)
		}
		if len(f.Acks) > 0 && !slices.Contains(tt.common, f.Acks[0]) {
			t.Errorf("%s: acknowledged %v", tt.name, f.Acks)
		}
	}
}

func TestFetchProgress(t *testing.T) {
	repo := newRepo(t)
	client, u := serve(t, backend(t, repo.dir))
	r := open(t, wire.HTTP(client, u))
	var lines []string
	fetch(t, r, wire.FetchRequest{Wants: repo.commits[2:], Progress: func(s string) { lines = append(lines, s) }})
	if all := strings.Join(lines, "\n"); !strings.Contains(all, "Counting objects") || strings.ContainsAny(all, "\r\t") {
		t.Errorf("progress %q", lines)
	}
}

// A commit that is no tip is refused by version 0 and given by version 2.
func TestFetchUnreachable(t *testing.T) {
	repo := newRepo(t)
	key := newKey(t, "ed25519")
	for _, version2 := range []bool{false, true} {
		s := (&sshServer{dir: repo.dir, env: version2}).start(t, key.signer.PublicKey(), "ed25519")
		for commit, given := range map[object.ID]bool{repo.commits[0]: version2, id(t, ones): false} {
			r, err := s.dial(t, wire.SSHConfig{Identity: key.pem, KnownHosts: s.known(s.keys...)})
			if err != nil {
				t.Fatal(err)
			}
			f, err := r.Fetch(context.Background(), wire.FetchRequest{Wants: []object.ID{commit}, Depth: 1})
			if err == nil {
				f.Close()
			}
			if given && err != nil || !given && !errors.Is(err, wire.ErrUnreachable) || r.WantsAny() != version2 {
				t.Errorf("version 2 %v, %s: %v", version2, commit, err)
			}
		}
	}
}

// Version 0 can want what the server allows.
func TestFetchAllowed(t *testing.T) {
	repo := newRepo(t)
	git(t, repo.bare(), "config", "uploadpack.allowReachableSHA1InWant", "true")
	client, u := serve(t, speaking("0", backend(t, repo.dir)))
	r := open(t, wire.HTTP(client, u))
	if !r.WantsAny() {
		t.Error("the server allows every reachable commit")
	}
	fetch(t, r, wire.FetchRequest{Wants: repo.commits[:1], Depth: 1})
}

func TestFetchRefused(t *testing.T) {
	repo := newRepo(t)
	git(t, repo.bare(), "config", "uploadpack.allowFilter", "false")
	client, u := serve(t, backend(t, repo.dir))
	r := open(t, wire.HTTP(client, u))
	tip := repo.commits[2:]
	for name, q := range map[string]wire.FetchRequest{
		"nothing wanted": {},
		"zero id":        {Wants: make([]object.ID, 1)},
		"other format":   {Wants: []object.ID{id(t, strings.Repeat("1", 64))}},
		"depth":          {Wants: tip, Depth: -1},
		"deepen":         {Wants: tip, Deepen: true},
		"filter":         {Wants: tip, Filter: "blob:none\n0000"},
	} {
		if _, err := r.Fetch(context.Background(), q); err == nil || errors.Is(err, wire.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.Fetch(context.Background(), wire.FetchRequest{Wants: tip, Filter: "blob:none"}); !errors.Is(err, wire.ErrUnsupported) {
		t.Errorf("filter: %v", err)
	}
}

// A server may have none of what version 0 makes optional.
func TestFetchUnsupported(t *testing.T) {
	for caps, q := range map[string]wire.FetchRequest{
		"":               {Depth: 1},
		"shallow":        {Depth: 1, Deepen: true},
		"shallow filter": {Depth: 1, Filter: "tree:0", Deepen: true},
	} {
		client, u := serve(t, &script{greeting: pkt(ones+" HEAD\x00"+caps+"\n") + flush})
		q.Wants = []object.ID{id(t, ones)}
		if _, err := open(t, wire.HTTP(client, u)).Fetch(context.Background(), q); !errors.Is(err, wire.ErrUnsupported) {
			t.Errorf("capabilities %q: %v", caps, err)
		}
	}
}

func TestFetchLimit(t *testing.T) {
	repo := newRepo(t)
	client, u := serve(t, backend(t, repo.dir))
	r := open(t, wire.HTTP(client, u))
	f, err := r.Fetch(context.Background(), wire.FetchRequest{Wants: repo.commits[2:], MaxBytes: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err = readAll(f.Pack); !errors.Is(err, wire.ErrLimit) {
		t.Errorf("a pack over the limit: %v", err)
	}
}

// A server without side-bands sends the bare pack.
func TestFetchWithoutBands(t *testing.T) {
	repo := newRepo(t)
	client, u := serve(t, &rewriter{h: speaking("0", backend(t, repo.dir)), old: "side-band", new: "side-hand"})
	testFetch(t, repo, open(t, wire.HTTP(client, u)))
}

// A shallow repository names its shallow commits among the refs of version 0.
func TestShallowRepository(t *testing.T) {
	repo := newRepo(t)
	os.RemoveAll(repo.bare())
	git(t, repo.dir, "clone", "-q", "--bare", "--depth=1", "file://"+filepath.ToSlash(filepath.Join(repo.dir, "work")), "repo.git")
	for _, version := range []string{"0", "2"} {
		client, u := serve(t, speaking(version, backend(t, repo.dir)))
		r := open(t, wire.HTTP(client, u))
		refs, err := r.Refs(context.Background(), wire.RefQuery{})
		if err != nil || len(refs) != 2 {
			t.Errorf("version %s: %v, %v", version, refs, err)
		}
		f := fetch(t, r, wire.FetchRequest{Wants: repo.commits[2:]})
		if len(f.Shallow) > 1 {
			t.Errorf("version %s: shallow %v", version, f.Shallow)
		}
	}
}
