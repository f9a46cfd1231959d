// Helm reads an index with helm's package pkg/repo and writes the time that it took, or generates
// an index and writes it with that package.
//
//	helm FILE CHART
//	helm -make BYTES FILE
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"helm.sh/helm/v3/pkg/repo"

	"github.com/headgate-io/headgate/bench/chart/result"
)

func main() {
	size := flag.Int("make", 0, "make an index of about as many `bytes`")
	flag.Parse()
	var err error
	if *size > 0 {
		err = write(flag.Arg(0), *size)
	} else {
		err = read(flag.Arg(0), flag.Arg(1))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "helm:", err)
		os.Exit(1)
	}
}

func read(path, chart string) error {
	start := time.Now()
	index, err := repo.LoadIndexFile(path)
	if err != nil {
		return err
	}
	taken := time.Since(start)
	return result.Write(taken, len(index.Entries[chart]))
}

// write generates an index and writes it in YAML, or in JSON if the name ends in .json.
func write(path string, size int) error {
	format := filepath.Ext(path)
	index := generateIndex(size, format)
	if format == ".json" {
		return index.WriteJSONFile(path, 0o644)
	}
	return index.WriteFile(path, 0o644)
}
