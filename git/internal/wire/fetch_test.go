package wire_test

import (
	"context"
	"errors"
	"net/http"
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

// A server may have none of what version 0 makes optional.
func TestFetchUnsupported(t *testing.T) {
	for caps, q := range map[string]wire.FetchRequest{"": {Depth: 1}, "shallow": {Depth: 1, Filter: "tree:0"}} {
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
	if _, err = readAll(f); !errors.Is(err, wire.ErrLimit) {
		t.Errorf("a pack over the limit: %v", err)
	}
}

// A server without side-bands sends the bare pack.
func TestFetchWithoutBands(t *testing.T) {
	repo := newRepo(t)
	client, u := serve(t, &rewriter{h: speaking("0", backend(t, repo.dir)), old: "side-band", new: "side-hand"})
	f := fetch(t, open(t, wire.HTTP(client, u)), wire.FetchRequest{Wants: repo.commits[2:], Depth: 1})
	if n := len(objects(t, repo, f.pack)); n != 3 {
		t.Errorf("%d objects", n)
	}
}
