package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/headgate-io/headgate/bench/contest"
)

type bench struct {
	contest.Contest
	temp  string
	tools programs
	store *store
	front *front
	keys  *keyServer
	asked map[string]asked // by contestant
}

// The contestants.
const (
	whole     = "headgate, all objects"
	changed   = "headgate, one object changed"
	unchanged = "headgate, unchanged"
	mirror    = "mc mirror, tar cz"
	copying   = "s5cmd cp, tar cz"

	resolveMany  = "headgate resolve, 1,000,000 keys"
	resolveEmpty = "headgate resolve, no keys"
	listMany     = "minio-go ListObjects, 1,000,000 keys"

	wholeAway   = whole + ", 20 ms away"
	changedAway = changed + ", 20 ms away"
	mirrorAway  = mirror + ", 20 ms away"
	copyingAway = copying + ", 20 ms away"
	away        = 20 * time.Millisecond
)

// env is the environment of all.
func (b *bench) env() []string {
	return append(os.Environ(), "LC_ALL=C", "HOME="+b.temp, "MC_CONFIG_DIR="+filepath.Join(b.temp, "mc"),
		"MC_HOST_near=http://"+user+":"+password+"@"+b.store.host, "MC_HOST_far=http://"+user+":"+password+"@"+b.front.host,
		"AWS_ACCESS_KEY_ID="+user, "AWS_SECRET_ACCESS_KEY="+password, "AWS_REGION="+region)
}

// compete lets all take their turns, and counts requests apart.
func (b *bench) compete(ctx context.Context, runs int, only bool) error {
	kept := filepath.Join(b.temp, "published")
	if err := b.fetch(ctx, b.store.host, kept); err != nil {
		return err
	}
	near := []contest.Contestant{
		b.headgate(whole, b.store.host, ""),
		b.headgate(unchanged, b.store.host, kept),
		b.changing(ctx, b.headgate(changed, b.store.host, kept)),
	}
	far := []contest.Contestant{
		b.headgate(wholeAway, b.front.host, ""),
		b.changing(ctx, b.headgate(changedAway, b.front.host, kept)),
	}
	keys := []contest.Contestant{b.resolve(resolveMany, manyName), b.resolve(resolveEmpty, emptyName)}
	if !only {
		near = append(near, b.mirror(mirror, "near"), b.copy(copying, b.store.host))
		far = append(far, b.mirror(mirrorAway, "far"), b.copy(copyingAway, b.front.host))
		keys = append(keys, contest.Contestant{Name: listMany, Args: func(string) []string {
			return []string{b.tools.self, "-list", b.keys.host}
		}})
	}
	for i := range far {
		far[i].Lag = away
	}
	if err := b.Compete(ctx, runs, near); err != nil {
		return err
	}
	if err := b.Compete(ctx, runs, keys); err != nil {
		return err
	}
	if err := b.count(ctx); err != nil {
		return err
	}
	return b.Compete(ctx, 1, far)
}

// headgate is the command that fetches the bucket at host into a store that is
// kept, or an empty one.
func (b *bench) headgate(name, host, kept string) contest.Contestant {
	return contest.Contestant{Name: name, Args: func(dir string) []string {
		at := kept
		if at == "" {
			at = filepath.Join(dir, "store")
		}
		return []string{b.tools.headgate, "fetch", "-f", manifest(dir, host, bucketName, true), "--store", at, "-q"}
	}}
}

// changing changes an object before each run.
func (b *bench) changing(ctx context.Context, c contest.Contestant) contest.Contestant {
	args := c.Args
	c.Args = func(dir string) []string {
		if err := b.store.change(ctx); err != nil {
			panic(err)
		}
		return args(dir)
	}
	return c
}

func (b *bench) mirror(name, alias string) contest.Contestant {
	return contest.Shell(name, fmt.Sprintf("%s mirror --quiet %s/%s files >log && tar -C files -czf out.tar.gz .", b.tools.mc, alias, bucketName))
}

func (b *bench) copy(name, host string) contest.Contestant {
	return contest.Shell(name, fmt.Sprintf("%s --endpoint-url http://%s --log error cp 's3://%s/*' files/ && tar -C files -czf out.tar.gz .", b.tools.s5cmd, host, bucketName))
}

// resolve is the command that asks for the revision of a bucket of the server of keys.
func (b *bench) resolve(name, bucket string) contest.Contestant {
	return contest.Contestant{Name: name, Args: func(dir string) []string {
		return []string{b.tools.headgate, "resolve", "-f", manifest(dir, b.keys.host, bucket, false), "-q"}
	}}
}

// manifest writes the documents of a bucket and returns their path.
func manifest(dir, host, bucket string, secret bool) string {
	text := fmt.Sprintf("apiVersion: source.headgate.dev/v1\nkind: Bucket\nmetadata:\n  name: bench\nspec:\n  interval: 1m\n  timeout: 10m\n  insecure: true\n  endpoint: %s\n  bucketName: %s\n  region: %s\n", host, bucket, region)
	if secret {
		text += fmt.Sprintf("  secretRef:\n    name: keys\n---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: keys\nstringData:\n  accesskey: %s\n  secretkey: %s\n", user, password)
	}
	path := filepath.Join(dir, "manifest.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		panic(err)
	}
	return path
}

// fetch fetches the bucket at host into a store, not against the clock.
func (b *bench) fetch(ctx context.Context, host, store string) error {
	if err := os.MkdirAll(store, 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(b.temp, "manifest-")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, b.tools.headgate, "fetch", "-f", manifest(dir, host, bucketName, true), "--store", store, "-q")
	cmd.Env = b.env()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("headgate fetch: %w\n%s", err, out)
	}
	return nil
}
