package bucket_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// Objects of one bucket that are due together have it listed once, whatever they
// leave out; those with other keys, or of another prefix, list for themselves.
func TestFleetListsOnce(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(i int, s *source.BucketSpec)
		want int
	}{
		"the same":       {func(int, *source.BucketSpec) {}, 1},
		"other rules":    {func(i int, s *source.BucketSpec) { s.Ignore = &[]string{"a", "b"}[i%2] }, 1},
		"another Secret": {func(i int, s *source.BucketSpec) { s.SecretRef = ref([]string{"keys", "others"}[i%2]) }, 2},
		"another prefix": {func(i int, s *source.BucketSpec) { s.Prefix = []string{"", "a"}[i%2] }, 3}, // one looks for .sourceignore
	} {
		t.Run(name, func(t *testing.T) {
			r := newScene(t, testenv.StoreConfig{AccessKey: "AKIA", SecretKey: canary})
			r.secrets["others"] = r.secrets["keys"]
			r.holds("a", "1", "b", "2", "c", "3")
			r.env.Share, r.env.Since, r.env.Reuse = new(source.Share), time.Now(), new(source.Connections)
			t.Cleanup(r.env.Reuse.Close)
			objects := make([]*source.Bucket, 6)
			if name == "another prefix" {
				objects = objects[:2]
			}
			var all sync.WaitGroup
			for i := range objects {
				objects[i] = r.object(func(s *source.BucketSpec) { c.edit(i, s) })
				objects[i].Metadata.Name = fmt.Sprint("app-", i)
				all.Go(func() {
					if _, err := (&source.Reconciler{Store: r.Store}).Reconcile(t.Context(), objects[i], r.origin(objects[i])); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			lists := 0
			for _, q := range r.s.Requests() {
				if q.Phase == testenv.ListObjects {
					lists++
				}
			}
			if lists != c.want {
				t.Errorf("%d lists, want %d", lists, c.want)
			}
			for i, obj := range objects {
				want := 3
				if name != "the same" && name != "another Secret" {
					want = []int{2, 2}[i%2]
					if name == "another prefix" {
						want = []int{3, 1}[i%2]
					}
				}
				if got := len(r.Contents(obj.Artifact())); got != want {
					t.Errorf("object %d has %d files, want %d", i, got, want)
				}
			}
		})
	}
}
