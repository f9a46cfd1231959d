package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/headgate-io/headgate/bench/contest"
)

type bench struct {
	contest.Contest
	temp  string
	tools programs
	store *store
	keys  *keyServer
}

// These are the names of the contestants.
const (
	headgateFetch   = "headgate, all objects"
	s5cmdCopy       = "s5cmd cp, tar cz"
	headgateResolve = "headgate resolve, 1,000,000 keys"
	minioList       = "minio-go ListObjects, 1,000,000 keys"
)

// compete runs all contestants in turn.
func (b *bench) compete(ctx context.Context, runs int, only bool) error {
	all := []contest.Contestant{b.headgate(headgateFetch, "fetch", b.store.host, bucketName), b.headgate(headgateResolve, "resolve", b.keys.host, manyName)}
	if !only {
		all = append(all, contest.Shell(s5cmdCopy, fmt.Sprintf("%s --endpoint-url http://%s --log error cp 's3://%s/*' files/ && tar -C files -czf out.tar.gz .", b.tools.s5cmd, b.store.host, bucketName)),
			contest.Contestant{Name: minioList, Args: func(string) []string { return []string{b.tools.self, "-list", b.keys.host} }})
	}
	return b.Compete(ctx, runs, all)
}

// headgate returns a contestant that runs a headgate command on a bucket at host.
func (b *bench) headgate(name, command, host, bucket string) contest.Contestant {
	return contest.Contestant{Name: name, Args: func(dir string) []string {
		text := fmt.Sprintf("apiVersion: source.headgate.dev/v1\nkind: Bucket\nmetadata:\n  name: bench\nspec:\n  interval: 1m\n  timeout: 10m\n  insecure: true\n  endpoint: %s\n  bucketName: %s\n  region: %s\n"+
			"  secretRef:\n    name: keys\n---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: keys\nstringData:\n  accesskey: %s\n  secretkey: %s\n", host, bucket, region, user, password)
		path := filepath.Join(dir, "manifest.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			panic(err)
		}
		args := []string{b.tools.headgate, command, "-f", path, "-q"}
		if command == "fetch" {
			args = append(args, "--store", filepath.Join(dir, "store"))
		}
		return args
	}}
}

// report prints the results and returns how many goals were missed.
func (b *bench) report(out io.Writer) (missed int) {
	b.Print(out)
	return contest.Judge(out, []contest.Goal{
		{What: "all objects against s5cmd with tar cz", Number: b.Wall(headgateFetch, s5cmdCopy), Limit: 0.3},
		{What: "resolving 1,000,000 keys against listing them by minio-go", Number: b.Wall(headgateResolve, minioList), Limit: 1.3},
		b.Peak(headgateFetch, 120),
		b.Peak(headgateResolve, 400),
	})
}
