package wire_test

import (
	"context"
	"io"
	"reflect"
	"testing"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/wire"
)

// testRemote puts every kind of question to a remote that serves repo.
func testRemote(t *testing.T, repo repo, r *wire.Remote) {
	ctx := context.Background()
	tip := repo.commits[2]
	for _, tt := range []struct {
		name string
		q    wire.RefQuery
		want []wire.Ref
	}{
		{"all", wire.RefQuery{}, []wire.Ref{{Name: "HEAD", ID: tip}, {Name: "refs/heads/main", ID: tip}, {Name: "refs/tags/v1", ID: repo.tag}}},
		{"exact", wire.RefQuery{Exact: []string{"refs/heads/main"}}, []wire.Ref{{Name: "refs/heads/main", ID: tip}}},
		{"symref", wire.RefQuery{Exact: []string{"HEAD"}, Symrefs: true}, []wire.Ref{{Name: "HEAD", ID: tip, Symref: "refs/heads/main"}}},
		{"peeled", wire.RefQuery{Prefixes: []string{"refs/tags/"}, Peel: true}, []wire.Ref{{Name: "refs/tags/v1", ID: repo.tag, Peeled: repo.commits[1]}}},
		{"peeled exact", wire.RefQuery{Exact: []string{"refs/tags/v1"}, Peel: true}, []wire.Ref{{Name: "refs/tags/v1", ID: repo.tag, Peeled: repo.commits[1]}}},
		{"none", wire.RefQuery{Exact: []string{"refs/heads/mai"}}, nil},
	} {
		got, err := r.Refs(ctx, tt.q)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Fatalf("%s: %v, %v, want %v", tt.name, got, err, tt.want)
		}
	}
	full := fetch(t, r, wire.FetchRequest{Wants: []object.ID{tip}})
	if got := len(objects(t, repo, full.pack)); got != 9 || full.Shallow != nil {
		t.Errorf("full fetch: %d objects, shallow %v", got, full.Shallow)
	}
}

type fetched struct {
	*wire.FetchResponse
	pack []byte
}

func fetch(t *testing.T, r *wire.Remote, q wire.FetchRequest) fetched {
	t.Helper()
	f, err := r.Fetch(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	pack, err := io.ReadAll(f.Pack)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return fetched{f, pack}
}
