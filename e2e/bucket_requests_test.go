package e2e

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
)

// TestBucketRequests counts what stores of S3 are asked.
func TestBucketRequests(t *testing.T) {
	for name, serve := range map[string]func(*testing.T) *objectStore{
		"minio":     func(t *testing.T) *objectStore { return minioServer{}.serve(t) },
		"versitygw": serveVersity,
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			s.bucket("app", files)
			all := maps.Clone(files)
			all["large.bin"] = s.multipart("app", "large.bin")
			c := counted{front: newStoreFront(t, s.addr), store: t.TempDir(), files: all, below: "/app/"}
			c.source = bucketAt(c.front.addr, "app").secret("secretRef", root)
			changed := c.run(t, func(key, text string) { s.put("app", key, text) })
			s.put("app", "README.md", all["README.md"])
			if again, _ := fetched(t, c.store, c.source); again != changed {
				t.Errorf("what was written again as it was had %s and has %s", changed, again)
			}
			wantAsked(t, c.front, "GET list 200")
			check(t, s.RemoveObject(t.Context(), "app", "docs/naïve name", minio.RemoveObjectOptions{}))
			delete(all, "docs/naïve name")
			_, held := fetched(t, c.store, c.source)
			wantFiles(t, held, all)
			wantAsked(t, c.front, "GET list 200")
		})
	}
}

// TestBucketAzureRequests counts what Azurite is asked.
func TestBucketAzureRequests(t *testing.T) {
	s := serveAzurite(t, nil)
	s.container("app", nil, files)
	c := counted{front: newStoreFront(t, s.addr), store: t.TempDir(), files: maps.Clone(files), below: "/" + azureAccount + "/app/"}
	c.source = bucketAt("http://"+c.front.addr+"/"+azureAccount, "app").with("provider", "azure").secret("secretRef", keys{"accountKey": s.key})
	c.run(t, func(key, text string) { s.put("app", key, text) })
}

// A counted bucket is fetched through a front.
type counted struct {
	front  *front
	source bucketSource
	store  string
	files  keys   // README.md among them
	below  string // path of the objects
}

// run fetches all objects, then none, since nothing changed, then the one that
// changed, and returns the last revision.
func (c *counted) run(t *testing.T, put func(key, text string)) (revision string) {
	t.Helper()
	first, held := fetched(t, c.store, c.source)
	wantFiles(t, held, c.files)
	want := []string{"GET list 200"}
	for key := range c.files {
		want = append(want, "GET "+c.below+key+" 200")
	}
	wantAsked(t, c.front, want...)
	if again, _ := fetched(t, c.store, c.source); again != first {
		t.Errorf("what is unchanged was %s and is %s", first, again)
	}
	wantAsked(t, c.front, "GET list 200")
	c.files["README.md"] = "# sample, changed\n"
	put("README.md", c.files["README.md"])
	second, held := fetched(t, c.store, c.source)
	if second == first {
		t.Error("a changed object has the same revision")
	}
	wantFiles(t, held, c.files)
	wantAsked(t, c.front, "GET list 200", "GET "+c.below+"README.md 200")
	return second
}

// multipart uploads an object in two parts, whose ETag is no digest of its content, and returns the content.
func (s *objectStore) multipart(bucket, key string) string {
	s.t.Helper()
	content := make([]byte, 6<<20)
	rand.NewChaCha8([32]byte{1}).Read(content)
	info, err := s.PutObject(s.t.Context(), bucket, key, bytes.NewReader(content), int64(len(content)), minio.PutObjectOptions{PartSize: 5 << 20})
	check(s.t, err)
	if !strings.HasSuffix(info.ETag, "-2") {
		s.t.Fatalf("the ETag of two parts is %s", info.ETag)
	}
	return string(content)
}
