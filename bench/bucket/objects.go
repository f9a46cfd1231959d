package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os/exec"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sync/errgroup"
)

const (
	services   = 100 // directories
	smallEach  = 100 // objects in each
	largeEach  = 2   // one is text, one noise
	smallSize  = 4000
	largeSize  = 5_000_000
	bucketName = "bench"
	fillers    = 8 // concurrent uploads
)

// objects yields the key and the content of each object.
func objects() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		seed := uint64(0)
		for s := range services {
			for n := range smallEach {
				seed++
				if !yield(fmt.Sprintf("service-%02d/manifests/%03d.yaml", s, n), text(seed, smallSize)) {
					return
				}
			}
			seed += 2
			if !yield(fmt.Sprintf("service-%02d/data/records.txt", s), text(seed, largeSize)) ||
				!yield(fmt.Sprintf("service-%02d/data/picture.bin", s), noise(seed, largeSize)) {
				return
			}
		}
	}
}

// text returns lines that look like a manifest and compress like one.
func text(seed uint64, size int) []byte {
	words := strings.Fields("image replicas memory limits requests metadata labels container port protocol volume claim secret config annotations selector template")
	r := rand.New(rand.NewPCG(seed, 1))
	var out bytes.Buffer
	for out.Len() < size {
		fmt.Fprintf(&out, "%*s%s-%s: %q\n", 2*r.IntN(6), "", words[r.IntN(len(words))], words[r.IntN(len(words))], fmt.Sprintf("%s/%05x", words[r.IntN(len(words))], r.IntN(1<<20)))
	}
	return out.Bytes()[:size]
}

// noise returns incompressible data.
func noise(seed uint64, size int) []byte {
	out := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)}).Read(out)
	return out
}

// client returns a minio-go client for the server at host.
func client(host string, keys *credentials.Credentials) (*minio.Client, error) {
	return minio.New(host, &minio.Options{Creds: keys, Region: region})
}

// fill uploads all objects to the bucket.
func fill(ctx context.Context, host string) error {
	c, err := client(host, credentials.NewStaticV4(user, password, ""))
	if err != nil {
		return err
	}
	if err := c.MakeBucket(ctx, bucketName, minio.MakeBucketOptions{}); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fillers)
	for key, content := range objects() {
		group.Go(func() error {
			_, err := c.PutObject(ctx, bucketName, key, bytes.NewReader(content), int64(len(content)), minio.PutObjectOptions{})
			return err
		})
	}
	return group.Wait()
}

// childCommand returns a command that runs a part of the benchmark in another process.
// The peak memory of a child process is at least the memory of its parent, so the
// parent must stay small.
func childCommand(ctx context.Context, self string, stderr io.Writer, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = stderr
	return cmd
}
