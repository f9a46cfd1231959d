package main

import (
	"errors"
	"io/fs"
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
	bytesVar(c, &f.cacheSize, "cache-size", unsetBytes, -1, "most `BYTES` in the cache: what was used longest ago goes first, also when the volume is full; 0 is no cache, -1 no limit; default the smaller of 1Gi and a tenth of the volume")
}

// storingFlags are those of commands that store artifacts.
type storingFlags struct {
	sourceFlags
	cacheFlags
}

// openStore opens the store, which is made when there is none. The cache gives way to it.
func (f *storingFlags) openStore(baseURL string, cache *artifact.Cache) (*artifact.Store, error) {
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: f.store, BaseURL: baseURL, Algorithm: artifact.Algorithm(f.digest), Keep: f.records, KeepFor: f.recordsFor, Cache: cache})
	if errors.Is(err, fs.ErrInvalid) {
		return nil, &exitError{exitUsage, err}
	}
	if err != nil {
		return nil, failed(err)
	}
	return store, nil
}

// cacheDir returns where the cache is, "" when there is none.
func (f *storingFlags) cacheDir() string {
	switch {
	case f.cacheSize == 0:
		return ""
	case f.cache != "":
		return f.cache
	}
	return filepath.Join(f.store, cacheName)
}

// cacheName is the directory of the cache in a store.
const cacheName = ".cache"

// openCache opens the cache, nil when there is none.
func (f *storingFlags) openCache() (*artifact.Cache, error) {
	dir := f.cacheDir()
	if dir == "" {
		return nil, nil
	}
	limit := f.cacheSize
	if limit == unsetBytes {
		limit = 0
	}
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: dir, MaxBytes: limit})
	if err != nil {
		return nil, failed(err)
	}
	return cache, nil
}
