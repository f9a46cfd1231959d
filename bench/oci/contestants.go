package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/headgate-io/headgate/bench/contest"
)

type bench struct {
	contest.Contest
	bin    string
	host   string
	layers []stored
}

// These are the names of the contestants, followed by the name of the layer.
const (
	ourCopy    = "headgate copy, "
	ourExtract = "headgate extract, "
	crane      = "crane blob, "
	craneTar   = "crane blob, tar x, tar cz, "
)

// contestants returns the contestants in the order of their turns.
func (b *bench) contestants(only bool) (all []contest.Contestant) {
	for _, l := range b.layers {
		all = append(all, b.headgate(ourCopy+l.name, l, "copy"), b.headgate(ourExtract+l.name, l, "extract"))
		if only {
			continue
		}
		blob := fmt.Sprintf("%s blob --insecure %s/%s@%s >layer.tar.gz", filepath.Join(b.bin, "crane"), b.host, l.repo, l.Digest)
		all = append(all, contest.Shell(crane+l.name, blob),
			contest.Shell(craneTar+l.name, blob+" && mkdir files && tar -C files -xzf layer.tar.gz && tar -C files -czf out.tar.gz ."))
	}
	return all
}

// headgate returns a contestant that fetches a layer with headgate into an empty
// store.
func (b *bench) headgate(name string, l stored, operation string) contest.Contestant {
	return contest.Contestant{Name: name, Args: func(dir string) []string {
		manifest := filepath.Join(dir, "manifest.yaml")
		text := fmt.Sprintf("apiVersion: source.headgate.dev/v1\nkind: OCIRepository\nmetadata:\n  name: bench\nspec:\n  interval: 1m\n  timeout: 5m\n  insecure: true\n  url: oci://%s/%s\n  layerSelector:\n    operation: %s\n", b.host, l.repo, operation)
		if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
			panic(err)
		}
		return []string{filepath.Join(b.bin, "headgate"), "fetch", "-f", manifest, "--store", filepath.Join(dir, "store"), "-q"}
	}}
}

// goals returns the goals for the measured numbers.
func (b *bench) goals() (all []contest.Goal) {
	for _, l := range b.layers {
		all = append(all,
			contest.Goal{What: "copy of " + l.name + " against crane blob", Number: b.Wall(ourCopy+l.name, crane+l.name), Limit: 1.25},
			contest.Goal{What: "extraction of " + l.name + " against crane blob, tar x, tar cz", Number: b.Wall(ourExtract+l.name, craneTar+l.name), Limit: 0.25},
			b.Peak(ourCopy+l.name, 95), b.Peak(ourExtract+l.name, 95))
	}
	return all
}
