package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/artifact"
)

// cacheFlags say what a fetch leaves for the next one.
type cacheFlags struct {
	cache     string
	cacheSize int64
}

func (f *cacheFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.cache, "cache", "", "`DIR` of what later fetches can use, so that they transfer and compress only what is new; default .cache in the store")
	c.Flags().Int64Var(&f.cacheSize, "cache-size", 1<<30, "most `BYTES` in the cache: what was used longest ago goes first; 0 is no cache, -1 no limit")
}

// cacheDir returns where the cache is, "" when there is none.
func (f *fetchFlags) cacheDir() string {
	switch {
	case f.cacheSize == 0:
		return ""
	case f.cache != "":
		return f.cache
	}
	return filepath.Join(f.store, ".cache")
}

// openCache opens the cache, nil when there is none.
func (f *fetchFlags) openCache() (*artifact.Cache, error) {
	dir := f.cacheDir()
	if dir == "" {
		return nil, nil
	}
	return artifact.OpenCache(artifact.CacheConfig{Dir: dir, MaxBytes: f.cacheSize})
}
